package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fields of the credential.
const (
	botToken      = "bot_token"
	signingSecret = "signing_secret"
)

const (
	maxText  = 3000 // UTF-16 units; the limit of a section block, which shows the text above buttons
	maxLabel = 75   // characters of a button
	maxData  = 64   // bytes of a button's data

	// deliveryEvent is the event_type of the metadata that carries a delivery's key.
	deliveryEvent = "sandjet_delivery"

	pageSize = 200             // messages per request of a search
	maxPages = 5               // requests per search
	skew     = 2 * time.Minute // by how much Slack's clock may differ from ours
)

// Adapter is the adapter of Slack.
type Adapter struct{ api *chatapi.Client }

var (
	_ channel.Adapter   = (*Adapter)(nil)
	_ channel.Finder    = (*Adapter)(nil)
	_ channel.Editor    = (*Adapter)(nil)
	_ channel.Reactor   = (*Adapter)(nil)
	_ channel.Checker   = (*Adapter)(nil)
	_ channel.Fetcher   = (*Adapter)(nil)
	_ channel.Receiver  = (*Adapter)(nil)
	_ channel.Simulator = (*Adapter)(nil)
)

// New returns the adapter. Code: invalid.
func New(o channel.Options) (*Adapter, error) {
	api, err := chatapi.New("Slack", "https://slack.com/api", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api}, nil
}

// Profile implements [channel.Adapter].
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "slack", Format: channel.SlackMrkdwn, Limit: maxText, Unit: channel.UTF16, Once: channel.OnceByLook, Buttons: true,
		Pace: []channel.Pace{{Of: channel.PerDestination, Events: 1, Per: time.Second}},
		Secrets: []channel.Secret{
			{Name: botToken, Required: true, Counted: true, About: "the app's page OAuth & Permissions, Bot User OAuth Token: xoxb-…; " +
				"scopes chat:write, reactions:write, app_mentions:read, im:history, and the history of each kind of channel it writes in"},
			{Name: signingSecret, About: "the app's page Basic Information, App Credentials; by it Slack's requests are known"},
		},
	}
}

// Destination implements [channel.Adapter]. It is a channel, with all its threads.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return r.Channel, nil
}

// reply has the fields that the response of every method has.
type reply struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
}

// call calls a method of the Web API with the bot's token. The reply is also returned with an error, if Slack sent one.
func (a *Adapter) call(ctx context.Context, to channel.Destination, method string, c chatapi.Call) (said reply, err error) {
	token := to.Credential[botToken]
	if token == "" {
		return reply{}, &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no bot_token"}
	}
	c.Path = "/" + method
	c.Header = http.Header{"Authorization": {"Bearer " + token}}
	c.Secrets = chatapi.Secrets(to.Credential)
	of := channel.PerCredential
	if method == "chat.postMessage" {
		of = channel.PerDestination
	}
	c.Judge = func(answer chatapi.Answer) *channel.Error {
		said = reply{}
		_ = json.Unmarshal(answer.Body, &said) // proxies in front of Slack respond with HTML
		return a.judge(answer, said, of)
	}
	answer, err := a.api.Do(ctx, c)
	if err == nil && !said.OK {
		return said, a.api.NotUnderstood(answer)
	}
	return said, err
}

// judge maps Slack's response to an error. Slack responds with status 200 to most failures, so the error code in the body decides. Nil:
// the body has no error code, and the HTTP status decides.
func (a *Adapter) judge(answer chatapi.Answer, said reply, of channel.PaceOf) *channel.Error {
	limited := answer.Status == http.StatusTooManyRequests
	if said.OK || said.Error == "" && !limited {
		return nil
	}
	e := &channel.Error{Outcome: channel.Refused, Reason: "Slack: " + said.Error}
	switch said.Error {
	case "invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope", "no_permission",
		"not_allowed_token_type", "org_login_required", "team_access_not_granted", "invalid_token":
		e.Credential = true
	case "internal_error", "fatal_error", "request_timeout", "service_unavailable", "team_added_to_org":
		e.Outcome = channel.Ambiguous
	case "ratelimited", "rate_limited", "message_limit_exceeded":
		limited = true
	}
	if limited {
		e.Outcome, e.Of, e.Credential = channel.Limited, of, false
		e.After = chatapi.RetryAfter(answer.Header, a.api.Now())
		e.Reason = "Slack takes no more messages for now"
	}
	return e
}

// outgoing is the body of the methods that write text.
type outgoing struct {
	Channel  string    `json:"channel"`
	Thread   string    `json:"thread_ts,omitzero"`
	Stamp    string    `json:"ts,omitzero"` // set for edits
	Text     string    `json:"text"`
	Blocks   []any     `json:"blocks,omitzero"` // empty, not nil: an edit removes the buttons
	Links    bool      `json:"unfurl_links"`
	Media    bool      `json:"unfurl_media"`
	Metadata *metadata `json:"metadata,omitzero"`
}

type metadata struct {
	Type    string  `json:"event_type"`
	Payload payload `json:"event_payload"`
}

type payload struct {
	Delivery string `json:"delivery"`
}

