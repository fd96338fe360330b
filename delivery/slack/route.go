package slack

import (
	"encoding/json"
	"strings"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is a place in Slack: a channel, a group or a chat of two, perhaps a thread of it, perhaps the message that asked.
type Route struct {
	Team    string `json:"team_id,omitzero"`
	Channel string `json:"channel_id"`
	Thread  string `json:"thread_ts,omitzero"`
	Message string `json:"message_ts,omitzero"`
}

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	switch {
	case !isPlace(r.Channel):
		return Route{}, schemas.Invalidf("route.channel_id", "is not the id of a channel: C, G or D and capital letters and digits")
	case r.Thread != "" && !isStamp(r.Thread):
		return Route{}, schemas.Invalidf("route.thread_ts", "is not the time of a message, such as 1764000000.000100")
	case r.Message != "" && !isStamp(r.Message):
		return Route{}, schemas.Invalidf("route.message_ts", "is not the time of a message, such as 1764000000.000100")
	}
	return r, nil
}

// isPlace reports whether an id can be that of a channel. A person's is none: what is sent to it cannot be looked for there.
func isPlace(id string) bool {
	if len(id) < 3 || len(id) > 32 || strings.IndexByte("CGD", id[0]) < 0 {
		return false
	}
	return strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

// isStamp reports whether a text can be the time that names a message.
func isStamp(s string) bool {
	seconds, part, found := strings.Cut(s, ".")
	return found && seconds != "" && part != "" && len(s) <= 32 && strings.Trim(seconds+part, "0123456789") == ""
}
