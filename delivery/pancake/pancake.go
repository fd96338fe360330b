package pancake

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Fields of the credential.
const (
	pageToken  = "page_access_token"
	hookSecret = "hook_secret"
)

const maxText = 2000 // UTF-16 units: what the networks behind Pancake accept; Pancake itself documents no limit

// Adapter is the adapter of Pancake.
type Adapter struct{ api *chatapi.Client }

var (
	_ channel.Adapter   = (*Adapter)(nil)
	_ channel.Fetcher   = (*Adapter)(nil)
	_ channel.Receiver  = (*Adapter)(nil)
	_ channel.Simulator = (*Adapter)(nil)
)

// New returns the adapter. Code: invalid.
func New(o channel.Options) (*Adapter, error) {
	api, err := chatapi.New("Pancake", "https://pages.fm/api/public_api/v1", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api}, nil
}

// Profile implements [channel.Adapter]. It has no Pace, because Pancake documents no rate limit.
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "pancake", Format: channel.PlainText, Limit: maxText, Unit: channel.UTF16, Once: channel.OnceNever,
		Secrets: []channel.Secret{
			{Name: pageToken, Required: true, Counted: true, About: "the page's settings in Pancake, Tools: the page access token"},
			{Name: hookSecret, About: "of your own choice; it stands in the webhook's address, as ?secret=…"},
		},
	}
}

// Route is a conversation of a page. If the conversation is about a post, Message is the comment that is answered.
type Route struct {
	Page         id   `json:"page_id"`
	Conversation id   `json:"conversation_id"`
	Message      id   `json:"message_id,omitzero"`
	Kind         kind `json:"type,omitzero"` // empty: inbox
}

// kind is the kind of a conversation.
type kind string

const (
	inbox   kind = "INBOX"
	comment kind = "COMMENT"
)

// id is an id of Pancake, a string that contains ids of the networks behind it. Pancake sends some ids as JSON numbers.
type id string

// UnmarshalJSON accepts a string or a number.
func (i *id) UnmarshalJSON(text []byte) error {
	var n json.Number
	var s string
	switch {
	case string(text) == "null":
	case len(text) > 0 && text[0] != '"' && json.Unmarshal(text, &n) == nil:
		s = n.String()
	default:
		if err := json.Unmarshal(text, &s); err != nil {
			return schemas.Invalidf("id", "is neither text nor a number")
		}
	}
	*i = id(s)
	return nil
}

// valid reports whether i has the form of an id: 1 to 256 letters, digits and characters of _-.@:=+, not dots alone.
func (i id) valid() bool {
	if len(i) > 256 || strings.Trim(string(i), ".") == "" {
		return false
	}
	return !strings.ContainsFunc(string(i), func(r rune) bool {
		return !strings.ContainsRune("_-.@:=+", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	switch {
	case !r.Page.valid():
		return Route{}, schemas.Invalidf("route.page_id", "is not the id of a page")
	case !r.Conversation.valid():
		return Route{}, schemas.Invalidf("route.conversation_id", "is not the id of a conversation")
	case r.Kind != "" && r.Kind != inbox && r.Kind != comment:
		return Route{}, schemas.Invalidf("route.type", "is neither INBOX nor COMMENT")
	case r.Kind == comment && !r.Message.valid():
		return Route{}, schemas.Invalidf("route.message_id", "is needed below a post: the comment that is answered")
	}
	return r, nil
}

// Destination implements [channel.Adapter]. It is a conversation.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return string(r.Page) + "/" + string(r.Conversation), nil
}

// reply is the body of Pancake's responses.
type reply struct {
	Success *bool  `json:"success"`
	Message string `json:"message"`
	ID      id     `json:"id"`
}

// Send implements [channel.Adapter]. The setting sender_id is the id of the page's user in whose name the message is sent.
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	r, err := parseRoute(to.Route)
	token := to.Credential[pageToken]
	switch {
	case err != nil:
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	case token == "":
		return channel.Receipt{}, &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no page_access_token"}
	case m.File != nil:
		return channel.Receipt{}, chatapi.Refuse("no files are sent to Pancake")
	case len(m.Buttons) > 0:
		return channel.Receipt{}, chatapi.Refuse("Pancake has no buttons")
	case units(m.Text) > maxText:
		return channel.Receipt{}, chatapi.Refuse("the text has %d units, and at most %d are sent to Pancake", units(m.Text), maxText)
	}
	body := map[string]any{"action": "reply_inbox", "message": m.Text}
	if r.Kind == comment {
		body["action"], body["message_id"] = "reply_comment", r.Message
	}
	if sender := to.Settings["sender_id"]; sender != "" {
		body["sender_id"] = sender
	}
	var said reply
	answer, err := a.api.Do(ctx, chatapi.Call{Method: http.MethodPost, JSON: body, Query: url.Values{pageToken: {token}},
		Path:    "/pages/" + url.PathEscape(string(r.Page)) + "/conversations/" + url.PathEscape(string(r.Conversation)) + "/messages",
		Secrets: chatapi.Secrets(to.Credential),
		Judge: func(answer chatapi.Answer) *channel.Error {
			said = reply{}
			_ = json.Unmarshal(answer.Body, &said) // proxies in front of Pancake respond with HTML
			return judge(answer, said)
		}})
	if err != nil {
		return channel.Receipt{}, err
	}
	if said.Success == nil {
		return channel.Receipt{}, a.api.NotUnderstood(answer)
	}
	// The id of a message is not used later, so the key replaces it if Pancake returns none.
	return channel.Receipt{ID: cmp.Or(string(said.ID), m.Key)}, nil
}

// judge maps Pancake's response, also one with status 200, to an error. Nil: the HTTP status decides.
func judge(answer chatapi.Answer, said reply) *channel.Error {
	if said.Success == nil || *said.Success || answer.Status == http.StatusTooManyRequests || answer.Status >= 500 {
		return nil
	}
	e := &channel.Error{Outcome: channel.Refused, Reason: "Pancake: " + cmp.Or(said.Message, "the message is refused, without a reason")}
	e.Credential = answer.Status == http.StatusUnauthorized || strings.Contains(strings.ToLower(said.Message), "access_token")
	return e
}

// units returns the length of a text in UTF-16 units.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