// write returns the body that sends a message to a channel, or an error if the message is not one that is sent to Slack.
func write(place string, m channel.Message) (outgoing, *channel.Error) {
	switch {
	case m.File != nil:
		return outgoing{}, chatapi.Refuse("no files are sent to Slack")
	case units(m.Text) > maxText:
		return outgoing{}, chatapi.Refuse("the text has %d units, and at most %d are sent to Slack", units(m.Text), maxText)
	}
	body := outgoing{Channel: place, Text: m.Text, Metadata: &metadata{deliveryEvent, payload{m.Key}}}
	if len(m.Buttons) == 0 {
		return body, nil
	}
	var press []any
	for i, b := range m.Buttons {
		if b.Label == "" || len(b.Label) > maxLabel || b.Data == "" || len(b.Data) > maxData {
			return outgoing{}, chatapi.Refuse("a button has a label of 1 to %d bytes, and data of 1 to %d", maxLabel, maxData)
		}
		button := map[string]any{"type": "button", "action_id": "sandjet." + strconv.Itoa(i), "value": b.Data,
			"text": map[string]any{"type": "plain_text", "text": b.Label}}
		switch b.Style {
		case channel.Approve:
			button["style"] = "primary"
		case channel.Deny:
			button["style"] = "danger"
		case channel.Neutral:
		}
		press = append(press, button)
	}
	body.Blocks = []any{
		map[string]any{"type": "section", "text": map[string]any{"type": "mrkdwn", "text": m.Text}},
		map[string]any{"type": "actions", "elements": press},
	}
	return body, nil
}

// units returns the length of a text in UTF-16 units.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// Send implements [channel.Adapter]. It posts to the thread that the route names; m.Reply is ignored.
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	route, err := parseRoute(to.Route)
	if err != nil {
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	}
	body, failed := write(route.Channel, m)
	if failed != nil {
		return channel.Receipt{}, failed
	}
	body.Thread = route.Thread
	var got struct {
		Stamp string `json:"ts"`
	}
	if _, err := a.call(ctx, to, "chat.postMessage", chatapi.Call{Method: http.MethodPost, JSON: body, Into: &got}); err != nil {
		return channel.Receipt{}, err
	}
	if got.Stamp == "" {
		return channel.Receipt{}, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
	}
	return channel.Receipt{ID: got.Stamp}, nil
}

// Edit implements [channel.Editor]. Buttons of the old message that m does not have are removed.
func (a *Adapter) Edit(ctx context.Context, to channel.Destination, id string, m channel.Message) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	body, failed := write(route.Channel, m)
	if failed != nil {
		return failed
	}
	body.Stamp = id
	if body.Blocks == nil {
		body.Blocks = []any{}
	}
	_, err = a.call(ctx, to, "chat.update", chatapi.Call{Method: http.MethodPost, JSON: body})
	return err
}

// React implements [channel.Reactor].
func (a *Adapter) React(ctx context.Context, to channel.Destination) error {
	route, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	if route.Message == "" {
		return chatapi.Refuse("the route names no message")
	}
	said, err := a.call(ctx, to, "reactions.add", chatapi.Call{Method: http.MethodPost,
		JSON: map[string]string{"channel": route.Channel, "timestamp": route.Message, "name": "eyes"}})
	if said.Error == "already_reacted" {
		return nil
	}
	return err
}

// Check implements [channel.Checker].
func (a *Adapter) Check(ctx context.Context, to channel.Destination) (string, error) {
	var me struct {
		Team   string `json:"team"`
		User   string `json:"user"`
		TeamID string `json:"team_id"`
	}
	if _, err := a.call(ctx, to, "auth.test", chatapi.Call{Method: http.MethodPost, Into: &me}); err != nil {
		return "", err
	}
	return fmt.Sprintf("the bot %s of the workspace %s (%s)", me.User, me.Team, me.TeamID), nil
}

// Find implements [channel.Finder]. It reads the thread, or the channel, from skew before since.
func (a *Adapter) Find(ctx context.Context, to channel.Destination, key string, since time.Time) (channel.Receipt, bool, error) {
	route, err := parseRoute(to.Route)
	if err != nil {
		return channel.Receipt{}, false, chatapi.Refuse("%s", err)
	}
	oldest := max(since.Add(-skew).Unix(), 0)
	query := url.Values{"channel": {route.Channel}, "limit": {strconv.Itoa(pageSize)}, "include_all_metadata": {"true"},
		"oldest": {strconv.FormatInt(oldest, 10) + ".000000"}}
	method := "conversations.history"
	if route.Thread != "" {
		method = "conversations.replies"
		query.Set("ts", route.Thread)
	}
	for range maxPages {
		var page struct {
			Messages []struct {
				Stamp    string `json:"ts"`
				Metadata struct {
					Type    string         `json:"event_type"`
					Payload map[string]any `json:"event_payload"`
				} `json:"metadata"`
			} `json:"messages"`
			More bool `json:"has_more"`
			Next struct {
				Cursor string `json:"next_cursor"`
			} `json:"response_metadata"`
		}
		if _, err := a.call(ctx, to, method, chatapi.Call{Method: http.MethodGet, Query: query, Into: &page}); err != nil {
			return channel.Receipt{}, false, unseen(err)
		}
		for _, m := range page.Messages {
			if m.Metadata.Type == deliveryEvent && m.Metadata.Payload["delivery"] == key && m.Stamp != "" {
				return channel.Receipt{ID: m.Stamp}, true, nil
			}
		}
		switch {
		case page.Messages == nil:
			return channel.Receipt{}, false, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
		case page.Next.Cursor == "" && !page.More:
			return channel.Receipt{}, false, nil
		case page.Next.Cursor == "":
			return channel.Receipt{}, false, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
		}
		query.Set("cursor", page.Next.Cursor)
	}
	return channel.Receipt{}, false, &channel.Error{Outcome: channel.Ambiguous,
		Reason: fmt.Sprintf("more than %d messages have come since: too many to look through", maxPages*pageSize)}
}

// unseen returns the error of a failed search. A refused search says nothing about the message, so the outcome becomes ambiguous.
func unseen(err error) error {
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Refused {
		return err
	}
	return &channel.Error{Outcome: channel.Ambiguous, Reason: "it cannot be looked for: " + e.Reason, Status: e.Status, Cause: e.Cause}
}
