package slack

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Simulate implements [channel.Simulator]. It simulates a direct message if the place begins with D, else a mention of the app in a
// channel.
func (a *Adapter) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	if !isPlace(said.Place) {
		return channel.Request{}, schemas.Invalidf("place", "%q is not the id of a channel", schemas.Quotable(said.Place))
	}
	const bot = "U0SANDJET"
	event := map[string]any{"channel": said.Place, "user": cmp.Or(said.User, "U0SOMEBODY"),
		"ts": fmt.Sprintf("%d.%06d", now.Unix(), now.Nanosecond()/1000)}
	text := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(said.Text)
	if strings.HasPrefix(said.Place, "D") {
		event["type"], event["channel_type"], event["text"] = "message", "im", text
	} else {
		event["type"], event["text"] = "app_mention", "<@"+bot+"> "+text
	}
	if len(said.Files) > 0 {
		var files []file
		for _, name := range said.Files {
			files = append(files, file{Name: name, URL: "https://files.slack.com/files-pri/T0SANDJET-F0/download/" + url.PathEscape(name)})
		}
		event["files"] = files
	}
	body, err := chatapi.Encode(map[string]any{"type": "event_callback", "team_id": "T0SANDJET", "event": event,
		"event_id":       "Ev" + strings.ToUpper(strconv.FormatInt(now.UnixNano(), 36)),
		"authorizations": []any{map[string]any{"user_id": bot, "is_bot": true}}})
	if err != nil {
		return channel.Request{}, err
	}
	stamp := strconv.FormatInt(now.Unix(), 10)
	header := http.Header{"Content-Type": {"application/json"}}
	header.Set(timeHeader, stamp)
	header.Set(signatureHeader, signature(to.Credential[signingSecret], stamp, body))
	return channel.Request{Header: header, Body: body}, nil
}
