package main

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/streams"
)

// TestAsyncAPI: each stream that clients use has a channel in the document, its references lead to something, and each address declares
// its parameters.
func TestAsyncAPI(t *testing.T) {
	documents, err := Documents(module)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		AsyncAPI string
		Channels map[string]struct {
			Address    string
			Parameters map[string]any
		}
		Operations map[string]struct{ Action string }
	}
	text := documents["schemas/asyncapi.json"]
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.AsyncAPI != "3.0.0" || len(doc.Operations) != len(doc.Channels) {
		t.Errorf("%s with %d operations on %d channels", doc.AsyncAPI, len(doc.Operations), len(doc.Channels))
	}
	for name, c := range doc.Channels {
		var names []string
		for token := range strings.SplitSeq(c.Address, ".") {
			if n, ok := strings.CutPrefix(token, "{"); ok {
				names = append(names, strings.TrimSuffix(n, "}"))
			}
		}
		slices.Sort(names)
		if have := slices.Sorted(maps.Keys(c.Parameters)); !slices.Equal(have, names) {
			t.Errorf("%s names %v and describes %v", name, names, have)
		}
	}
	for _, o := range doc.Operations {
		if o.Action != "send" && o.Action != "receive" {
			t.Errorf("action %q", o.Action)
		}
	}
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	refs := 0
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if to, ok := v["$ref"].(string); ok {
				refs++
				if pointer, local := strings.CutPrefix(to, "#/"); local && at(root, pointer) == nil || !local &&
					documents[path.Join("schemas", to)] == nil {
					t.Errorf("%s leads nowhere", to)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(root)
	if refs < 20 {
		t.Errorf("only %d references", refs)
	}
	rows, _ := streams.Describe(1)
	// The server's own words, the bytes of clients and calls, and what runners of turns keep for themselves.
	foreign := []string{"ADV", "DURABLE", "ARTIFACTS", "SKILLS", "TRANSCRIPTS_00", "WAKES"}
	for _, r := range rows {
		if !slices.Contains(foreign, r.Name) && !slices.ContainsFunc(channels(), func(c channel) bool { return c.stream == r.Name }) {
			t.Errorf("the stream %s has no channel", r.Name)
		}
	}
}

func at(v any, pointer string) any {
	for key := range strings.SplitSeq(pointer, "/") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func TestAddressesAreHeldToTheTopology(t *testing.T) {
	for _, c := range []struct {
		address, subject string
		ok               bool
	}{
		{"a.{x}.{y}", "a.*.*", true}, {"a.{shard}.{y}", "a.00.*", true}, {"a.{x}", "b.*", false},
		{"a.{x}", "a.*.*", false}, {"a.x", "a.*", false},
	} {
		if _, err := parameters(c.address, c.subject); (err == nil) != c.ok {
			t.Errorf("%s for %s: %v", c.address, c.subject, err)
		}
	}
}
