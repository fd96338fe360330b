// Package slacktest is a test double of Slack's Web API: it stores messages with their metadata, lists them page by page, and refuses what
// Slack refuses.
package slacktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double.
type Options struct {
	// Token is the only token that is accepted. Empty: any.
	Token string
	// Archived are channels that accept no messages.
	Archived []string
	// PerChannel is how many messages a channel accepts in each Per. 0: any number.
	PerChannel int
	Per        time.Duration
	// Page is how many messages a search returns at most. 0: 200.
	Page int
	Now  func() time.Time
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *chatfake.Server {
	s := &chatfake.Server{Now: o.Now, Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			r := chatfake.JSON(http.StatusTooManyRequests, map[string]any{"ok": false, "error": "ratelimited", "detail": echo})
			if after > 0 {
				r.Header = http.Header{"Retry-After": {strconv.Itoa(int(after.Seconds()))}}
			}
			return r
		},
		Unauthorized: func(echo string) chatfake.Reply {
			return chatfake.JSON(http.StatusOK, map[string]any{"ok": false, "error": "invalid_auth", "detail": echo})
		},
		ErrorBody: func(echo string) chatfake.Reply { return failed("channel_not_found " + echo) },
	}}
	s.Service = &service{Options: o, keep: s}
	return s
}

func failed(why string) chatfake.Reply {
	return chatfake.JSON(http.StatusOK, map[string]any{"ok": false, "error": why})
}

type service struct {
	Options

	keep *chatfake.Server
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		s.keep.Show(w, r)
		return
	}
	s.answer(r).Write(w)
}

// arguments are the arguments of all methods.
type arguments struct {
	Channel   string `json:"channel"`
	Thread    string `json:"thread_ts"`
	Stamp     string `json:"ts"`
	Timestamp string `json:"timestamp"`
	Name      string `json:"name"`
	Text      string `json:"text"`
	Blocks    *[]struct {
		Type     string    `json:"type"`
		Text     *text     `json:"text"`
		Elements []element `json:"elements"`
	} `json:"blocks"`
	Links    *bool `json:"unfurl_links"`
	Media    *bool `json:"unfurl_media"`
	Metadata *struct {
		Type    string         `json:"event_type"`
		Payload map[string]any `json:"event_payload"`
	} `json:"metadata"`
}

type text struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type element struct {
	Type   string `json:"type"`
	Action string `json:"action_id"`
	Value  string `json:"value"`
	Text   text   `json:"text"`
	Style  string `json:"style"`
}

func (s *service) answer(r *http.Request) chatfake.Reply {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok || token == "":
		return failed("not_authed")
	case s.Token != "" && token != s.Token:
		return failed("invalid_auth")
	}
	var a arguments
	if r.Method == http.MethodPost && r.URL.Path != "/auth.test" {
		if why := a.read(r); why != "" {
			return failed(why)
		}
	}
	switch r.URL.Path {
	case "/auth.test":
		return done(map[string]any{"team": "Acme", "team_id": "T0001", "user": "sandjet", "user_id": "U0BOT"})
	case "/chat.postMessage":
		return s.post(a)
	case "/chat.update":
		return s.update(a)
	case "/reactions.add":
		return s.react(a)
	case "/conversations.history", "/conversations.replies":
		return s.look(r)
	default:
		return failed("unknown_method")
	}
}

// read reads the arguments of a request: JSON, or a form whose blocks and metadata are JSON. It returns Slack's error code; empty: none.
func (a *arguments) read(r *http.Request) (why string) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if kind := r.Header.Get("Content-Type"); strings.HasPrefix(kind, "application/x-www-form-urlencoded") {
		if err := r.ParseForm(); err != nil {
			return "invalid_form_data"
		}
		values := map[string]any{}
		for name := range r.PostForm {
			value := r.PostForm.Get(name)
			if values[name] = value; json.Valid([]byte(value)) && strings.ContainsAny(value[:1], "[{tf") {
				values[name] = json.RawMessage(value)
			}
		}
		text, err := json.Marshal(values)
		if err != nil {
			return "invalid_form_data"
		}
		d = json.NewDecoder(bytes.NewReader(text)) // the methods that list messages have arguments of their own
	}
	if err := d.Decode(a); err != nil {
		return "invalid_json: " + err.Error()
	}
	return ""
}

func done(with map[string]any) chatfake.Reply {
	with["ok"] = true
	return chatfake.JSON(http.StatusOK, with)
}

func (s *service) channel(id string) string {
	switch {
	case id == "" || strings.IndexByte("CGD", id[0]) < 0:
		return "channel_not_found"
	case slices.Contains(s.Archived, id):
		return "is_archived"
	}
	return ""
}

func place(channel, thread string) string {
	if thread == "" {
		return channel
	}
	return channel + ":" + thread
}

