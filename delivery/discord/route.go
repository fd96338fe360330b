package discord

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/delivery/internal/chatapi"
	"github.com/sandjet/sandjet/schemas"
)

// Route is a place in Discord: a channel or a thread, perhaps a message to answer, perhaps the command that waits for an answer.
type Route struct {
	Guild   string `json:"guild_id,omitzero"`
	Channel string `json:"channel_id"`
	Message string `json:"message_id,omitzero"`
	// Of a command: whose application it is, its number, and the token that its answer is written with, sealed where it is ours.
	Application string `json:"application_id,omitzero"`
	Interaction string `json:"interaction_id,omitzero"`
	Token       string `json:"interaction_token,omitzero"`
	Sealed      string `json:"interaction_sealed,omitzero"`
}

// tokenLife is how long the token of a command is used. Discord takes it for fifteen minutes.
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

// snowflake reports whether s is one of Discord's numbers, which are written as text.
func snowflake(s string) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n > 0 && s[0] != '0' && s[0] != '+'
}

// bornAt is when a number was given out. It is part of it.
func bornAt(id string) time.Time {
	const epoch = 1420070400000 // milliseconds
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(n>>22) + epoch)
}

// open reports whether the command of a route still waits for its answer.
func (r Route) open(now time.Time) bool {
	return r.Token != "" && now.Sub(bornAt(r.Interaction)) < tokenLife
}
