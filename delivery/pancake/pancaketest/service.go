// Package pancaketest is a test double of Pancake's public API for messages. Like Pancake, it responds to errors with status 200.
package pancaketest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
	"unicode/utf16"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/delivery/channel/chatfake"
)

// Options are the settings of a double.
type Options struct {
	// Token is the only token that is accepted. Empty: any.
	Token string
	Now   func() time.Time
}

// New returns a double. It is an [http.Handler]; its address is the adapter's [channel.Options] Base.
func New(o Options) *chatfake.Server {
	s := &chatfake.Server{Now: o.Now, Words: chatfake.Words{
		TooMany: func(after time.Duration, echo string) chatfake.Reply {
			r := chatfake.JSON(http.StatusTooManyRequests, map[string]any{"success": false, "message": "Too many requests " + echo})
			if after > 0 {
				r.Header = http.Header{"Retry-After": {strconv.Itoa(int(after.Seconds()))}}
			}
			return r
		},
		Unauthorized: func(echo string) chatfake.Reply { return failed("Invalid access_token " + echo) },
		ErrorBody:    func(echo string) chatfake.Reply { return failed("permission denied " + echo) },
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

func failed(message string) chatfake.Reply {
	return chatfake.JSON(http.StatusOK, map[string]any{"success": false, "message": message})
}

var path = regexp.MustCompile(`^/pages/([^/]+)/conversations/([^/]+)/messages$`)

func answer(s *chatfake.Server, o Options, r *http.Request) chatfake.Reply {
	token := r.URL.Query().Get("page_access_token")
	m := path.FindStringSubmatch(r.URL.Path)
	switch {
	case m == nil || r.Method != http.MethodPost:
		return chatfake.JSON(http.StatusNotFound, map[string]any{"success": false, "message": "Not found"})
	case token == "" || o.Token != "" && token != o.Token:
		return failed("Invalid access_token")
	}
	var sent struct {
		Action  string `json:"action"`
		Text    string `json:"message"`
		Message string `json:"message_id"`
		Sender  string `json:"sender_id"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&sent); err != nil {
		return failed("the body is not understood: " + err.Error())
	}
	switch {
	case sent.Action != "reply_inbox" && sent.Action != "reply_comment":
		return failed("action is invalid")
	case (sent.Action == "reply_comment") != (sent.Message != ""):
		return failed("message_id is invalid")
	case sent.Text == "" || len(utf16.Encode([]rune(sent.Text))) > 2000:
		return failed("message is too long")
	}
	kept := chatfake.Message{ID: "m_" + strconv.Itoa(s.NextID()), Place: m[1] + "/" + m[2], Text: sent.Text, Plain: true, Reply: sent.Message}
	s.Add(kept)
	return chatfake.JSON(http.StatusOK, map[string]any{"success": true, "id": kept.ID})
}

// Post returns a request with a body, as Pancake posts it to a webhook whose address contains a secret.
func Post(secret, body string) channel.Request {
	header := http.Header{"Content-Type": {"application/json"}}
	return channel.Request{Header: header, Query: url.Values{"secret": {secret}}, Body: []byte(body)}
}