// content copies the content of a message into m and checks it as Slack does. It returns Slack's error code; empty: none.
func content(a arguments, m *chatfake.Message) string {
	m.Text = a.Text
	switch {
	case a.Text == "" && a.Blocks == nil:
		return "no_text"
	case len(utf16.Encode([]rune(a.Text))) > 40_000:
		return "msg_too_long"
	}
	if a.Metadata != nil {
		key, ok := a.Metadata.Payload["delivery"].(string)
		if a.Metadata.Type == "" || !ok {
			return "invalid_metadata_schema"
		}
		m.Nonce = key
	}
	if a.Blocks == nil {
		return ""
	}
	for _, b := range *a.Blocks {
		if b.Type == "section" && (b.Text == nil || b.Text.Text == "" || len(utf16.Encode([]rune(b.Text.Text))) > 3000) {
			return "invalid_blocks"
		}
		actions := map[string]bool{}
		for _, e := range b.Elements {
			style := e.Style == "" || e.Style == "primary" || e.Style == "danger"
			if e.Type != "button" || e.Text.Type != "plain_text" || len(e.Text.Text) > 75 || len(e.Value) > 2000 || actions[e.Action] || !style {
				return "invalid_blocks"
			}
			actions[e.Action] = true
			m.Press = append(m.Press, chatfake.Button{Label: e.Text.Text, Data: e.Value})
		}
	}
	return ""
}

func (s *service) post(a arguments) chatfake.Reply {
	if why := s.channel(a.Channel); why != "" {
		return failed(why)
	}
	m := chatfake.Message{Place: place(a.Channel, a.Thread)}
	if why := content(a, &m); why != "" {
		return failed(why)
	}
	if s.PerChannel > 0 {
		if _, after, ok := s.keep.Take(a.Channel, s.PerChannel, s.Per); !ok {
			return s.keep.Words.TooMany(after+time.Second, "")
		}
	}
	m.ID = fmt.Sprintf("1764000000.%06d", s.keep.NextID())
	s.keep.Add(m)
	return done(map[string]any{"channel": a.Channel, "ts": m.ID, "message": map[string]any{"text": m.Text}})
}

// at returns the place of a channel's message, with its thread; empty if there is no such message.
func (s *service) at(channel, id string) string {
	for _, m := range s.keep.Messages() {
		if of, _, _ := strings.Cut(m.Place, ":"); of == channel && m.ID == id {
			return m.Place
		}
	}
	return ""
}

func (s *service) update(a arguments) chatfake.Reply {
	if why := s.channel(a.Channel); why != "" {
		return failed(why)
	}
	var m chatfake.Message
	if why := content(a, &m); why != "" {
		return failed(why)
	}
	if !s.keep.Change(s.at(a.Channel, a.Stamp), a.Stamp, func(kept *chatfake.Message) {
		kept.Text, kept.Edits = m.Text, kept.Edits+1
		if a.Blocks != nil {
			kept.Press = m.Press
		}
	}) {
		return failed("message_not_found")
	}
	return done(map[string]any{"channel": a.Channel, "ts": a.Stamp, "text": a.Text})
}

func (s *service) react(a arguments) chatfake.Reply {
	if why := s.channel(a.Channel); why != "" {
		return failed(why)
	}
	if a.Name != "eyes" || a.Timestamp == "" {
		return failed("invalid_name")
	}
	mark := chatfake.Mark{Kind: "reaction", Place: a.Channel, On: a.Timestamp, What: a.Name}
	if slices.Contains(s.keep.Marks(), mark) {
		return failed("already_reacted")
	}
	s.keep.Note(mark)
	return done(map[string]any{})
}

// look lists the messages of a channel or of a thread, newest first, page by page.
func (s *service) look(r *http.Request) chatfake.Reply {
	q := r.URL.Query()
	maps.Copy(q, r.PostForm)
	channel, thread := q.Get("channel"), q.Get("ts")
	if why := s.channel(channel); why != "" {
		return failed(why)
	}
	if strings.HasSuffix(r.URL.Path, "replies") != (thread != "") {
		return failed("invalid_arguments")
	}
	oldest, err := strconv.ParseFloat(q.Get("oldest"), 64)
	if err != nil {
		return failed("invalid_ts_oldest")
	}
	all := []map[string]any{}
	for _, m := range s.keep.Messages() {
		if m.Place != place(channel, thread) || float64(m.At.UnixNano())/1e9 <= oldest {
			continue
		}
		shown := map[string]any{"type": "message", "ts": m.ID, "text": m.Text}
		if m.Nonce != "" && q.Get("include_all_metadata") == "true" {
			shown["metadata"] = map[string]any{"event_type": "sandjet_delivery", "event_payload": map[string]any{"delivery": m.Nonce}}
		}
		all = append([]map[string]any{shown}, all...)
	}
	size := 200
	if s.Page > 0 {
		size = s.Page
	}
	from := 0
	if c := q.Get("cursor"); c != "" {
		if from, err = strconv.Atoi(c); err != nil || from > len(all) {
			return failed("invalid_cursor")
		}
	}
	end := min(from+size, len(all))
	next := ""
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return done(map[string]any{"messages": all[from:end], "has_more": next != "", "response_metadata": map[string]any{"next_cursor": next}})
}
