package discord

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is where an answer goes in Discord: a channel or a thread, optionally the message to reply to, optionally the slash command that
// waits for an answer.
type Route struct {
	Guild   string `json:"guild_id,omitzero"`
	Channel string `json:"channel_id"`
	Message string `json:"message_id,omitzero"`
	// Application, Interaction and Token identify a slash command: the application's id, the interaction's id, and the token that
	// authorizes its answer. In routes made by [Adapter.Read] the token is encrypted, in Sealed.
	Application string `json:"application_id,omitzero"`
	Interaction string `json:"interaction_id,omitzero"`
	Token       string `json:"interaction_token,omitzero"`
	Sealed      string `json:"interaction_sealed,omitzero"`
}

// tokenLife is how long after a command its token is used. Discord accepts it for 15 minutes.
const tokenLife = 14 * time.Minute

func parseRoute(route json.RawMessage) (Route, error) {
	var r Route
	if err := chatapi.DecodeRoute(route, &r); err != nil {
		return Route{}, err
	}
	if !snowflake(r.Channel) {
		return Route{}, schemas.Invalidf("route.channel_id", "is not the number of a channel")
	}
	for _, id := range []string{r.Guild, r.Message, r.Application, r.Interaction} {
		if id != "" && !snowflake(id) {
			return Route{}, schemas.Invalidf("route", "guild_id, message_id, application_id and interaction_id are numbers")
		}
	}
	if (r.Token != "" || r.Sealed != "") && (r.Application == "" || r.Interaction == "") {
		return Route{}, schemas.Invalidf("route", "an interaction_token goes with application_id and interaction_id")
	}
	return r, nil
}

// snowflake reports whether s is a Discord id: a positive decimal number.
func snowflake(s string) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n > 0 && s[0] != '0' && s[0] != '+'
}

// bornAt returns when an id was created, which its upper bits encode; the zero time if it is not a number.
func bornAt(id string) time.Time {
	const epoch = 1420070400000 // milliseconds
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(n>>22) + epoch)
}

// open reports whether the route has the token of a command that can still be answered by it.
func (r Route) open(now time.Time) bool {
	return r.Token != "" && now.Sub(bornAt(r.Interaction)) < tokenLife
}
