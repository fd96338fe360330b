package schemas_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

func TestEncodeJSON(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"a":"x < y && z > 0"}`: map[string]string{"a": "x < y && z > 0"},
		`["\u2028","\u2029"]`:    []string{"\u2028", "\u2029"},
		`{"data":"<b>\u2028\u2029é\u003c"}`: struct {
			Data json.RawMessage `json:"data"`
		}{json.RawMessage("\"<b>\u2028\u2029é\\u003c\"")}, // came in as it is
		`null`: nil,
	} {
		got, err := schemas.EncodeJSON(v)
		if err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", v, got, err, want)
		}
	}
	if _, err := schemas.EncodeJSON(func() {}); err == nil {
		t.Error("a function was encoded")
	}
}

// TestEncodedTextIsItsCallers: encoders are used again, by many at the same time, and what one has written stays as it is.
func TestEncodedTextIsItsCallers(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			var texts [][]byte
			for i := range 200 {
				text, err := schemas.EncodeJSON(strings.Repeat(string(rune('a'+n)), i*i))
				if err != nil {
					t.Error(err)
				}
				texts = append(texts, text)
				_, _ = schemas.EncodeJSON(func() {})
			}
			for i, text := range texts {
				if want := `"` + strings.Repeat(string(rune('a'+n)), i*i) + `"`; string(text) != want {
					t.Errorf("%d bytes of %c became %.60s", i*i, 'a'+n, text)
				}
			}
		})
	}
	all.Wait()
}

// FuzzEncodeJSON: whatever is valid JSON means the same when it is written again, in one line without separators.
func FuzzEncodeJSON(f *testing.F) {
	f.Add([]byte("{\"a\":\"<\u2028>\",\"b\":[1e9,null]}"))
	f.Add([]byte(`"\\u2028\u2029"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var want any
		if json.Unmarshal(b, &want) != nil {
			return
		}
		got, err := schemas.EncodeJSON(json.RawMessage(b))
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		var again any
		if err := json.Unmarshal(got, &again); err != nil || !reflect.DeepEqual(again, want) {
			t.Fatalf("%q became %q: %v", b, got, err)
		}
		if bytes.ContainsAny(got, "\n\r") || bytes.Contains(got, []byte("\u2028")) || bytes.Contains(got, []byte("\u2029")) {
			t.Fatalf("%q has ends of lines", got)
		}
	})
}
