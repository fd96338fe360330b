package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fields of the credential.
const (
	botToken    = "bot_token"
	secretToken = "secret_token"
)

const (
	maxText    = 4096     // UTF-16 units of the text without markup
	maxCaption = 1024     // the same, of a file's caption
	maxFile    = 50 << 20 // bytes
)

// Adapter is the adapter of Telegram.
type Adapter struct{ api *chatapi.Client }

var (
	_ channel.Adapter   = (*Adapter)(nil)
	_ channel.Typist    = (*Adapter)(nil)
	_ channel.Editor    = (*Adapter)(nil)
	_ channel.Reactor   = (*Adapter)(nil)
	_ channel.Checker   = (*Adapter)(nil)
	_ channel.Registrar = (*Adapter)(nil)
	_ channel.Fetcher   = (*Adapter)(nil)
	_ channel.Receiver  = (*Adapter)(nil)
	_ channel.Simulator = (*Adapter)(nil)
)

// New returns the adapter. Code: invalid.
func New(o channel.Options) (*Adapter, error) {
	api, err := chatapi.New("Telegram", "https://api.telegram.org", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api}, nil
}

// Profile implements [channel.Adapter].
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "telegram", Format: channel.TelegramHTML, Limit: maxText, Unit: channel.UTF16, Caption: maxCaption,
		Once: channel.OnceNever, MaxFile: maxFile, Buttons: true,
		Pace: []channel.Pace{
			{Of: channel.PerCredential, Events: 30, Per: time.Second},
			{Of: channel.PerDestination, Events: 1, Per: time.Second},
			{Of: channel.PerDestination, Events: 20, Per: time.Minute}, // of groups; private chats accept more
		},
		Secrets: []channel.Secret{
			{Name: botToken, Required: true, Counted: true, About: "what @BotFather says when a bot is made: 123456789:AA…"},
			{Name: secretToken, About: "of your own choice, 1 to 256 characters of A-Z a-z 0-9 _ -; Telegram sends it with each update"},
		},
	}
}

// Destination implements [channel.Adapter]. It is a chat, with all its topics.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return string(r.Chat), nil
}

