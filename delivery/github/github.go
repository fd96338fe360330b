package github

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/internal/chatapi"
)

// Fields of the credential.
const (
	accessToken   = "token"
	appID         = "app_id"
	privateKey    = "private_key"
	webhookSecret = "webhook_secret"
)

const (
	maxText  = 65_000 // characters; GitHub accepts 65,536, and the mark needs some
	pageSize = 100    // comments per request of a search
	maxPages = 5      // requests per search
	skew     = 2 * time.Minute
	// leastWait is how long to wait after a rate limit if the response does not say. GitHub's documentation asks for at least a minute.
	leastWait = time.Minute
)

// Adapter is the adapter of GitHub.
type Adapter struct {
	api    *chatapi.Client
	tokens *tokens
}

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
	api, err := chatapi.New("GitHub", "https://api.github.com", o)
	if err != nil {
		return nil, err
	}
	return &Adapter{api: api, tokens: &tokens{}}, nil
}

// Profile implements [channel.Adapter].
func (a *Adapter) Profile() channel.Profile {
	return channel.Profile{
		Kind: "github", Format: channel.GitHubText, Limit: maxText, Unit: channel.CodePoints, Once: channel.OnceByLook,
		Pace: []channel.Pace{
			{Of: channel.PerCredential, Events: 80, Per: time.Minute},
			{Of: channel.PerCredential, Events: 500, Per: time.Hour},
		},
		Secrets: []channel.Secret{
			{Name: accessToken, Counted: true, About: "a fine-grained personal access token that may write issues and pull requests; " +
				"or app_id and private_key"},
			{Name: appID, Counted: true, About: "of a GitHub App that may write issues and pull requests: its settings, App ID"},
			{Name: privateKey, About: "of the app: its settings, Private keys, the text of the PEM file"},
			{Name: webhookSecret, About: "of the webhook: of your own choice; by it GitHub's requests are known"},
		},
	}
}

// Destination implements [channel.Adapter]. It is an issue or a pull request, with all its threads.
func (a *Adapter) Destination(route json.RawMessage) (string, error) {
	r, err := parseRoute(route)
	if err != nil {
		return "", err
	}
	return strings.ToLower(r.Repo) + "#" + strconv.FormatInt(r.Number, 10), nil
}

// do sends a request with a bearer token.
func (a *Adapter) do(ctx context.Context, to channel.Destination, bearer string, c chatapi.Call) (chatapi.Answer, error) {
	c.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Accept": {"application/vnd.github+json"},
		"X-Github-Api-Version": {"2022-11-28"}}
	c.Secrets = chatapi.Secrets(to.Credential, bearer)
	c.Judge = a.judge
	return a.api.Do(ctx, c)
}

// call sends a request about a route, with the token of [Adapter.bearer].
func (a *Adapter) call(ctx context.Context, to channel.Destination, r Route, c chatapi.Call) error {
	bearer, failed := a.bearer(ctx, to, r)
	if failed != nil {
		return failed
	}
	_, err := a.do(ctx, to, bearer, c)
	e, ok := errors.AsType[*channel.Error](err)
	if ok && e.Credential && to.Credential[accessToken] == "" {
		// The installation's token was revoked. Whether the app itself still has access shows when the next token is requested.
		a.tokens.drop(keyOf(to, r.Installation))
		return &channel.Error{Outcome: channel.NotSent, Reason: "GitHub took back the token of the installation", Status: e.Status}
	}
	return err
}

// notSent returns the error of a preparatory request as that of a message: an ambiguous outcome becomes not sent, because the request for
// the message itself was not sent.
func notSent(err error) *channel.Error {
	e, ok := errors.AsType[*channel.Error](err)
	if !ok {
		return &channel.Error{Outcome: channel.NotSent, Reason: "GitHub gave the app no token", Cause: err}
	}
	if e.Outcome == channel.Ambiguous {
		e.Outcome = channel.NotSent
	}
	return e
}

