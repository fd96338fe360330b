package pancake

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Verify implements [channel.Receiver]. Requests carry no time; a repeated request is recognized by the id and the text of its message.
func (a *Adapter) Verify(r channel.Request, to channel.Destination, _ time.Time) error {
	secret := to.Credential[hookSecret]
	if secret == "" {
		return chatapi.Lacks(hookSecret)
	}
	if !chatapi.Same(r.Query.Get("secret"), secret) {
		return chatapi.Forged("the request does not show the channel's hook_secret")
	}
	return nil
}

// posted is the JSON that Pancake posts, with only the fields that are read.
type posted struct {
	Type string `json:"event_type"`
	Page id     `json:"page_id"`
	Data struct {
		Conversation struct {
			ID   id                `json:"id"`
			Kind kind              `json:"type"`
			Tags []json.RawMessage `json:"tags"`
		} `json:"conversation"`
		Message struct {
			ID       id           `json:"id"`
			Kind     kind         `json:"type"`
			Text     string       `json:"message"`
			Original string       `json:"original_message"`
			Files    []attachment `json:"attachments"`
			Hidden   bool         `json:"is_hidden"`
			Removed  bool         `json:"is_removed"`
			From     struct {
				ID    id     `json:"id"`
				Name  string `json:"name"`
				Admin id     `json:"admin_id"`
			} `json:"from"`
		} `json:"message"`
	} `json:"data"`
}

// Read implements [channel.Receiver]. The setting ignore_tags, ids separated by commas, names tags of conversations that a person has
// taken over: their messages are ignored. The setting page_id names the only page whose messages are read.
func (a *Adapter) Read(r channel.Request, to channel.Destination) (channel.Inbound, error) {
	var p posted
	if err := chatapi.Decode(r.Body, &p); err != nil {
		return channel.Inbound{}, err
	}
	c, m := &p.Data.Conversation, &p.Data.Message
	own := to.Settings["page_id"]
	switch {
	case p.Type != "messaging":
		return chatapi.Ignore("it is no message"), nil
	case own != "" && string(p.Page) != own:
		return chatapi.Ignore("it is of another page"), nil
	case m.From.ID == p.Page || m.From.Admin != "":
		return chatapi.Ignore("the page wrote it"), nil
	case m.Hidden || m.Removed:
		return chatapi.Ignore("it is hidden or removed"), nil
	case takenOver(c.Tags, to.Settings["ignore_tags"]):
		return chatapi.Ignore("a person has taken the conversation over"), nil
	}
	text := strings.TrimSpace(cmp.Or(m.Original, withoutTags(m.Text)))
	files := filesOf(m.Files)
	route := Route{Page: p.Page, Conversation: c.ID, Message: m.ID, Kind: cmp.Or(m.Kind, c.Kind)}
	switch {
	case !p.Page.valid() || !c.ID.valid() || !m.ID.valid() || m.From.ID == "":
		return chatapi.Ignore("it lacks what names it"), nil
	case route.Kind != "" && route.Kind != inbox && route.Kind != comment:
		return chatapi.Ignore("it is neither of a chat nor a comment"), nil
	case text == "" && len(files) == 0:
		return chatapi.Ignore("it has neither text nor files"), nil
	}
	// An edited message is posted with the same id.
	sum := sha256.Sum256([]byte(text))
	return channel.Inbound{
		Kind: channel.Text, Event: "pancake:" + string(p.Page) + ":" + string(m.ID) + ":" + hex.EncodeToString(sum[:8]),
		Conversation: "pancake:" + string(p.Page) + ":" + string(c.ID), Place: string(p.Page), User: string(m.From.ID), UserName: m.From.Name,
		Text: text, Files: files, Message: string(m.ID), Route: chatapi.Route(route),
	}, nil
}

// takenOver reports whether a conversation has one of the tags in ignore, separated by commas. Pancake sends tags as numbers or as objects
// with an id.
func takenOver(tags []json.RawMessage, ignore string) bool {
	if ignore == "" {
		return false
	}
	for _, tag := range tags {
		var one id
		var object struct {
			ID id `json:"id"`
		}
		if json.Unmarshal(tag, &one) != nil && json.Unmarshal(tag, &object) == nil {
			one = object.ID
		}
		same := func(s string) bool { return strings.TrimSpace(s) == string(one) }
		if one != "" && slices.ContainsFunc(strings.Split(ignore, ","), same) {
			return true
		}
	}
	return false
}

var (
	breaks = regexp.MustCompile(`(?i)<br\s*/?>|</(?:div|p)>`)
	tag    = regexp.MustCompile(`<[^<>]*>`)
)

// withoutTags returns the text of HTML.
func withoutTags(s string) string {
	return html.UnescapeString(tag.ReplaceAllString(breaks.ReplaceAllString(s, "\n"), ""))
}

// Simulate implements [channel.Simulator]. The place is a page.
func (a *Adapter) Simulate(to channel.Destination, said channel.Said, now time.Time) (channel.Request, error) {
	page, from := id(said.Place), id(cmp.Or(said.User, "somebody"))
	if !page.valid() || !from.valid() {
		return channel.Request{}, schemas.Invalidf("place", "%q is not the id of a page", schemas.Quotable(said.Place))
	}
	files := []attachment{}
	for _, name := range said.Files {
		files = append(files, attachment{Kind: "file", Name: name, URL: "https://content.pancake.vn/" + url.PathEscape(name)})
	}
	body, err := chatapi.Encode(map[string]any{"event_type": "messaging", "page_id": page, "data": map[string]any{
		"conversation": map[string]any{"id": string(page) + "_" + string(from), "type": inbox, "tags": []any{}},
		"message": map[string]any{"id": "m_" + strconv.FormatInt(now.UnixNano(), 36), "type": inbox, "original_message": said.Text,
			"attachments": files, "from": map[string]any{"id": from, "name": "somebody"}},
	}})
	if err != nil {
		return channel.Request{}, err
	}
	return channel.Request{Header: http.Header{"Content-Type": {"application/json"}},
		Query: url.Values{"secret": {to.Credential[hookSecret]}}, Body: body}, nil
}
