package durable

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

func TestParseOffset(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]struct {
		at    start
		given bool
		ok    bool
	}{
		"": {ok: true}, "offset=-1": {given: true, ok: true}, "offset=now": {at: start{now: true}, given: true, ok: true},
		"offset=0000000000000042_0000000000000000": {at: start{after: 42}, given: true, ok: true},
		"offset=": {}, "offset=42": {}, "offset=a,b": {}, "offset=-2": {}, "offset=NOW": {}, "offset=-1&offset=-1": {},
		"offset=000000000000042_00000000000000000": {}, "offset=%2B000000000000042_0000000000000000": {}, "offset=0000000000000042_": {},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		at, given, err := parseOffset(q)
		if (err == nil) != want.ok || want.ok && (at != want.at || given != want.given) {
			t.Errorf("%q: %+v, %t, %v", query, at, given, err)
		}
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		values string
		count  int
		ok     bool
	}{
		`{"a": 1}`: {`{"a": 1}`, 1, true}, ` [1, 2 ,3] `: {`1,2,3`, 3, true}, `[[1,2],[3]]`: {`[1,2],[3]`, 2, true},
		`[]`: {``, 0, true}, `[[]]`: {`[]`, 1, true},
		`["a\",[", "]\\" , {"b]":","}]`: {`"a\",[","]\\",{"b]":","}`, 3, true}, "[1,\n\t2\r]": {`1,2`, 2, true},
		`"x,y"`: {`"x,y"`, 1, true}, `["x,y"]`: {`"x,y"`, 1, true}, `12345678901234567890.50`: {`12345678901234567890.50`, 1, true},
		``: {}, `[1,]`: {}, `{`: {}, `1 2`: {}, "\"\xff\"": {},
	} {
		values, count, err := flatten([]byte(body))
		if (err == nil) != want.ok || string(values) != want.values || count != want.count {
			t.Errorf("%q: %q, %d, %v", body, values, count, err)
		}
	}
}

// An array of more values than a document may have is refused before anything is made of it.
func TestAnAppendHasSoManyValues(t *testing.T) {
	t.Parallel()
	body := func(n int) []byte { return []byte("[1" + strings.Repeat(",1", n-1) + "]") }
	if _, n, err := flatten(body(schemas.MaxManyMembers)); err != nil || n != schemas.MaxManyMembers {
		t.Errorf("%d values, %v", n, err)
	}
	_, _, err := flatten(body(schemas.MaxManyMembers + 1))
	if e := schemas.Public(err); e.Code != schemas.Invalid || e.Field != "body" || !strings.Contains(e.Message, "100000 values: send fewer") {
		t.Errorf("one more: %v", err)
	}
}

func TestFirstValuesOfAnAppend(t *testing.T) {
	t.Parallel()
	const stored = `1,[2,3],"a,b"`
	for n, want := range map[uint64]string{0: "", 1: `1`, 2: `1,[2,3]`, 3: stored, 4: "the append there has 3 values"} {
		got, err := firstOf(typeJSON, []byte(stored), n)
		if err != nil {
			got = []byte(schemas.Public(err).Message)
		}
		if !strings.Contains(string(got), want) || n == 0 && len(got) > 0 {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// split and join are how another decoder sees stored values.
func split(values []byte) ([]json.RawMessage, error) {
	var list []json.RawMessage
	err := json.Unmarshal(array(values), &list)
	return list, err
}

func join(list []json.RawMessage) []byte {
	parts := make([][]byte, len(list))
	for i, v := range list {
		parts[i] = v
	}
	return bytes.Join(parts, []byte{','})
}

func FuzzOffset(f *testing.F) {
	for _, s := range []string{"-1", "now", "0000000000000042_0000000000000000", "9999999999999999_9999999999999999", "1_2", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, given, err := parseOffset(url.Values{"offset": {s}})
		if err == nil && given && !at.now && s != "-1" && formatOffset(at.after)[:offsetDigits] != s[:offsetDigits] {
			t.Errorf("%q was read as %d", s, at.after)
		}
		if err != nil && schemas.CodeOf(err) != schemas.Invalid {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func FuzzHeaders(f *testing.F) {
	f.Add("application/json", "60", "", "true", "/v1/streams/a", "0000000000000042_0000000000000000", "3")
	f.Add("text/plain; charset=utf-8", "", "2026-01-02T03:04:05Z", "", "", "", "")
	f.Add("x", "007", "now", "TRUE", "a", "now", "-1")
	f.Fuzz(func(t *testing.T, contentType, a, b, closed, c, d, e string) {
		h := http.Header{}
		for name, value := range map[string]string{
			"Content-Type": contentType, headerTTL: a, headerExpires: b, headerClosed: closed, headerForked: c, headerForkAt: d, headerForkSub: e,
			headerSeq: a, headerProducer: b, headerEpoch: c, headerPSeq: d,
		} {
			if value != "" {
				h.Set(name, value)
			}
		}
		got, err := parseCreation(h)
		if err == nil && (got.ttl != nil && (*got.ttl < 0 || *got.ttl > maxTTL) || got.fork != nil && checkPath(got.fork.from) != nil) {
			t.Errorf("%v was read as %+v", h, got)
		}
		add, err := parseAddition(h)
		if err == nil && add.producer != nil && (add.producer.ID == "" || add.producer.Epoch > maxProducerSeq ||
			add.producer.Seq > maxProducerSeq) {
			t.Errorf("%v was read as %+v", h, add.producer)
		}
	})
}

func FuzzFlatten(f *testing.F) {
	for _, s := range []string{`[1,2]`, `{"a":[1]}`, `[]`, `[[],{}]`, `"\u2028"`, ` null `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		values, count, err := flatten([]byte(s))
		if err != nil {
			return
		}
		list, err := split(values)
		if body := bytes.TrimSpace([]byte(s)); body[0] == '[' {
			given, err := split(body[1 : len(body)-1])
			if err != nil || !bytes.Equal(join(given), values) {
				t.Errorf("%q became %q, %v", s, values, err)
			}
		}
		if err != nil || len(list) != count {
			t.Fatalf("%q became %q: %d values, %v", s, values, len(list), err)
		}
		if !json.Valid(array(values)) || !bytes.Equal(join(list), values) {
			t.Errorf("%q became %q", s, values)
		}
	})
}

// readEvent is what a reader makes of one event.
func readEvent(b string) (name string, data []string) {
	b = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(b)
	for line := range strings.SplitSeq(b, "\n") {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			data = append(data, value)
		}
	}
	return name, data
}

func FuzzEvent(f *testing.F) {
	for _, s := range []string{"a", " a", "a\nb", "a\r\n\r\nevent: control", "\rdata: x", "", "  "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return
		}
		whole := string(appendEvent(nil, "data", []byte(s)))
		name, data := readEvent(whole)
		want := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s), "\n")
		if name != "data" || !slices.Equal(data, want) || strings.Contains(strings.TrimSuffix(whole, "\n\n"), "\n\n") {
			t.Errorf("%q was written as %q", s, whole)
		}
	})
}
