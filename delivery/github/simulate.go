package github

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Simulate implements [channel.Simulator]. It simulates a comment on issue 1 of a repository. If the setting mention is set, the comment
// begins with that mention.
func (a *Adapter) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	if !isRepo(said.Place) {
		return channel.Request{}, schemas.Invalidf("place", "%q is not an owner and a repository", schemas.Quotable(said.Place))
	}
	text := said.Text
	if name := strings.TrimPrefix(to.Settings["mention"], "@"); name != "" {
		text = "@" + name + " " + text
	}
	for _, name := range said.Files {
		text += "\n[" + name + "](https://github.com/user-attachments/files/1/" + url.PathEscape(name) + ")"
	}
	body, err := chatapi.Encode(map[string]any{"action": "created", "issue": map[string]any{"number": 1, "title": "Simulated"},
		"comment": map[string]any{"id": now.UnixMilli(), "body": text}, "repository": map[string]any{"full_name": said.Place},
		"sender": map[string]any{"login": cmp.Or(said.User, "somebody"), "type": "User"}})
	if err != nil {
		return channel.Request{}, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set("X-Github-Event", "issue_comment")
	header.Set("X-Github-Delivery", "simulated-"+strconv.FormatInt(now.UnixNano(), 36))
	header.Set(signatureHeader, signature(to.Credential[webhookSecret], body))
	return channel.Request{Header: header, Body: body}, nil
}
