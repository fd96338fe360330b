package zalo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Fields of the credential.
const (
	botToken    = "bot_token"
	secretToken = "secret_token"
)

const maxText = 2000 // characters by Zalo's documentation; counted in UTF-16 units, see Profile

// Adapter is the adapter of Zalo.
type Adapter struct{ api *chatapi.Client }

var (
	_ channel.Adapter   = (*Adapter)(nil)
	_ channel.Typist    = (*Adapter)(nil)
	_ channel.Checker   = (*Adapter)(nil)
	_ channel.Registrar = (*Adapter)(nil)
	_ channel.Fetcher   = (*Adapter)(nil)
	_ channel.Receiver  = (*Adapter)(nil)
	_ channel.Simulator = (*Adapter)(nil)
)

// New returns the adapter. Code: invalid.
func New(o channel.Options) (*Adapter, error) {
	api, err := chatapi.New("Zalo", "https://bot-api.zaloplatforms.com", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api}, nil
}

// Profile implements [channel.Adapter]. It has no Pace, because Zalo documents no rate limit.
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "zalo", Format: channel.PlainText, Limit: maxText, Unit: channel.UTF16, Once: channel.OnceNever,
		Secrets: []channel.Secret{
			{Name: botToken, Required: true, Counted: true, About: "what the Zalo Bot Manager says when a bot is made: 123456789:abc…"},
			{Name: secretToken, About: "of your own choice, 8 to 256 characters; Zalo sends it with each event"},
		},
	}
}

// Route is where an answer goes in Zalo: a chat.
type Route struct {
	Chat id `json:"chat_id"`
}

// id is an id of Zalo, a string. Some of Zalo's services send it as a JSON number.
type id string

// UnmarshalJSON accepts a string or a number.
func (i *id) UnmarshalJSON(text []byte) error {
	var s string
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		s = strconv.FormatInt(n, 10)
	} else if err := json.Unmarshal(text, &s); err != nil {
		return schemas.Invalidf("id", "is neither text nor a number")
	}
	*i = id(s)
	return nil
}

// valid reports whether i has the form of an id: 1 to 128 letters, digits, dots, dashes and underscores.
func (i id) valid() bool {
	return i != "" && len(i) <= 128 && !strings.ContainsFunc(string(i), func(r rune) bool {
		return r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	if !r.Chat.valid() {
		return Route{}, schemas.Invalidf("route.chat_id", "is not the id of a chat")
	}
	return r, nil
}

// Destination implements [channel.Adapter].
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return string(r.Chat), nil
}

// reply is the body of Zalo's responses.
type reply struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
}

// call calls a method of the Bot API and decodes the result into into, unless that is nil.
func (a *Adapter) call(ctx context.Context, to channel.Destination, method string, body, into any) error {
	token := to.Credential[botToken]
	if token == "" {
		return &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no bot_token"}
	}
	_, key, _ := strings.Cut(token, ":")
	var said reply
	answer, err := a.api.Do(ctx, chatapi.Call{Method: http.MethodPost, Path: "/bot" + url.PathEscape(token) + "/" + method, JSON: body,
		Secrets: chatapi.Secrets(to.Credential, key),
		Judge: func(answer chatapi.Answer) *channel.Error {
			_ = json.Unmarshal(answer.Body, &said) // proxies in front of Zalo respond with HTML
			return a.judge(answer, said)
		}})
	if err != nil {
		return err
	}
	if !said.OK || into != nil && json.Unmarshal(said.Result, into) != nil {
		return a.api.NotUnderstood(answer)
	}
	return nil
}

// judge maps Zalo's response, also one with a status of success, to an error. Nil: the HTTP status decides.
func (a *Adapter) judge(answer chatapi.Answer, said reply) *channel.Error {
	if said.OK || said.Code == 0 {
		return nil
	}
	e := &channel.Error{Outcome: channel.Refused, Reason: "Zalo: " + cmp.Or(said.Description, strconv.Itoa(said.Code))}
	switch {
	case said.Code == http.StatusTooManyRequests:
		e.Outcome, e.Of, e.After = channel.Limited, channel.PerCredential, chatapi.RetryAfter(answer.Header, a.api.Now())
	case said.Code == http.StatusUnauthorized, said.Code == http.StatusNotFound: // an invalid token is part of the path: 404
		e.Credential = true
	case said.Code == http.StatusRequestTimeout, said.Code >= 500:
		e.Outcome = channel.Ambiguous
	}
	return e
}

// Send implements [channel.Adapter].
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	route, err := parseRoute(to.Route)
	switch {
	case err != nil:
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	case m.File != nil:
		return channel.Receipt{}, chatapi.Refuse("Zalo takes no files")
	case len(m.Buttons) > 0:
		return channel.Receipt{}, chatapi.Refuse("Zalo has no buttons")
	}
	var sent struct {
		ID id `json:"message_id"`
	}
	if err := a.call(ctx, to, "sendMessage", map[string]any{"chat_id": route.Chat, "text": m.Text}, &sent); err != nil {
		return channel.Receipt{}, err
	}
	if sent.ID == "" {
		return channel.Receipt{}, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
	}
	return channel.Receipt{ID: string(sent.ID)}, nil
}

// Typing implements [channel.Typist].
func (a *Adapter) Typing(ctx context.Context, to channel.Destination) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	return a.call(ctx, to, "sendChatAction", map[string]any{"chat_id": route.Chat, "action": "typing"}, nil)
}

// Check implements [channel.Checker].
func (a *Adapter) Check(ctx context.Context, to channel.Destination) (string, error) {
	var me struct {
		ID   id     `json:"id"`
		Name string `json:"account_name"`
	}
	if err := a.call(ctx, to, "getMe", nil, &me); err != nil {
		return "", err
	}
	return fmt.Sprintf("the bot %s (%s)", me.Name, me.ID), nil
}

// Register implements [channel.Registrar]. A bot has one webhook, which is replaced.
func (a *Adapter) Register(ctx context.Context, to channel.Destination, hook *url.URL) error {
	secret := to.Credential[secretToken]
	if len(secret) < 8 || len(secret) > 256 {
		return &channel.Error{Outcome: channel.Refused,
			Reason: "the channel needs a secret_token of 8 to 256 characters, by which its events are known"}
	}
	return a.call(ctx, to, "setWebhook", map[string]string{"url": hook.String(), "secret_token": secret}, nil)
}
