// Package zalotest is a test double of Zalo's Bot API and of the events that Zalo posts.
package zalotest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double. The zero value accepts any token and every chat.
type Options struct {
	// Token is the only bot token that is accepted. Empty: any that has the form of one.
	Token string
	// Unknown are chats that have never written to the bot.
	Unknown []string
	Now     func() time.Time
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *chatfake.Server {
	s := &chatfake.Server{Now: o.Now, Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			r := failed(http.StatusTooManyRequests, http.StatusTooManyRequests, "Quota exceeded "+echo)
			if after > 0 {
				r.Header = http.Header{"Retry-After": {strconv.Itoa(int(after.Seconds()))}}
			}
			return r
		},
		Unauthorized: func(echo string) chatfake.Reply {
			return failed(http.StatusOK, http.StatusUnauthorized, "Unauthorized "+echo)
		},
		ErrorBody: func(echo string) chatfake.Reply {
			return failed(http.StatusOK, http.StatusBadRequest, "Bad request "+echo)
		},
	}}
	s.Service = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			s.Show(w, r)
			return
		}
		answer(s, o, r).Write(w)
	})
	return s
}

func failed(status, code int, description string) chatfake.Reply {
	return chatfake.JSON(status, map[string]any{"ok": false, "error_code": code, "description": description})
}

func done(result any) chatfake.Reply {
	return chatfake.JSON(http.StatusOK, map[string]any{"ok": true, "result": result})
}

func answer(s *chatfake.Server, o Options, r *http.Request) chatfake.Reply {
	token, method, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	switch {
	case !ok || !strings.HasPrefix(r.URL.Path, "/bot") || !strings.Contains(token, ":"):
		return failed(http.StatusNotFound, http.StatusNotFound, "Not found")
	case o.Token != "" && token != o.Token:
		return failed(http.StatusOK, http.StatusUnauthorized, "Unauthorized")
	}
	var body struct {
		Chat   string `json:"chat_id"`
		Text   string `json:"text"`
		Action string `json:"action"`
		URL    string `json:"url"`
		Secret string `json:"secret_token"`
	}
	if d := json.NewDecoder(r.Body); method != "getMe" {
		d.DisallowUnknownFields()
		if d.Decode(&body) != nil {
			return failed(http.StatusOK, http.StatusBadRequest, "Bad request: the body")
		}
	}
	switch method {
	case "getMe":
		return done(map[string]any{"id": "1459232241454765289", "account_name": "bot.sandjet", "account_type": "BASIC", "can_join_groups": false})
	case "setWebhook":
		if len(body.Secret) < 8 || len(body.Secret) > 256 || !strings.HasPrefix(body.URL, "https://") {
			return failed(http.StatusOK, http.StatusBadRequest, "Bad request: url or secret_token")
		}
		s.Note(chatfake.Mark{Kind: "webhook", What: body.URL})
		return done(map[string]any{"url": body.URL})
	case "sendMessage", "sendChatAction":
	default:
		return failed(http.StatusNotFound, http.StatusNotFound, "Not found")
	}
	if body.Chat == "" || slices.Contains(o.Unknown, body.Chat) {
		return failed(http.StatusOK, http.StatusForbidden, "Forbidden: the user has not written to the bot")
	}
	if method == "sendChatAction" {
		if body.Action != "typing" {
			return failed(http.StatusOK, http.StatusBadRequest, "Bad request: action")
		}
		s.Note(chatfake.Mark{Kind: "typing", Place: body.Chat})
		return done(true)
	}
	if n := len(utf16.Encode([]rune(body.Text))); n < 1 || n > 2000 {
		return failed(http.StatusOK, http.StatusBadRequest, "Bad request: text has 1 to 2000 characters")
	}
	m := chatfake.Message{ID: "msg-" + strconv.Itoa(s.NextID()), Place: body.Chat, Text: body.Text, Plain: true}
	s.Add(m)
	return done(map[string]any{"message_id": m.ID, "date": 1764000000000})
}

// Event returns a request with an event, as Zalo posts it to a webhook that was registered with a secret.
func Event(secret, body string) channel.Request {
	h := http.Header{"Content-Type": {"application/json"}}
	h.Set("X-Bot-Api-Secret-Token", secret)
	return channel.Request{Header: h, Body: []byte(body)}
}

// Says returns the event that Zalo posts when a person writes to the bot. The id message must be unique.
func Says(secret, message, chat, user, text string) channel.Request {
	body, err := json.Marshal(map[string]any{"ok": true, "result": map[string]any{"event_name": "message.text.received",
		"message": map[string]any{"message_id": message, "date": 1764000000000, "text": text,
			"from": map[string]any{"id": user, "display_name": "Somebody", "is_bot": false},
			"chat": map[string]any{"id": chat, "chat_type": "PRIVATE"}}}})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return Event(secret, string(body))
}

// Double returns a double for manual use, with a credential and a chat.
func Double() chatfake.Double {
	const chat = "6ede9afa66b88fe6d6a9"
	return chatfake.Double{
		Kind: "zalo", Server: New(Options{}), Place: chat, User: chat, Route: json.RawMessage(`{"chat_id":"` + chat + `"}`),
		Secrets: map[string]string{"bot_token": "123456789:a-double-takes-any", "secret_token": "a-secret-of-the-double"},
		Says: func(secrets map[string]string, place, user, text string) (http.Header, []byte, error) {
			if secrets["secret_token"] == "" {
				return nil, nil, errors.New("the channel has no secret_token")
			}
			r := Says(secrets["secret_token"], strconv.FormatInt(time.Now().UnixMicro(), 16), place, user, text)
			return r.Header, r.Body, nil
		},
	}
}
