package wires_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/wires"
	"github.com/sandjet/sandjet/schemas"
)

// ask asks a model of a record, and returns the paths and keys that its server saw.
func ask(t *testing.T, c schemas.ModelConfig, key string, open bool) (seen []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+" "+r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	c.URL = server.URL + c.URL
	o, err := models.OptionsOf(c, key)
	if err != nil {
		t.Fatal(err)
	}
	o.Transport = wires.Transport(0, func(a netip.Addr, encrypted bool) error {
		if !a.IsLoopback() || encrypted {
			t.Errorf("asked about %s, encrypted %v", a, encrypted)
		}
		if open {
			return nil
		}
		return errors.New("that network is closed")
	})
	client, err := wires.Open(c.Wire, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range client.Stream(t.Context(), models.Request{Model: "m", MaxTokens: 1,
		Messages: []schemas.ModelMessage{{Role: schemas.RoleUser, Blocks: []schemas.Block{{Type: schemas.BlockText, Text: "x"}}}}}) {
		err = e
	}
	return seen, err
}

func TestModelsAreAskedByTheirWireAndOnlyWhereTheOperatorLetsThem(t *testing.T) {
	for wire, want := range map[schemas.Wire]string{
		schemas.WireAnthropic: "/v1/messages secret", schemas.WireOpenAI: "/chat/completions Bearer secret",
	} {
		c := schemas.ModelConfig{Wire: wire, Model: "m"}
		seen, err := ask(t, c, "secret\n", true)
		if e, ok := errors.AsType[*models.Error](err); !ok || e.Class != models.BadRequest || len(seen) != 1 || seen[0] != want {
			t.Errorf("%s: %q, %v", wire, seen, err)
		}
		seen, err = ask(t, c, "secret", false)
		if len(seen) > 0 || err == nil || !strings.Contains(err.Error(), "that network is closed") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s, closed: %q, %v", wire, seen, err)
		}
	}
	if _, err := wires.Open("smoke", models.Options{}); schemas.CodeOf(err) != schemas.Invalid {
		t.Error(err)
	}
}

func TestOptionsOfARecord(t *testing.T) {
	o, err := models.OptionsOf(schemas.ModelConfig{URL: "https://a.example", Timeout: 7, Silence: 3, LegacyMaxTokens: true,
		Extra: map[string]any{"temperature": 0.5}}, " k\n")
	if err != nil || o.URL != "https://a.example" || o.Key != "k" || !o.LegacyMaxTokens || string(o.Extra["temperature"]) != "0.5" ||
		o.Timeouts != (models.Timeouts{FirstByte: 3 * time.Second, Chunk: 3 * time.Second, Total: 7 * time.Second}) {
		t.Errorf("%+v %v", o, err)
	}
}
