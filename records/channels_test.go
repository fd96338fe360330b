package records_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func chatChannel(n int) schemas.ChatChannel {
	return schemas.ChatChannel{
		ID: schemas.ChannelID(fmt.Sprintf("chan_%03d", n)), Account: owner, Kind: "telegram", Name: fmt.Sprintf("bot %d", n),
		Places: []string{"4711"}, Secrets: map[string]string{"bot_token": "secret-of-a-bot"}, Created: time.Now().UTC(),
	}
}

func TestChannelsAreKeptPerAccountAndSealed(t *testing.T) {
	t.Parallel()
	b := bus(t)
	s := open(t, b)
	first, second := chatChannel(2), chatChannel(1)
	second.Created = first.Created.Add(time.Second)
	second.Fallback = &schemas.ChannelPlace{Channel: first.ID, Route: json.RawMessage(`{"chat":1}`)}
	for _, c := range []schemas.ChatChannel{first, second} {
		if err := s.Channels.Add(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range map[string]*records.Store{"the same store": s, "one that is opened later": open(t, b)} {
		list, err := s.Channels.List(t.Context(), owner)
		if err != nil || len(list) != 2 || list[0].ID != first.ID || list[1].Fallback.Channel != first.ID {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		got, err := s.Channels.Get(t.Context(), owner, first.ID)
		if err != nil || got.Secrets["bot_token"] != "secret-of-a-bot" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		got.Secrets["bot_token"], got.Places[0] = "changed", "changed"
		if again, err := s.Channels.Get(t.Context(), owner, first.ID); err != nil || again.Secrets["bot_token"] != "secret-of-a-bot" ||
			again.Places[0] != "4711" {
			t.Errorf("%s: what a caller does reaches the copy: %+v, %v", name, again, err)
		}
		if list, err := s.Channels.List(t.Context(), "acct_other"); err != nil || len(list) != 0 {
			t.Errorf("%s: somebody else sees %+v, %v", name, list, err)
		}
		if _, err := s.Channels.Get(t.Context(), "acct_other", first.ID); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%s: somebody else's: %v", name, err)
		}
	}
	raw, err := streams.OpenBucket[json.RawMessage](b, streams.Records).Get(t.Context(), "channel."+string(owner)+"."+string(first.ID))
	if err != nil || strings.Contains(string(raw.Value), "secret-of-a-bot") || !strings.Contains(string(raw.Value), "sealed") {
		t.Errorf("the log has %s, %v", raw.Value, err)
	}
	if err := s.Channels.Remove(t.Context(), owner, first.ID); err != nil {
		t.Fatal(err)
	}
	// What it names may be gone: that is no reason to refuse another change.
	if _, err := s.Channels.Update(t.Context(), owner, second.ID, func(c *schemas.ChatChannel) error { c.Name = "x"; return nil }); err != nil {
		t.Error(err)
	}
	_, err = s.Channels.Update(t.Context(), owner, first.ID, func(*schemas.ChatChannel) error { return nil })
	for name, err := range map[string]error{"deleted twice": s.Channels.Remove(t.Context(), owner, first.ID), "changed": err,
		"no id": s.Channels.Remove(t.Context(), owner, "a.b")} {
		if !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChannelsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := open(t, bus(t))
	if err := s.Channels.Add(t.Context(), chatChannel(0)); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", schemas.MaxChannelSecret+1)
	for name, c := range map[string]struct {
		change func(*schemas.ChatChannel)
		code   schemas.Code
		field  string
	}{
		"the name is taken":          {func(c *schemas.ChatChannel) { c.Name = "bot 0" }, schemas.Conflict, "name"},
		"no name":                    {func(c *schemas.ChatChannel) { c.Name = "" }, schemas.Invalid, "name"},
		"no kind":                    {func(c *schemas.ChatChannel) { c.Kind = "" }, schemas.Invalid, "kind"},
		"an agent that is not":       {func(c *schemas.ChatChannel) { c.Agent = "agent_none" }, schemas.Invalid, "agent"},
		"a workspace that is not":    {func(c *schemas.ChatChannel) { c.Workspace = "ws_none" }, schemas.Invalid, "workspace"},
		"a way that is not":          {func(c *schemas.ChatChannel) { c.OnAmbiguous = "ask" }, schemas.Invalid, "on_ambiguous"},
		"a fallback that is not":     {fallback("chan_none", `{}`), schemas.Invalid, "fallback.channel"},
		"a fallback to itself":       {fallback("chan_001", `{}`), schemas.Invalid, "fallback.channel"},
		"a fallback without a place": {fallback("chan_000", ``), schemas.Invalid, "route"},
		"a fallback to no place":     {fallback("chan_000", `{`), schemas.Invalid, "route"},
		"a place of nothing":         {func(c *schemas.ChatChannel) { c.Places = []string{""} }, schemas.Invalid, "places"},
		"too many users":             {func(c *schemas.ChatChannel) { c.Users = make([]string, 501) }, schemas.Invalid, "users"},
		"a secret of nothing":        {func(c *schemas.ChatChannel) { c.Secrets["bot_token"] = "" }, schemas.Invalid, "secrets.bot_token"},
		"a secret that is too long":  {func(c *schemas.ChatChannel) { c.Secrets["a"] = long }, schemas.Invalid, "secrets.a"},
		"a setting that is too long": {func(c *schemas.ChatChannel) {
			c.Settings = map[string]string{"a": long}
		}, schemas.Invalid, "settings.a"},
		"a setting with an odd name":  {func(c *schemas.ChatChannel) { c.Settings = map[string]string{"a b": ""} }, schemas.Invalid, "settings"},
		"a description with an essay": {func(c *schemas.ChatChannel) { c.Description = long }, schemas.Invalid, "description"},
	} {
		next := chatChannel(1)
		c.change(&next)
		err := s.Channels.Add(t.Context(), next)
		var e *schemas.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || strings.Contains(err.Error(), "secret-of-a-bot") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := range schemas.MaxChatChannels - 1 {
		if err := s.Channels.Add(t.Context(), chatChannel(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Channels.Add(t.Context(), chatChannel(999)); !errors.Is(err, schemas.ErrExhausted) {
		t.Errorf("%v: want exhausted", err)
	}
}

func fallback(id schemas.ChannelID, route string) func(*schemas.ChatChannel) {
	return func(c *schemas.ChatChannel) {
		c.Fallback = &schemas.ChannelPlace{Channel: id, Route: json.RawMessage(route)}
	}
}
