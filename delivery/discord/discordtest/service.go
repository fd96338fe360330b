// Package discordtest is a test double of Discord's HTTP API and of the interactions that Discord posts: it stores messages with their
// nonces, applies rate limits, expires the tokens of commands, and signs interactions.
package discordtest

import (
	"cmp"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double. The zero value accepts any token and every channel.
type Options struct {
	// Token is the only bot token that is accepted. Empty: any.
	Token string
	// Key signs interactions. Nil: a fixed key, for tests only.
	Key ed25519.PrivateKey
	// Hidden are channels to which the bot has no access; Gone are deleted channels.
	Hidden, Gone []string
	// PerChannel is how many messages a channel accepts in each Per. 0: any number.
	PerChannel int
	Per        time.Duration
	Now        func() time.Time
}

// Application is the id of the bot's application.
const Application = "1290000000000000001"

// epoch is the time from which Discord's ids count, in Unix milliseconds.
const epoch = 1420070400000

// Life is how long the token of a command is accepted. NonceLife is how long a nonce is remembered.
const (
	Life      = 15 * time.Minute
	NonceLife = 5 * time.Minute
)

// Service is a double.
type Service struct {
	*chatfake.Server

	o        Options
	mu       sync.Mutex
	commands map[string]*given // by token
}

// given is a slash command that a person gave.
type given struct {
	id, channel string
	at          time.Time
	answer      string // id of the message that answers it; empty: not answered yet
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *Service {
	if o.Key == nil {
		o.Key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Service{o: o, commands: map[string]*given{}}
	s.Server = &chatfake.Server{Now: o.Now, Service: http.HandlerFunc(s.serve), Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			body := map[string]any{"message": "You are being rate limited. " + echo, "global": false}
			if after > 0 {
				body["retry_after"] = after.Seconds()
			}
			r := chatfake.JSON(http.StatusTooManyRequests, body)
			r.Header = http.Header{"X-Ratelimit-Scope": {"user"}}
			return r
		},
		Unauthorized: func(echo string) chatfake.Reply {
			return problem(http.StatusUnauthorized, 0, "401: Unauthorized "+echo)
		},
	}}
	return s
}

// PublicKey returns the key that verifies the double's requests, in hexadecimal.
func (s *Service) PublicKey() string {
	public, ok := s.o.Key.Public().(ed25519.PublicKey)
	if !ok {
		return ""
	}
	return hex.EncodeToString(public)
}

func problem(status, code int, message string) chatfake.Reply {
	return chatfake.JSON(status, map[string]any{"message": message, "code": code})
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		s.Show(w, r)
		return
	}
	s.route(r).Write(w)
}

