// Package telegramtest is a test double of Telegram's Bot API: it stores messages, parses HTML as strictly as Telegram does, and refuses
// what Telegram refuses.
package telegramtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double. The zero value accepts any token and every chat.
type Options struct {
	// Token is the only bot token that is accepted. Empty: any that has the form of one.
	Token string
	// Blocked are private chats whose user has blocked the bot. Moved are groups that have become supergroups, with the new id.
	Blocked []int64
	Moved   map[int64]int64
	// PerChat is how many messages a chat accepts in each Per. 0: any number.
	PerChat int
	Per     time.Duration
	Now     func() time.Time
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *chatfake.Server {
	s := &chatfake.Server{Now: o.Now, Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			body := map[string]any{"ok": false, "error_code": 429, "description": "Too Many Requests: " + echo}
			if after > 0 {
				body["parameters"] = map[string]any{"retry_after": int(after.Seconds())}
			}
			return chatfake.JSON(http.StatusTooManyRequests, body)
		},
		Unauthorized: func(echo string) chatfake.Reply { return failed(http.StatusUnauthorized, "Unauthorized "+echo, nil) },
		ErrorBody: func(echo string) chatfake.Reply {
			return chatfake.JSON(http.StatusOK, map[string]any{"ok": false, "error_code": 400, "description": "Bad Request: chat not found " + echo})
		},
	}}
	s.Service = &service{Options: o, keep: s}
	return s
}

func failed(code int, description string, parameters map[string]any) chatfake.Reply {
	body := map[string]any{"ok": false, "error_code": code, "description": description}
	if parameters != nil {
		body["parameters"] = parameters
	}
	return chatfake.JSON(code, body)
}

func bad(format string, args ...any) chatfake.Reply {
	return failed(http.StatusBadRequest, "Bad Request: "+fmt.Sprintf(format, args...), nil)
}

func done(result any) chatfake.Reply {
	return chatfake.JSON(http.StatusOK, map[string]any{"ok": true, "result": result})
}

type service struct {
	Options

	keep *chatfake.Server
}

// params are the parameters of a method; values other than strings are JSON.
type params map[string]string

func (p params) number(name string) int64 {
	n, err := strconv.ParseInt(p[name], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		s.keep.Show(w, r)
		return
	}
	s.answer(r).Write(w)
}

func (s *service) answer(r *http.Request) chatfake.Reply {
	token, method, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if !ok || !strings.HasPrefix(r.URL.Path, "/bot") || !strings.Contains(token, ":") {
		return failed(http.StatusNotFound, "Not Found", nil)
	}
	if s.Token != "" && token != s.Token {
		return failed(http.StatusUnauthorized, "Unauthorized", nil)
	}
	p, file, err := read(r)
	if err != nil {
		return bad("%s", err)
	}
	methods := map[string]struct {
		known string // names of its parameters, separated by spaces
		do    func(params, *chatfake.File) chatfake.Reply
	}{
		"getMe": {"", func(params, *chatfake.File) chatfake.Reply {
			return done(map[string]any{"id": 123456789, "is_bot": true, "first_name": "Sandjet", "username": "sandjet_bot"})
		}},
		"setWebhook":  {"url secret_token allowed_updates", s.webhook},
		"sendMessage": {"chat_id message_thread_id text parse_mode link_preview_options reply_parameters reply_markup", s.send},
		"sendDocument": {"chat_id message_thread_id caption parse_mode reply_parameters reply_markup",
			s.send},
		"editMessageText":     {"chat_id message_id text parse_mode link_preview_options reply_markup", s.edit},
		"setMessageReaction":  {"chat_id message_id reaction", s.react},
		"sendChatAction":      {"chat_id message_thread_id action", s.action},
		"getFile":             {"file_id", s.file},
		"answerCallbackQuery": {"callback_query_id", func(params, *chatfake.File) chatfake.Reply { return done(true) }},
	}
	m, known := methods[method]
	if !known {
		return failed(http.StatusNotFound, "Not Found: method not found", nil)
	}
	for name := range maps.Keys(p) {
		if !slices.Contains(strings.Fields(m.known), name) {
			return bad("the double does not know the parameter %q of %s", name, method)
		}
	}
	if p["chat_id"] != "" || strings.Contains(m.known, "chat_id") {
		if reply, ok := s.chat(p); !ok {
			return reply
		}
	}
	return m.do(p, file)
}

