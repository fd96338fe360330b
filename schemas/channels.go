package schemas

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// ChannelID names a chat channel's record: "chan_" and 1 to 64 letters or digits.
type ChannelID string

// ChannelPrefix begins the id of every chat channel.
const ChannelPrefix = "chan_"

// Validate reports whether id is a well-formed id of a chat channel.
func (id ChannelID) Validate() error {
	return validatePrefixed("channel", ChannelPrefix, string(id))
}

// ChatChannel is the record of a chat channel: an account's bot at a chat service, and what it is for.
type ChatChannel struct {
	ID      ChannelID `json:"id"`
	Account AccountID `json:"account"`
	// Kind is the service: telegram, slack. It does not change.
	Kind        string `json:"kind"`
	Name        string `json:"name"` // unique in the account
	Description string `json:"description,omitzero"`
	// Agent is whose turns the chat's messages become. Empty: no agent's.
	Agent AgentID `json:"agent,omitzero"`
	// Workspace is where commands of the chat run, and where its files go. Empty: the agent's.
	Workspace WorkspaceID `json:"workspace,omitzero"`
	// Places are the chats, channels or repositories that are listened to, as the service names them; * is all. Empty: none.
	Places []string `json:"places,omitzero"`
	// Users are who is listened to, as the service names them. Empty: all in the places, and none of them may answer approvals.
	Users []string `json:"users,omitzero"`
	// Settings are the kind's own that are not secret.
	Settings map[string]string `json:"settings,omitzero"`
	// Secrets are the credential, by the names that the kind has for its fields. They are encrypted on the log.
	Secrets map[string]string `json:"secrets,omitzero"`
	// OnAmbiguous is what is done with a message that may or may not have arrived, where the service does not say. Empty:
	// ResendMarked.
	OnAmbiguous OnAmbiguous `json:"on_ambiguous,omitzero"`
	// Fallback is where a message goes that this channel refuses. Nil: nowhere.
	Fallback *ChannelPlace `json:"fallback,omitzero"`
	Disabled bool          `json:"disabled,omitzero"`
	Reason   string        `json:"reason,omitzero"` // why it is disabled
	Created  time.Time     `json:"created"`
	Updated  time.Time     `json:"updated,omitzero"`
}

// ChannelPlace is a place in a chat channel.
type ChannelPlace struct {
	Channel ChannelID       `json:"channel"`
	Route   json.RawMessage `json:"route"` // an object, as the channel's kind has it
}

// OnAmbiguous is what is done with a message that may or may not have arrived.
type OnAmbiguous string

// What can be done.
const (
	ResendMarked    OnAmbiguous = "resend_marked" // send it again, and say in it that it may be a repeat
	Resend          OnAmbiguous = "resend"        // send it again as it was
	DropAmbiguous   OnAmbiguous = "drop"          // take it for sent
	HoldOnAmbiguous OnAmbiguous = "hold"          // keep it as a dead letter until a person decides
)

// OnAmbiguousWays lists what can be done.
func OnAmbiguousWays() []OnAmbiguous {
	return []OnAmbiguous{ResendMarked, Resend, DropAmbiguous, HoldOnAmbiguous}
}

// Validate returns the first error of a channel, except for what only its kind can check. Code: invalid.
func (c ChatChannel) Validate() error {
	if err := first(validateToken("kind", c.Kind, MaxChannel, "_.-"), validateToken("name", c.Name, MaxName, "_.- "),
		optional[AgentID](c.Agent).Validate(), optional[WorkspaceID](c.Workspace).Validate()); err != nil {
		return err
	}
	switch {
	case len(c.Description) > MaxDescription:
		return Invalidf("description", "is %d bytes long: the limit is %d", len(c.Description), MaxDescription)
	case c.OnAmbiguous != "" && !slices.Contains(OnAmbiguousWays(), c.OnAmbiguous):
		return Invalidf("on_ambiguous", "%q is unknown: use resend_marked, resend, drop or hold", Quotable(string(c.OnAmbiguous)))
	case len(c.Settings) > MaxChannelFields:
		return Invalidf("settings", "has %d entries: the limit is %d", len(c.Settings), MaxChannelFields)
	case len(c.Secrets) > MaxChannelFields:
		return Invalidf("secrets", "has %d entries: the limit is %d", len(c.Secrets), MaxChannelFields)
	}
	for name, value := range c.Settings {
		if err := validateToken("settings", name, MaxName, "_.-"); err != nil {
			return err
		}
		if len(value) > MaxChannelSetting {
			return Invalidf("settings."+name, "is %d bytes long: the limit is %d", len(value), MaxChannelSetting)
		}
	}
	for name, value := range c.Secrets {
		if err := validateToken("secrets", name, MaxName, "_.-"); err != nil {
			return err
		}
		if value == "" || len(value) > MaxChannelSecret {
			return Invalidf("secrets."+name, "must have 1 to %d bytes", MaxChannelSecret)
		}
	}
	if err := first(validatePeople("places", c.Places), validatePeople("users", c.Users)); err != nil {
		return err
	}
	if f := c.Fallback; f != nil {
		if f.Channel == c.ID && c.ID != "" {
			return Invalidf("fallback.channel", "is the channel itself: name another")
		}
		return f.Validate()
	}
	return nil
}

// Validate returns the first error of a place, except for what only its kind can check.
func (p ChannelPlace) Validate() error {
	if err := p.Channel.Validate(); err != nil {
		return err
	}
	if r := bytes.TrimSpace(p.Route); len(r) == 0 || r[0] != '{' || len(r) > MaxOrigin || !json.Valid(r) {
		return Invalidf("route", "must be an object of at most %d bytes", MaxOrigin)
	}
	return nil
}

// validatePeople checks a list of places or users.
func validatePeople(field string, list []string) error {
	if len(list) > MaxChannelPlaces {
		return Invalidf(field, "has %d entries: the limit is %d", len(list), MaxChannelPlaces)
	}
	for _, s := range list {
		if s == "" || len(s) > MaxName || strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
			return Invalidf(field, "%q cannot be one: 1 to %d bytes without spaces around them", Quotable(s), MaxName)
		}
	}
	return nil
}