func (s *Service) route(r *http.Request) chatfake.Reply {
	if !strings.HasPrefix(r.Header.Get("User-Agent"), "DiscordBot (") {
		return problem(http.StatusForbidden, 40333, "internal network error") // Discord's response to other user agents
	}
	parts := split(r)
	if parts[0] == "webhooks" && len(parts) >= 3 {
		return s.webhook(r, parts[1], parts[2], parts[3:])
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bot ")
	if !ok || s.o.Token != "" && token != s.o.Token {
		return problem(http.StatusUnauthorized, 0, "401: Unauthorized")
	}
	switch {
	case parts[0] == "applications":
		return s.application(r, parts[1:])
	case parts[0] == "channels" && len(parts) >= 3:
		return s.channel(r, parts[1], parts[2:])
	}
	return problem(http.StatusNotFound, 0, "404: Not Found")
}

// split returns the unescaped segments of a request's path.
func split(r *http.Request) []string {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, p := range parts {
		if plain, err := url.PathUnescape(p); err == nil {
			parts[i] = plain
		}
	}
	return parts
}

func (s *Service) application(r *http.Request, rest []string) chatfake.Reply {
	switch path := r.Method + " " + strings.Join(rest, "/"); path {
	case "GET @me":
		return chatfake.JSON(http.StatusOK, map[string]any{"id": Application, "name": "Sandjet", "verify_key": s.PublicKey()})
	case "PATCH @me":
		var body struct {
			URL string `json:"interactions_endpoint_url"`
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || !strings.HasPrefix(body.URL, "https://") {
			return problem(http.StatusBadRequest, 50035, "Invalid Form Body")
		}
		s.Note(chatfake.Mark{Kind: "webhook", What: body.URL})
		return chatfake.JSON(http.StatusOK, map[string]any{"id": Application})
	case "POST " + Application + "/commands":
		var body struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}
		if json.NewDecoder(r.Body).Decode(&body) != nil || body.Name == "" || len(body.Name) > 32 || body.Description == "" ||
			len(body.Description) > 100 || strings.ToLower(body.Name) != body.Name {
			return problem(http.StatusBadRequest, 50035, "Invalid Form Body")
		}
		s.Note(chatfake.Mark{Kind: "command", What: body.Name})
		return chatfake.JSON(http.StatusCreated, map[string]any{"id": s.id(), "name": body.Name})
	}
	return problem(http.StatusNotFound, 0, "404: Not Found")
}

// id returns a new id; like Discord's, ids increase with time.
func (s *Service) id() string {
	return strconv.FormatInt((s.o.Now().UnixMilli()-epoch)<<22|int64(s.NextID()&0x3fffff), 10)
}

func (s *Service) channel(r *http.Request, id string, rest []string) chatfake.Reply {
	switch {
	case slices.Contains(s.o.Gone, id):
		return problem(http.StatusNotFound, 10003, "Unknown Channel")
	case slices.Contains(s.o.Hidden, id):
		return problem(http.StatusForbidden, 50001, "Missing Access")
	}
	switch path := r.Method + " " + rest[0]; {
	case path == "POST typing" && len(rest) == 1:
		s.Note(chatfake.Mark{Kind: "typing", Place: id})
		return chatfake.Reply{Status: http.StatusNoContent}
	case path == "GET messages" && len(rest) == 1:
		return s.list(id, r.URL.Query().Get("after"))
	case path == "POST messages" && len(rest) == 1:
		return s.post(r, id)
	case path == "PATCH messages" && len(rest) == 2:
		return s.edit(r, id, rest[1])
	case path == "PUT messages" && len(rest) == 5 && rest[2] == "reactions" && rest[4] == "@me":
		s.Note(chatfake.Mark{Kind: "reaction", Place: id, On: rest[1], What: rest[3]})
		return chatfake.Reply{Status: http.StatusNoContent}
	}
	return problem(http.StatusNotFound, 0, "404: Not Found")
}

// list returns the messages of a channel after an id, with the placeholders of pending answers.
func (s *Service) list(channel, after string) chatfake.Reply {
	from, err := strconv.ParseInt(cmp.Or(after, "0"), 10, 64)
	if err != nil {
		return problem(http.StatusBadRequest, 50035, "Invalid Form Body")
	}
	s.mu.Lock()
	answers := map[string]string{}
	list := []map[string]any{}
	for _, g := range s.commands {
		if g.channel == channel && g.answer == "" {
			list = append(list, map[string]any{"id": g.id + "0", "channel_id": channel, "content": "", "flags": 128,
				"interaction_metadata": map[string]any{"id": g.id}})
		}
		answers[g.answer] = g.id
	}
	s.mu.Unlock()
	for _, m := range s.Messages() {
		n, err := strconv.ParseInt(m.ID, 10, 64)
		if err != nil || m.Place != channel || n <= from {
			continue
		}
		entry := map[string]any{"id": m.ID, "channel_id": channel, "content": m.Text, "flags": 0}
		if of := answers[m.ID]; of != "" {
			entry["interaction_metadata"] = map[string]any{"id": of}
		}
		list = append(list, entry)
	}
	return chatfake.JSON(http.StatusOK, list)
}

// form is the body of a message, sent as JSON or in a multipart form.
type form struct {
	Content    string          `json:"content"`
	Nonce      string          `json:"nonce"`
	Enforce    bool            `json:"enforce_nonce"`
	Mentions   json.RawMessage `json:"allowed_mentions"`
	Components []struct {
		Type       int `json:"type"`
		Components []struct {
			Type   int    `json:"type"`
			Style  int    `json:"style"`
			Label  string `json:"label"`
			Custom string `json:"custom_id"`
		} `json:"components"`
	} `json:"components"`
	Reference struct {
		ID     string `json:"message_id"`
		Needed bool   `json:"fail_if_not_exists"`
	} `json:"message_reference"`
	Attachments []struct {
		ID   int    `json:"id"`
		Name string `json:"filename"`
	} `json:"attachments"`
}

// read reads a message and checks it as Discord does. It also requires that the message mentions no one, as Sandjet's messages must.
func read(r *http.Request) (m chatfake.Message, f form, err error) {
	body := r.Body
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
		if err := r.ParseMultipartForm(64 << 20); err != nil { //nolint:gosec // chatfake has bounded the body
			return m, f, fmt.Errorf("the form cannot be read: %w", err)
		}
		body = io.NopCloser(strings.NewReader(r.FormValue("payload_json")))
		part, head, err := r.FormFile("files[0]")
		if err != nil {
			return m, f, fmt.Errorf("there is no file: %w", err)
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return m, f, fmt.Errorf("the file cannot be read: %w", err)
		}
		m.File = &chatfake.File{Name: head.Filename, Type: head.Header.Get("Content-Type"), Data: data}
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return m, f, fmt.Errorf("invalid JSON: %w", err)
	}
	m.Text, m.Nonce, m.Reply = strings.TrimSpace(f.Content), f.Nonce, f.Reference.ID
	switch {
	case len(utf16.Encode([]rune(f.Content))) > 2000:
		return m, f, fmt.Errorf("content: Must be 2000 or fewer in length")
	case m.Text == "" && m.File == nil:
		return m, f, fmt.Errorf("an empty message cannot be sent")
	case len(f.Nonce) > 25:
		return m, f, fmt.Errorf("nonce: Must be 25 or fewer in length")
	case string(f.Mentions) != `{"parse":[]}`:
		return m, f, fmt.Errorf("the message may call people")
	case m.File != nil && (len(f.Attachments) != 1 || f.Attachments[0].Name != m.File.Name):
		return m, f, fmt.Errorf("attachments: does not name the file")
	}
	for _, row := range f.Components {
		for _, b := range row.Components {
			if b.Type != 2 || b.Style < 1 || b.Style > 4 || b.Label == "" || b.Custom == "" || len(b.Custom) > 100 || len(row.Components) > 5 {
				return m, f, fmt.Errorf("components: BASE_TYPE_BAD_LENGTH")
			}
			m.Press = append(m.Press, chatfake.Button{Label: b.Label, Data: b.Custom})
		}
	}
	return m, f, nil
}

