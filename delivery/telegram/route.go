package telegram

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is where an answer goes in Telegram: a chat, optionally a topic in it, optionally the message to reply to.
type Route struct {
	Chat    ChatID `json:"chat_id"`
	Thread  int64  `json:"thread_id,omitzero"`
	Message int64  `json:"message_id,omitzero"`
}

// ChatID is a number, or the name of a public channel: @news. On the wire it is a string or a number.
type ChatID string

// UnmarshalJSON accepts a string or a number.
func (c *ChatID) UnmarshalJSON(text []byte) error {
	var s string
	if len(text) > 0 && text[0] != '"' {
		s = string(text)
	} else if err := json.Unmarshal(text, &s); err != nil {
		return schemas.Invalidf("chat_id", "is neither a number nor a name")
	}
	*c = ChatID(s)
	return nil
}

// MarshalJSON writes numeric ids as JSON numbers.
func (c ChatID) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseInt(string(c), 10, 64); err == nil {
		return strconv.AppendInt(nil, n, 10), nil
	}
	return chatapi.Encode(string(c))
}

// number returns the id of the chat; 0 if it is given by name.
func (c ChatID) number() int64 {
	n, err := strconv.ParseInt(string(c), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// valid reports whether c has the form of a chat id: a number other than 0, or @ and a name of 4 to 32 letters, digits and underscores.
func (c ChatID) valid() bool {
	name, named := strings.CutPrefix(string(c), "@")
	if !named {
		return c.number() != 0
	}
	return len(name) >= 4 && len(name) <= 32 && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	switch {
	case !r.Chat.valid():
		return Route{}, schemas.Invalidf("route.chat_id", "is neither the number of a chat nor a name such as @news")
	case r.Thread < 0 || r.Message < 0:
		return Route{}, schemas.Invalidf("route", "thread_id and message_id are positive")
	}
	return r, nil
}
