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
	// keyWindow is how long a nonce is taken for remembered. Discord says "a few minutes".
	keyWindow = 2 * time.Minute
)

// Adapter speaks to Discord.
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
			{Of: channel.PerDestination, Events: 5, Per: 5 * time.Second}, // as the headers have said; they are what holds
		},
		Secrets: []channel.Secret{
			{Name: botToken, Required: true, Counted: true, About: "Developer Portal, the application's page Bot: Reset Token"},
			{Name: publicKey, About: "Developer Portal, the application's page General Information; by it Discord's requests are known"},
		},
	}
}

// Destination implements [channel.Adapter]: a channel, or a thread, which is one.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return r.Channel, nil
}

// problem is what Discord says is wrong.
type problem struct {
	Message    string  `json:"message"`
	Code       int     `json:"code"`
	RetryAfter float64 `json:"retry_after"`
	Global     bool    `json:"global"`
}

// Codes of Discord.
const (
	unknownChannel     = 10003
	unknownWebhook     = 10015
	missingAccess      = 50001
	missingPermissions = 50013
	invalidToken       = 50027 // of an interaction
)

// call sends a request of the bot; one by token goes by the token in its path alone.
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
		_ = json.Unmarshal(answer.Body, &said) // what stands before Discord answers with pages
		return a.judge(answer, said, byToken)
	}
	answer, err := a.api.Do(ctx, c)
	return answer, said, err
}

// secretOf is what is secret in a route.
func secretOf(to channel.Destination) string {
	r, err := routeOf(to)
	if err != nil {
		return ""
	}
	return r.Token
}

// judge is the table of what Discord answers. Nil: the status says all.
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
			e.Of = channel.PerCredential // also of what stands before Discord, which knows addresses and no channels
		}
	case http.StatusUnauthorized:
		e.Credential = !byToken
	}
	return e
}

// rest is how long a bucket that is empty takes nothing.
func rest(h http.Header) time.Duration {
	if h.Get("X-RateLimit-Remaining") != "0" {
		return 0
	}
	return chatapi.RetryAfter(http.Header{"Retry-After": {h.Get("X-RateLimit-Reset-After")}}, time.Time{})
}

// Typing implements [channel.Typist]: it is shown for ten seconds.
func (a *Adapter) Typing(ctx context.Context, to channel.Destination) error {
	route, err := routeOf(to)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	_, _, err = a.call(ctx, to, false, chatapi.Call{Method: http.MethodPost, Path: "/channels/" + route.Channel + "/typing"})
	return err
}

// React implements [channel.Reactor]. A command has no message: that its answer is being made is shown already.
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

// application is what a bot belongs to.
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

// Register implements [channel.Registrar]: it makes the commands, and leaves those of other names alone. Discord tries the address at
// once, with good and with bad signatures.
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

// command is one that people give with a slash.
type command struct {
	Name        string   `json:"name"`
	Type        int      `json:"type"` // 1: written
	Description string   `json:"description"`
	Options     []option `json:"options,omitzero"`
	Contexts    []int    `json:"contexts"` // 0: in servers
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

// askCommand is the command whose text is the message itself.
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
