package discord

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fields of the credential.
const (
	botToken  = "bot_token"
	publicKey = "public_key"
)

const (
	maxText = 2000
	maxFile = 10 << 20 // bytes, in a server without boosts
	// keyWindow is how long Discord is assumed to remember a nonce. Discord's documentation says "a few minutes".
	keyWindow = 2 * time.Minute
)

// Adapter is the adapter of Discord.
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
)

// New returns the adapter. Code: invalid.
func New(o channel.Options) (*Adapter, error) {
	api, err := chatapi.New("Discord", "https://discord.com/api/v10", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api}, nil
}

// Profile implements [channel.Adapter].
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "discord", Format: channel.DiscordText, Limit: maxText, Unit: channel.UTF16,
		Once: channel.OnceByKey, Window: keyWindow, MaxFile: maxFile, Buttons: true,
		Pace: []channel.Pace{
			{Of: channel.PerCredential, Events: 50, Per: time.Second},
			{Of: channel.PerDestination, Events: 5, Per: 5 * time.Second}, // observed in response headers, which decide
		},
		Secrets: []channel.Secret{
			{Name: botToken, Required: true, Counted: true, About: "Developer Portal, the application's page Bot: Reset Token"},
			{Name: publicKey, About: "Developer Portal, the application's page General Information; by it Discord's requests are known"},
		},
	}
}

// Destination implements [channel.Adapter]. It is a channel or a thread; Discord's threads are channels.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return r.Channel, nil
}

// problem is the body of Discord's error responses.
type problem struct {
	Message    string  `json:"message"`
	Code       int     `json:"code"`
	RetryAfter float64 `json:"retry_after"`
	Global     bool    `json:"global"`
}

// Error codes of Discord.
const (
	unknownChannel     = 10003
	unknownWebhook     = 10015
	missingAccess      = 50001
	missingPermissions = 50013
	invalidToken       = 50027 // the token of an interaction is invalid
)

// call sends a request with the bot's token. If byToken is true, the request is authorized only by the interaction token in its path. The
// problem is also returned with an error, if Discord sent one.
func (a *Adapter) call(ctx context.Context, to channel.Destination, byToken bool, c chatapi.Call) (chatapi.Answer, problem, error) {
	token := to.Credential[botToken]
	if token == "" {
		return chatapi.Answer{}, problem{}, &channel.Error{Outcome: channel.Refused, Credential: true, Reason: "the channel has no bot_token"}
	}
	c.Secrets = chatapi.Secrets(to.Credential, secretOf(to))
	c.Header = http.Header{"User-Agent": {"DiscordBot (https://github.com/sandjet/sandjet, 1)"}}
	if !byToken {
		c.Header.Set("Authorization", "Bot "+token)
	}
	var said problem
	c.Judge = func(answer chatapi.Answer) *channel.Error {
		said = problem{}
		_ = json.Unmarshal(answer.Body, &said) // proxies in front of Discord respond with HTML
		return a.judge(answer, said, byToken)
	}
	answer, err := a.api.Do(ctx, c)
	return answer, said, err
}

// secretOf returns the interaction token of a destination's route; empty if there is none.
func secretOf(to channel.Destination) string {
	r, err := routeOf(to)
	if err != nil {
		return ""
	}
	return r.Token
}

// judge maps Discord's response to an error. Nil: the HTTP status decides.
func (a *Adapter) judge(answer chatapi.Answer, said problem, byToken bool) *channel.Error {
	if answer.Status < 400 || answer.Status == http.StatusRequestTimeout || answer.Status >= 500 {
		return nil
	}
	e := &channel.Error{Outcome: channel.Refused, Reason: fmt.Sprintf("Discord: %s (%d)", cmp.Or(said.Message, http.StatusText(answer.Status)),
		cmp.Or(said.Code, answer.Status))}
	switch answer.Status {
	case http.StatusTooManyRequests:
		e.Outcome, e.Of = channel.Limited, channel.PerDestination
		e.After = cmp.Or(chatapi.Seconds(said.RetryAfter), chatapi.RetryAfter(answer.Header, a.api.Now()))
		if said.Global || said.Message == "" || answer.Header.Get("X-RateLimit-Scope") == "global" {
			e.Of = channel.PerCredential // proxies in front of Discord also limit by IP address, not by channel
		}
	case http.StatusUnauthorized:
		e.Credential = !byToken
	}
	return e
}

// rest returns how long Discord's rate limit accepts nothing more from now on; 0 unless the response says that none is left.
func rest(h http.Header) time.Duration {
	if h.Get("X-RateLimit-Remaining") != "0" {
		return 0
	}
	return chatapi.RetryAfter(http.Header{"Retry-After": {h.Get("X-RateLimit-Reset-After")}}, time.Time{})
}

