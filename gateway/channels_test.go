package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/channels"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/records/recordstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

var _ channels.Records = records.Channels{}

// chatKinds are two services, whose places are objects with a chat.
func chatKinds() []channels.Kind {
	route := func(r json.RawMessage) error {
		if !bytes.Contains(r, []byte(`"chat"`)) {
			return schemas.Invalidf("chat", "is missing")
		}
		return nil
	}
	return []channels.Kind{
		{Name: "telegram", Route: route, Secrets: []channels.Secret{
			{Name: "bot_token", Required: true, About: "BotFather says it"}, {Name: "hook"},
		}},
		{Name: "slack", Route: route},
	}
}

func openWithChannels(t *testing.T, change ...func(*gateway.Options)) *edge {
	t.Helper()
	return open(t, func(o *gateway.Options) {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		store, err := records.Open(ctx, o.Bus, ring(t), recordstest.Providers())
		if err != nil {
			t.Fatal(err)
		}
		o.Channels, o.ChannelKinds, o.Accounts = store.Channels, chatKinds(), accountsOf(store)
		for _, c := range change {
			c(o)
		}
	})
}

func TestChannelsOverHTTP(t *testing.T) {
	e := openWithChannels(t)
	other := decode[schemas.ChatChannel](t, e.post("/v1/channels", `{"kind":"slack","name":"other"}`))
	a := e.post("/v1/channels", `{"kind":"telegram","name":"support","places":["4711"],"secrets":{"bot_token":"hidden-1","hook":"hidden-2"},
		"settings":{"a":"1","b":"2"},"fallback":{"channel":"`+string(other.ID)+`","route":{"chat":1}}}`)
	if a.status != http.StatusCreated || strings.Contains(a.body, "hidden") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	c := decode[schemas.ChatChannel](t, a)
	path := "/v1/channels/" + string(c.ID)
	if a.header.Get("Location") != path || c.Secrets["bot_token"] == "" || c.Fallback.Channel != other.ID {
		t.Errorf("%v %+v", a.header, c)
	}
	if a := e.get("/accounts/me/channels"); strings.Contains(a.body, "hidden") ||
		len(decode[channels.List](t, a).Channels) != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}

	// What is absent stays, entries go one by one, and a secret is never its mask.
	a = e.patch(path, `{"description":"d","secrets":{"hook":""},"settings":{"a":"","c":"3"},"fallback":{"channel":"","route":{}},"disabled":true}`)
	c = decode[schemas.ChatChannel](t, a)
	if a.status != http.StatusOK || c.Description != "d" || len(c.Secrets) != 1 || len(c.Settings) != 2 || c.Settings["c"] != "3" ||
		c.Fallback != nil || !c.Disabled || c.Reason == "" || len(c.Places) != 1 || c.Updated.IsZero() {
		t.Errorf("%d %s", a.status, a.body)
	}
	if c = decode[schemas.ChatChannel](t, e.patch(path, `{"disabled":false}`)); c.Disabled || c.Reason != "" {
		t.Errorf("%+v", c)
	}
	for body, field := range map[string]string{
		`{"secrets":{"bot_token":""}}`:                                        "secrets.bot_token",
		`{"secrets":{"bot_token":"********"}}`:                                "secrets.bot_token",
		`{"secrets":{"password":"hidden-3"}}`:                                 "secrets",
		`{"name":"other"}`:                                                    "name",
		`{"fallback":{"channel":"` + string(other.ID) + `","route":{"x":1}}}`: "fallback.route",
		`{"fallback":{"channel":"chan_none","route":{"chat":1}}}`:             "fallback.channel",
		`{"kind":"slack"}`:                                                    "kind",
	} {
		a := e.patch(path, body)
		p := decode[struct{ Error schemas.Error }](t, a)
		if a.status < http.StatusBadRequest || p.Error.Field != field || strings.Contains(a.body, "hidden") {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for body, field := range map[string]string{
		`{"kind":"telegram","name":"x"}`:                     "secrets.bot_token",
		`{"kind":"smoke","name":"x"}`:                        "kind",
		`{"kind":"slack","name":"support"}`:                  "name",
		`{"kind":"slack","name":"x","agent":"agent_nobody"}`: "agent",
	} {
		a := e.post("/v1/channels", body)
		if p := decode[struct{ Error schemas.Error }](t, a); a.status < http.StatusBadRequest || p.Error.Field != field {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	a = e.post(path+"/test", `{"route":{"chat":1},"text":"hello"}`)
	tested := decode[channels.Tested](t, a)
	if a.status != http.StatusAccepted || tested.Conversation.Validate() != nil {
		t.Errorf("%d %s", a.status, a.body)
	}
	found := 0
	for entry, err := range streams.Deliveries.Replay(t.Context(), e.bus, "telegram", schemas.Cursor{}) {
		if d := entry.Value; err != nil || d.ID != tested.Delivery || d.ChannelID != c.ID || d.Tries != 1 || string(d.Route) != `{"chat":1}` ||
			d.Conversation != tested.Conversation {
			t.Errorf("%+v, %v", d, err)
		}
		found++
	}
	if found != 1 {
		t.Errorf("%d deliveries", found)
	}
	for body, field := range map[string]string{`{}`: "route", `{"route":{"x":1}}`: "route", `{"route":{"chat":1},"text":"` + strings.Repeat("x", 64<<10+1) + `"}`: "text"} {
		a := e.post(path+"/test", body)
		if p := decode[struct{ Error schemas.Error }](t, a); a.status != http.StatusBadRequest || p.Error.Field != field {
			t.Errorf("%.60s: %d %s", body, a.status, a.body)
		}
	}
	e.patch(path, `{"disabled":true}`)
	if a := e.post(path+"/test", `{"route":{"chat":1}}`); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodDelete, path: path}); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := e.get(path); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}