// reply is the body of Telegram's responses.
type reply struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	Code        int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter float64 `json:"retry_after"`
		MigrateTo  int64   `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// call calls a method of the Bot API and decodes the result into into, unless that is nil. The reply is also returned with an error, if
// Telegram sent one.
func (a *Adapter) call(ctx context.Context, to channel.Destination, method string, c chatapi.Call, into any) (reply, error) {
	token := to.Credential[botToken]
	if token == "" {
		return reply{}, &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no bot_token"}
	}
	c.Method, c.Path = http.MethodPost, "/bot"+url.PathEscape(token)+"/"+method
	_, key, _ := strings.Cut(token, ":")
	c.Secrets = chatapi.Secrets(to.Credential, key)
	var said reply
	c.Judge = func(answer chatapi.Answer) *channel.Error {
		said = reply{}
		_ = json.Unmarshal(answer.Body, &said) // proxies in front of Telegram respond with HTML
		return a.judge(answer, said)
	}
	answer, err := a.api.Do(ctx, c)
	if err != nil {
		return said, err
	}
	if !said.OK || len(said.Result) == 0 || into != nil && json.Unmarshal(said.Result, into) != nil {
		return said, a.api.NotUnderstood(answer)
	}
	return said, nil
}

// judge maps Telegram's response to an error. Nil: the HTTP status decides.
func (a *Adapter) judge(answer chatapi.Answer, said reply) *channel.Error {
	if said.OK || said.Code == 0 {
		return nil
	}
	e := &channel.Error{Outcome: channel.Refused, Reason: "Telegram: " + cmp.Or(said.Description, strconv.Itoa(said.Code))}
	switch {
	case said.Code == http.StatusTooManyRequests:
		e.Outcome, e.Of = channel.Limited, channel.PerDestination
		e.After = cmp.Or(chatapi.Seconds(said.Parameters.RetryAfter), chatapi.RetryAfter(answer.Header, a.api.Now()))
	case said.Code == http.StatusUnauthorized, said.Code == http.StatusNotFound: // an invalid token is part of the path: 404
		e.Credential = true
	case said.Code >= 500:
		e.Outcome = channel.Ambiguous
	}
	return e
}

// sent is a message in Telegram's responses, with only the fields that are read.
type sent struct {
	ID   int64 `json:"message_id"`
	Chat struct {
		ID       int64  `json:"id"`
		Username string `json:"username"`
	} `json:"chat"`
}

// Send implements [channel.Adapter]. If Telegram cannot parse the markup, the message is sent again as plain text. If the group has become
// a supergroup, which has another id, the message is sent there.
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	route, err := parseRoute(to.Route)
	if err != nil {
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	}
	moved := false
	for plain := false; ; {
		method, c, failed := request(route, m, plain)
		if failed != nil {
			return channel.Receipt{}, failed
		}
		var got sent
		said, err := a.call(ctx, to, method, c, &got)
		switch {
		case err == nil && got.ID == 0:
			return channel.Receipt{}, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
		case err == nil:
			return receipt(route, got, moved), nil
		case channel.OutcomeOf(err) == channel.Refused && said.Parameters.MigrateTo != 0 && !moved:
			moved, route.Chat = true, ChatID(strconv.FormatInt(said.Parameters.MigrateTo, 10))
			route.Message = 0 // the message id was that of the old chat
		case channel.OutcomeOf(err) == channel.Refused && unparsed(said) && !plain:
			plain = true
		default:
			return channel.Receipt{}, err
		}
	}
}

// unparsed reports whether Telegram could not parse the markup of a text. Only the description of the error says so.
func unparsed(r reply) bool {
	return r.Code == http.StatusBadRequest && strings.Contains(r.Description, "can't parse entities")
}

func receipt(route Route, got sent, moved bool) channel.Receipt {
	r := channel.Receipt{ID: strconv.FormatInt(got.ID, 10)}
	const super = "-100" // prefix of the ids of supergroups and channels
	switch id, isSuper := strings.CutPrefix(strconv.FormatInt(got.Chat.ID, 10), super); {
	case got.Chat.Username != "" && got.Chat.ID < 0:
		r.URL = fmt.Sprintf("https://t.me/%s/%d", url.PathEscape(got.Chat.Username), got.ID)
	case isSuper:
		r.URL = fmt.Sprintf("https://t.me/c/%s/%d", id, got.ID)
	}
	if moved {
		r.Route = chatapi.Route(route)
	}
	return r
}

// Typing implements [channel.Typist]. Telegram shows it for five seconds.
func (a *Adapter) Typing(ctx context.Context, to channel.Destination) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	_, err = a.call(ctx, to, "sendChatAction", chatapi.Call{JSON: struct {
		Chat   ChatID `json:"chat_id"`
		Thread int64  `json:"message_thread_id,omitzero"`
		Action string `json:"action"`
	}{route.Chat, route.Thread, "typing"}}, nil)
	return err
}

// React implements [channel.Reactor].
func (a *Adapter) React(ctx context.Context, to channel.Destination) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	if route.Message == 0 {
		return chatapi.Refuse("the route names no message")
	}
	_, err = a.call(ctx, to, "setMessageReaction", chatapi.Call{JSON: map[string]any{"chat_id": route.Chat, "message_id": route.Message,
		"reaction": []any{map[string]string{"type": "emoji", "emoji": "👀"}}}}, nil)
	return err
}

// Edit implements [channel.Editor]. Buttons of the old message that m does not have are removed.
func (a *Adapter) Edit(ctx context.Context, to channel.Destination, id string, m channel.Message) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return chatapi.Refuse("%q is the id of no message", id)
	}
	for _, plain := range []bool{false, true} {
		body := outgoing{Chat: route.Chat, Message: number, Text: m.Text, ParseMode: "HTML", Preview: &preview{Disabled: true}}
		if plain {
			body.Text, body.ParseMode = m.Plain, ""
		}
		var failed *channel.Error
		if body.Markup, failed = keyboard(m.Buttons); failed != nil {
			return failed
		}
		var said reply
		said, err = a.call(ctx, to, "editMessageText", chatapi.Call{JSON: body}, nil)
		switch {
		case err == nil, strings.Contains(said.Description, "message is not modified"):
			return nil
		case !unparsed(said):
			return err
		}
	}
	return err
}

// Check implements [channel.Checker].
func (a *Adapter) Check(ctx context.Context, to channel.Destination) (string, error) {
	var me struct {
		ID       int64  `json:"id"`
		Username string `json:"username"`
		Groups   bool   `json:"can_read_all_group_messages"`
	}
	if _, err := a.call(ctx, to, "getMe", chatapi.Call{}, &me); err != nil {
		return "", err
	}
	about := fmt.Sprintf("the bot @%s (%d)", me.Username, me.ID)
	if !me.Groups {
		about += "; in groups it sees commands and answers to it alone, unless its privacy mode is turned off"
	}
	return about, nil
}

// Register implements [channel.Registrar].
func (a *Adapter) Register(ctx context.Context, to channel.Destination, hook *url.URL) error {
	secret := to.Credential[secretToken]
	if secret == "" {
		return &channel.Error{Outcome: channel.Refused, Reason: "the channel has no secret_token, by which its updates are known"}
	}
	_, err := a.call(ctx, to, "setWebhook", chatapi.Call{JSON: map[string]any{"url": hook.String(), "secret_token": secret,
		"allowed_updates": []string{"message", "callback_query"}}}, nil)
	return err
}
