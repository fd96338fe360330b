package slack

import (
	"encoding/json"
	"strings"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is where an answer goes in Slack: a channel, a group or a direct message chat, optionally a thread in it, optionally the message
// that is answered.
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

// isPlace reports whether an id can be that of a channel, a group or a direct message chat. The id of a user is not accepted: Slack's
// history methods, by which a sent message is found, do not take it.
func isPlace(id string) bool {
	if len(id) < 3 || len(id) > 32 || strings.IndexByte("CGD", id[0]) < 0 {
		return false
	}
	return strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

// isStamp reports whether a text has the form of a message's timestamp, which is its id in Slack: seconds, a dot and digits.
func isStamp(s string) bool {
	seconds, part, found := strings.Cut(s, ".")
	return found && seconds != "" && part != "" && len(s) <= 32 && strings.Trim(seconds+part, "0123456789") == ""
}