// chat checks the chat that a method names. If the chat is unknown, blocked or moved, it returns Telegram's error and false.
func (s *service) chat(p params) (chatfake.Reply, bool) {
	id := p.number("chat_id")
	switch {
	case id == 0 && !strings.HasPrefix(p["chat_id"], "@"):
		return bad("chat not found"), false
	case slices.Contains(s.Blocked, id):
		return failed(http.StatusForbidden, "Forbidden: bot was blocked by the user", nil), false
	case s.Moved[id] != 0:
		return failed(http.StatusBadRequest, "Bad Request: group chat was upgraded to a supergroup chat",
			map[string]any{"migrate_to_chat_id": s.Moved[id]}), false
	}
	return chatfake.Reply{}, true
}

// read reads the parameters of a request: JSON, or a multipart form with a file.
func read(r *http.Request) (params, *chatfake.File, error) {
	p := params{}
	kind := r.Header.Get("Content-Type")
	switch {
	case strings.HasPrefix(kind, "multipart/form-data"):
		if err := r.ParseMultipartForm(64 << 20); err != nil { //nolint:gosec // chatfake has bounded the body
			return nil, nil, fmt.Errorf("the form cannot be read: %w", err)
		}
		for k, v := range r.MultipartForm.Value {
			p[k] = v[0]
		}
		f, head, err := r.FormFile("document")
		if err != nil {
			return nil, nil, fmt.Errorf("there is no document in the request: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		data, err := io.ReadAll(f)
		return p, &chatfake.File{Name: head.Filename, Type: head.Header.Get("Content-Type"), Data: data}, err
	case kind == "application/json":
		var values map[string]json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&values); err != nil {
			return nil, nil, fmt.Errorf("can't parse JSON object: %w", err)
		}
		for k, v := range values {
			var text string
			if json.Unmarshal(v, &text) != nil {
				text = string(v)
			}
			p[k] = text
		}
	}
	return p, nil, nil
}

func place(p params) string {
	if t := p["message_thread_id"]; t != "" {
		return p["chat_id"] + ":" + t
	}
	return p["chat_id"]
}

func (s *service) send(p params, file *chatfake.File) chatfake.Reply {
	raw, limit := p["text"], 4096
	if file != nil {
		raw, limit = p["caption"], 1024
	}
	m := chatfake.Message{Place: place(p), File: file}
	if reply, ok := s.text(p, raw, limit, file == nil, &m); !ok {
		return reply
	}
	if text := p["reply_parameters"]; text != "" {
		var answers struct {
			Message int64 `json:"message_id"`
			Anyway  bool  `json:"allow_sending_without_reply"`
		}
		if json.Unmarshal([]byte(text), &answers) != nil || answers.Message == 0 {
			return bad("can't parse reply parameters JSON object")
		}
		m.Reply = strconv.FormatInt(answers.Message, 10)
	}
	if s.PerChat > 0 {
		if _, after, ok := s.keep.Take(p["chat_id"], s.PerChat, s.Per); !ok {
			return s.keep.Words.TooMany(after+time.Second, "retry later")
		}
	}
	id := s.keep.NextID()
	m.ID = strconv.Itoa(id)
	s.keep.Add(m)
	return done(map[string]any{"message_id": id, "date": 1764000000, "chat": map[string]any{"id": p.number("chat_id")}, "text": m.Text})
}

// text copies the text and the buttons of a message into m and checks them as Telegram does. If they are invalid, it returns Telegram's
// error and false.
func (s *service) text(p params, raw string, limit int, needed bool, m *chatfake.Message) (chatfake.Reply, bool) {
	m.Text, m.Plain = raw, p["parse_mode"] == ""
	switch p["parse_mode"] {
	case "":
	case "HTML":
		var err error
		if m.Text, err = ParseHTML(raw); err != nil {
			return bad("can't parse entities: %s", err), false
		}
	default:
		return bad("unsupported parse_mode"), false
	}
	m.Text = strings.TrimSpace(m.Text)
	if len(utf16.Encode([]rune(m.Text))) > limit {
		return bad("message is too long"), false
	}
	if m.Text == "" && needed {
		return bad("message text is empty"), false
	}
	if text := p["reply_markup"]; text != "" {
		var markup struct {
			Rows [][]struct {
				Text string `json:"text"`
				Data string `json:"callback_data"`
			} `json:"inline_keyboard"`
		}
		if json.Unmarshal([]byte(text), &markup) != nil {
			return bad("can't parse reply keyboard markup JSON object"), false
		}
		for _, b := range slices.Concat(markup.Rows...) {
			if b.Text == "" || b.Data == "" || len(b.Data) > 64 {
				return bad("BUTTON_DATA_INVALID"), false
			}
			m.Press = append(m.Press, chatfake.Button{Label: b.Text, Data: b.Data})
		}
	}
	return chatfake.Reply{}, true
}

func (s *service) edit(p params, _ *chatfake.File) chatfake.Reply {
	var m chatfake.Message
	if reply, ok := s.text(p, p["text"], 4096, true, &m); !ok {
		return reply
	}
	var at string // a message is identified by its chat and id, in whatever topic it is
	for _, kept := range s.keep.Messages() {
		if chat, _, _ := strings.Cut(kept.Place, ":"); chat == p["chat_id"] && kept.ID == p["message_id"] {
			at = kept.Place
		}
	}
	same := false
	if !s.keep.Change(at, p["message_id"], func(kept *chatfake.Message) {
		if same = kept.Text == m.Text && slices.Equal(kept.Press, m.Press); !same {
			kept.Text, kept.Plain, kept.Press, kept.Edits = m.Text, m.Plain, m.Press, kept.Edits+1
		}
	}) {
		return bad("message to edit not found")
	}
	if same {
		return bad("message is not modified: specified new message content and reply markup are exactly the same")
	}
	return done(map[string]any{"message_id": p.number("message_id"), "chat": map[string]any{"id": p.number("chat_id")}})
}

func (s *service) react(p params, _ *chatfake.File) chatfake.Reply {
	var list []struct {
		Type  string `json:"type"`
		Emoji string `json:"emoji"`
	}
	if json.Unmarshal([]byte(p["reaction"]), &list) != nil || len(list) != 1 || list[0].Type != "emoji" || list[0].Emoji != "👀" {
		return bad("REACTION_INVALID")
	}
	s.keep.Note(chatfake.Mark{Kind: "reaction", Place: place(p), On: p["message_id"], What: list[0].Emoji})
	return done(true)
}

func (s *service) action(p params, _ *chatfake.File) chatfake.Reply {
	if p["action"] != "typing" {
		return bad("wrong parameter action in request")
	}
	s.keep.Note(chatfake.Mark{Kind: "typing", Place: place(p)})
	return done(true)
}

// file returns the path of a file, see [PathOf].
func (s *service) file(p params, _ *chatfake.File) chatfake.Reply {
	id := p["file_id"]
	switch {
	case id == "" || strings.ContainsAny(id, "/?#") || strings.HasPrefix(id, "http"):
		return bad("invalid file_id")
	case strings.HasPrefix(id, "big"):
		return bad("file is too big")
	}
	return done(map[string]any{"file_id": id, "file_unique_id": "u" + id, "file_path": "documents/" + id})
}

// PathOf returns the path at which the double serves a file, if it was stored there with [chatfake.Server.Put].
func PathOf(token, id string) string { return "/file/bot" + token + "/documents/" + id }

func (s *service) webhook(p params, _ *chatfake.File) chatfake.Reply {
	secret := p["secret_token"]
	if len(secret) > 256 || strings.ContainsFunc(secret, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return bad("secret token contains unallowed characters")
	}
	if !strings.HasPrefix(p["url"], "https://") {
		return bad("bad webhook: An HTTPS URL must be provided for webhook")
	}
	s.keep.Note(chatfake.Mark{Kind: "webhook", Place: cmp.Or(secret, "-"), What: p["url"]})
	return done(true)
}