func (s *Service) post(r *http.Request, channel string) chatfake.Reply {
	m, f, err := read(r)
	if err != nil {
		return problem(http.StatusBadRequest, 50035, "Invalid Form Body: "+err.Error())
	}
	header := http.Header{}
	if s.o.PerChannel > 0 {
		left, after, ok := s.Take(channel, s.o.PerChannel, s.o.Per)
		if !ok {
			return s.Words.TooMany(after, "")
		}
		header.Set("X-RateLimit-Limit", strconv.Itoa(s.o.PerChannel))
		header.Set("X-RateLimit-Remaining", strconv.Itoa(left))
		header.Set("X-RateLimit-Reset-After", strconv.FormatFloat(after.Seconds(), 'f', 3, 64))
	}
	m.ID, m.Place = s.id(), channel
	window := NonceLife
	if !f.Enforce {
		window = 0
	}
	m, _ = s.AddOnce(m, window)
	reply := chatfake.JSON(http.StatusOK, map[string]any{"id": m.ID, "channel_id": channel, "content": m.Text})
	reply.Header = header
	return reply
}

func (s *Service) edit(r *http.Request, channel, id string) chatfake.Reply {
	m, _, err := read(r)
	if err != nil {
		return problem(http.StatusBadRequest, 50035, "Invalid Form Body: "+err.Error())
	}
	if !s.Change(channel, id, func(kept *chatfake.Message) {
		kept.Text, kept.Press, kept.Edits = m.Text, m.Press, kept.Edits+1
	}) {
		return problem(http.StatusNotFound, 10008, "Unknown Message")
	}
	return chatfake.JSON(http.StatusOK, map[string]any{"id": id, "channel_id": channel})
}

// webhook handles the requests that are authorized by the token of a command.
func (s *Service) webhook(r *http.Request, app, token string, rest []string) chatfake.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.commands[token]
	if g == nil {
		if g = learn(token); g != nil {
			s.commands[token] = g
		}
	}
	switch {
	case g == nil || app != Application:
		return problem(http.StatusNotFound, 10015, "Unknown Webhook")
	case s.o.Now().Sub(g.at) >= Life:
		return problem(http.StatusUnauthorized, 50027, "Invalid Webhook Token")
	case r.Method == http.MethodPost && len(rest) == 0 && r.URL.Query().Get("wait") == "true",
		r.Method == http.MethodPatch && len(rest) == 2 && rest[1] == "@original" && g.answer == "":
		m, _, err := read(r)
		if err != nil || m.Nonce != "" {
			return problem(http.StatusBadRequest, 50035, fmt.Sprint("Invalid Form Body: ", err))
		}
		m.ID, m.Place = s.id(), g.channel
		s.Add(m)
		if len(rest) > 0 {
			g.answer = m.ID
		}
		return chatfake.JSON(http.StatusOK, map[string]any{"id": m.ID, "channel_id": g.channel})
	case r.Method == http.MethodPatch && len(rest) == 2:
		id := rest[1]
		if id == "@original" {
			id = g.answer
		}
		return s.edit(r, g.channel, id)
	}
	return problem(http.StatusNotFound, 0, "404: Not Found")
}