// Typing implements [channel.Typist]. Discord shows it for ten seconds.
func (a *Adapter) Typing(ctx context.Context, to channel.Destination) error {
	route, err := routeOf(to)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	_, _, err = a.call(ctx, to, false, chatapi.Call{Method: http.MethodPost, Path: "/channels/" + route.Channel + "/typing"})
	return err
}

// React implements [channel.Reactor]. A slash command has no message to react to; Discord already shows that its answer is pending.
func (a *Adapter) React(ctx context.Context, to channel.Destination) error {
	route, err := routeOf(to)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	if route.Message == "" {
		return chatapi.Refuse("the route names no message")
	}
	_, _, err = a.call(ctx, to, false, chatapi.Call{Method: http.MethodPut,
		Path: "/channels/" + route.Channel + "/messages/" + route.Message + "/reactions/" + url.PathEscape("👀") + "/@me"})
	return err
}

// application is the application to which a bot belongs.
type application struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Key  string `json:"verify_key"`
}

func (a *Adapter) application(ctx context.Context, to channel.Destination) (application, error) {
	var app application
	answer, _, err := a.call(ctx, to, false, chatapi.Call{Method: http.MethodGet, Path: "/applications/@me", Into: &app})
	switch key := to.Credential[publicKey]; {
	case err != nil:
		return app, err
	case !snowflake(app.ID):
		return app, a.api.NotUnderstood(answer)
	case key != "" && app.Key != "" && !strings.EqualFold(key, app.Key):
		return app, &channel.Error{Outcome: channel.Refused, Credential: true,
			Reason: "the channel's public_key is not that of the application " + chatapi.Redact(app.Name, chatapi.Secrets(to.Credential))}
	}
	return app, nil
}

// Check implements [channel.Checker].
func (a *Adapter) Check(ctx context.Context, to channel.Destination) (string, error) {
	app, err := a.application(ctx, to)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the application %s (%s)", app.Name, app.ID), nil
}

// Register implements [channel.Registrar]. It creates the commands of [commands], leaving other commands alone, and sets the address for
// interactions. Discord verifies the address immediately, with valid and invalid signatures.
func (a *Adapter) Register(ctx context.Context, to channel.Destination, hook *url.URL) error {
	app, err := a.application(ctx, to)
	if err != nil {
		return err
	}
	for _, c := range commands() {
		_, _, err := a.call(ctx, to, false, chatapi.Call{Method: http.MethodPost, Path: "/applications/" + app.ID + "/commands", JSON: c})
		if err != nil {
			return err
		}
	}
	_, _, err = a.call(ctx, to, false, chatapi.Call{Method: http.MethodPatch, Path: "/applications/@me",
		JSON: map[string]string{"interactions_endpoint_url": hook.String()}})
	return err
}

// command is a slash command.
type command struct {
	Name        string   `json:"name"`
	Type        int      `json:"type"` // 1: a slash command
	Description string   `json:"description"`
	Options     []option `json:"options,omitzero"`
	Contexts    []int    `json:"contexts"` // 0: only in servers
}

type option struct {
	Name        string `json:"name"`
	Type        int    `json:"type"`
	Description string `json:"description"`
	Required    bool   `json:"required,omitzero"`
}

// Types of options.
const (
	textOption = 3
	fileOption = 11
)

// askCommand is the command whose option text is the message to the agent.
const askCommand = "ask"

func commands() []command {
	list := []command{
		{Name: askCommand, Description: "Ask the agent", Options: []option{
			{Name: "text", Type: textOption, Description: "What it should do", Required: true},
			{Name: "file", Type: fileOption, Description: "A file for it"}}},
		{Name: "new", Description: "Begin a new conversation"},
		{Name: "stop", Description: "Stop what is being done"},
		{Name: "status", Description: "Show what is being done"},
		{Name: "help", Description: "Show what can be said"},
		{Name: "run", Description: "Run a command in the workspace", Options: []option{
			{Name: "command", Type: textOption, Description: "The command line", Required: true}}},
		{Name: "approve", Description: "Approve a request", Options: []option{
			{Name: "id", Type: textOption, Description: "Of the request", Required: true}}},
		{Name: "deny", Description: "Deny a request", Options: []option{
			{Name: "id", Type: textOption, Description: "Of the request", Required: true}}},
	}
	for i := range list {
		list[i].Type, list[i].Contexts = 1, []int{0}
	}
	return list
}