// judge maps GitHub's response to an error. Nil: the HTTP status decides.
func (a *Adapter) judge(answer chatapi.Answer) *channel.Error {
	if answer.Status < 400 || answer.Status >= 500 || answer.Status == http.StatusRequestTimeout {
		return nil
	}
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(answer.Body, &said) // proxies in front of GitHub respond with HTML
	e := &channel.Error{Outcome: channel.Refused, Credential: answer.Status == http.StatusUnauthorized,
		Reason: fmt.Sprintf("GitHub: %s (%d)", cmp.Or(said.Message, http.StatusText(answer.Status)), answer.Status)}
	after := chatapi.RetryAfter(answer.Header, a.api.Now())
	none := answer.Header.Get("X-RateLimit-Remaining") == "0"
	limited := answer.Status == http.StatusTooManyRequests ||
		answer.Status == http.StatusForbidden && (after > 0 || none || strings.Contains(said.Message, "rate limit"))
	if !limited {
		return e
	}
	e.Outcome, e.Of = channel.Limited, channel.PerCredential
	if seconds, err := strconv.ParseInt(answer.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil && after == 0 && none {
		after = chatapi.Seconds(time.Unix(seconds, 0).Sub(a.api.Now()).Seconds())
	}
	e.After = cmp.Or(after, leastWait)
	return e
}

// mark returns the HTML comment that carries a delivery's key. Pages do not show it.
func mark(key string) string { return "<!-- sandjet:" + key + " -->" }

// body returns the JSON body of a comment, or an error if GitHub does not support the message.
func body(m channel.Message) (map[string]string, *channel.Error) {
	switch {
	case m.File != nil:
		return nil, chatapi.Refuse("GitHub takes no files in comments")
	case len(m.Buttons) > 0:
		return nil, chatapi.Refuse("GitHub has no buttons")
	case utf8.RuneCountInString(m.Text) > maxText:
		return nil, chatapi.Refuse("the text has %d characters, and at most %d are sent to GitHub", utf8.RuneCountInString(m.Text), maxText)
	}
	return map[string]string{"body": m.Text + "\n\n" + mark(m.Key)}, nil
}

// comment is a comment in GitHub's responses, with only the fields that are read.
type comment struct {
	ID   int64  `json:"id"`
	URL  string `json:"html_url"`
	Body string `json:"body"`
}

func (c comment) receipt() channel.Receipt {
	return channel.Receipt{ID: strconv.FormatInt(c.ID, 10), URL: c.URL}
}

// Send implements [channel.Adapter]. It posts to the issue or thread that the route names; m.Reply is ignored.
func (a *Adapter) Send(ctx context.Context, to channel.Destination, m channel.Message) (channel.Receipt, error) {
	r, err := parseRoute(to.Route)
	if err != nil {
		return channel.Receipt{}, chatapi.Refuse("%s", err)
	}
	text, failed := body(m)
	if failed != nil {
		return channel.Receipt{}, failed
	}
	var got comment
	if err := a.call(ctx, to, r, chatapi.Call{Method: http.MethodPost, Path: r.write(), JSON: text, Into: &got}); err != nil {
		return channel.Receipt{}, err
	}
	if got.ID == 0 {
		return channel.Receipt{}, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusCreated})
	}
	return got.receipt(), nil
}

// Edit implements [channel.Editor].
func (a *Adapter) Edit(ctx context.Context, to channel.Destination, id string, m channel.Message) error {
	r, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	if strings.Trim(id, "0123456789") != "" || id == "" {
		return chatapi.Refuse("%q is the id of no comment", id)
	}
	text, failed := body(m)
	if failed != nil {
		return failed
	}
	return a.call(ctx, to, r, chatapi.Call{Method: http.MethodPatch, Path: r.comment(id), JSON: text})
}

// React implements [channel.Reactor]. It reacts to the comment of the route, or to the issue if there is none.
func (a *Adapter) React(ctx context.Context, to channel.Destination) error {
	r, err := parseRoute(to.Route)
	if err != nil {
		return chatapi.Refuse("%s", err)
	}
	on := r.issue()
	if r.Comment != 0 {
		on = r.comment(strconv.FormatInt(r.Comment, 10))
	}
	return a.call(ctx, to, r, chatapi.Call{Method: http.MethodPost, Path: on + "/reactions", JSON: map[string]string{"content": "eyes"}})
}

// Check implements [channel.Checker].
func (a *Adapter) Check(ctx context.Context, to channel.Destination) (string, error) {
	if own := to.Credential[accessToken]; own != "" {
		var me struct {
			Login string `json:"login"`
		}
		_, err := a.do(ctx, to, own, chatapi.Call{Method: http.MethodGet, Path: "/user", Into: &me})
		return "the user " + me.Login, err
	}
	if to.Credential[appID] == "" {
		_, failed := a.bearer(ctx, to, Route{})
		return "", failed
	}
	jwt, failed := a.jwt(to)
	if failed != nil {
		return "", failed
	}
	var me struct {
		Name string `json:"name"`
	}
	_, err := a.do(ctx, to, jwt, chatapi.Call{Method: http.MethodGet, Path: "/app", Into: &me})
	return "the app " + me.Name, err
}

// Find implements [channel.Finder]. It reads the comments updated from skew before since.
func (a *Adapter) Find(ctx context.Context, to channel.Destination, key string, since time.Time) (channel.Receipt, bool, error) {
	r, err := parseRoute(to.Route)
	if err != nil {
		return channel.Receipt{}, false, chatapi.Refuse("%s", err)
	}
	query := url.Values{"since": {since.Add(-skew).UTC().Format(time.RFC3339)}, "per_page": {strconv.Itoa(pageSize)}}
	for page := range maxPages {
		query.Set("page", strconv.Itoa(page+1))
		var list []comment
		err := a.call(ctx, to, r, chatapi.Call{Method: http.MethodGet, Path: r.comments(), Query: query, Into: &list})
		if err != nil {
			return channel.Receipt{}, false, unseen(err)
		}
		if list == nil {
			return channel.Receipt{}, false, a.api.NotUnderstood(chatapi.Answer{Status: http.StatusOK})
		}
		for _, c := range list {
			if strings.Contains(c.Body, mark(key)) && c.ID != 0 {
				return c.receipt(), true, nil
			}
		}
		if len(list) < pageSize {
			return channel.Receipt{}, false, nil
		}
	}
	return channel.Receipt{}, false, &channel.Error{Outcome: channel.Ambiguous,
		Reason: fmt.Sprintf("more than %d comments have come since: too many to look through", maxPages*pageSize)}
}

// unseen returns the error of a failed search. A refused search says nothing about the message, so the outcome becomes ambiguous.
func unseen(err error) error {
	e, ok := errors.AsType[*channel.Error](err)
	if !ok || e.Outcome != channel.Refused {
		return err
	}
	return &channel.Error{Outcome: channel.Ambiguous, Reason: "it cannot be looked for: " + e.Reason, Status: e.Status, Cause: e.Cause}
}
