package durable

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(epoch, seq uint64) *producer { return &producer{"p", epoch, seq} }
	for name, tc := range map[string]struct {
		state     state
		before    *producer
		ask       addition
		data      int
		want      state
		duplicate bool
		status    int // of the refusal
		header    string
	}{
		"data":                {ask: addition{}, data: 3, want: state{Bytes: 3}},
		"data behind data":    {state: state{Bytes: 4, Seq: "a"}, data: 3, want: state{Bytes: 7, Seq: "a"}},
		"too much":            {state: state{Bytes: maxBytes}, data: 1, status: 413},
		"a close":             {state: state{Bytes: 4}, ask: addition{closed: true}, want: state{Bytes: 4, Closed: true}},
		"a close again":       {state: state{Closed: true}, ask: addition{closed: true}, duplicate: true},
		"data behind the end": {state: state{Closed: true}, data: 1, status: 409, header: headerClosed},
		"data and a close behind the end": {state: state{Closed: true}, ask: addition{closed: true}, data: 1,
			status: 409, header: headerClosed},
		"a greater Stream-Seq":               {state: state{Seq: "09"}, ask: addition{seq: "10"}, want: state{Seq: "10"}},
		"the same Stream-Seq":                {state: state{Seq: "10"}, ask: addition{seq: "10"}, status: 409},
		"Stream-Seq is text":                 {state: state{Seq: "2"}, ask: addition{seq: "10"}, status: 409},
		"a new producer":                     {ask: addition{producer: at(0, 0)}, want: state{Producers: 1, Producer: at(0, 0)}},
		"a new producer in a later epoch":    {ask: addition{producer: at(7, 0)}, want: state{Producers: 1, Producer: at(7, 0)}},
		"a new producer that does not begin": {ask: addition{producer: at(0, 1)}, status: 409, header: headerExpected},
		"one producer too many":              {state: state{Producers: maxProducers}, ask: addition{producer: at(0, 0)}, status: 429},
		"the next of a producer": {state: state{Producers: 1}, before: at(0, 0), ask: addition{producer: at(0, 1)},
			want: state{Producers: 1, Producer: at(0, 1)}},
		"a retry":      {before: at(0, 4), ask: addition{producer: at(0, 4)}, data: 9, duplicate: true},
		"an old retry": {before: at(0, 4), ask: addition{producer: at(0, 1)}, duplicate: true},
		"a retry with an old Stream-Seq": {state: state{Seq: "b"}, before: at(0, 4),
			ask: addition{seq: "a", producer: at(0, 4)}, duplicate: true},
		"a retry of the close": {state: state{Closed: true}, before: at(0, 4),
			ask: addition{closed: true, producer: at(0, 4)}, duplicate: true},
		"a gap": {before: at(0, 4), ask: addition{producer: at(0, 6)}, status: 409, header: headerReceived},
		"a gap behind the end": {state: state{Closed: true}, before: at(0, 4), ask: addition{producer: at(0, 6)},
			status: 409, header: headerClosed},
		"a new epoch": {state: state{Producers: 1}, before: at(0, 4), ask: addition{producer: at(1, 0)},
			want: state{Producers: 1, Producer: at(1, 0)}},
		"a new epoch that does not begin":   {before: at(0, 4), ask: addition{producer: at(1, 5)}, status: 400},
		"an epoch that is over":             {before: at(2, 0), ask: addition{producer: at(1, 1)}, status: 403, header: headerEpoch},
		"an epoch that is over, at the end": {state: state{Closed: true}, before: at(2, 0), ask: addition{producer: at(1, 1)}, status: 403},
	} {
		got, duplicate, err := decide(tc.state, tc.before, tc.ask, tc.data)
		status := 0
		refusal, refused := errors.AsType[*RefusalError](err)
		switch {
		case refused:
			status = refusal.HTTPStatus()
			if tc.header != "" && refusal.header.Get(tc.header) == "" {
				t.Errorf("%s: the refusal does not tell %s", name, tc.header)
			}
		case schemas.CodeOf(err) == schemas.Invalid && err != nil:
			status = http.StatusBadRequest
		}
		if status != tc.status || duplicate != tc.duplicate {
			t.Errorf("%s: %v, duplicate %t", name, err, duplicate)
			continue
		}
		if err != nil || duplicate {
			tc.want = tc.state // it stays
		}
		if got.Closed != tc.want.Closed || got.Seq != tc.want.Seq || got.Bytes != tc.want.Bytes || got.Producers != tc.want.Producers ||
			(got.Producer == nil) != (tc.want.Producer == nil) || got.Producer != nil && *got.Producer != *tc.want.Producer {
			t.Errorf("%s: %+v; want %+v", name, got, tc.want)
		}
	}
}

func TestAStreamsTime(t *testing.T) {
	t.Parallel()
	begun, ttl := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), int64(160)
	r := Record{TTL: &ttl, Touched: begun}
	for after, want := range map[time.Duration]struct{ expired, stale bool }{
		0: {}, 10 * time.Second: {}, 11 * time.Second: {stale: true}, 160 * time.Second: {stale: true}, 170 * time.Second: {stale: true},
		171 * time.Second: {expired: true, stale: true},
	} {
		if r.expired(begun.Add(after)) != want.expired || r.stale(begun.Add(after)) != want.stale {
			t.Errorf("after %s: expired %t, stale %t", after, r.expired(begun.Add(after)), r.stale(begun.Add(after)))
		}
	}
	fixed := Record{Expires: begun}
	if fixed.expired(begun.Add(-1)) || !fixed.expired(begun) || fixed.stale(begun.Add(time.Hour)) {
		t.Error("a stream with a fixed end does not end then")
	}
	if forever := (&Record{}); forever.expired(begun) || forever.stale(begun) {
		t.Error("a stream without an end has ended")
	}
}

func TestAForkInheritsUpToItsPlace(t *testing.T) {
	t.Parallel()
	r := Record{ID: "c", Inherited: []Segment{{"a", 10}, {"b", 20}}}
	for at, want := range map[uint64][]Segment{
		0: {{"a", 0}}, 5: {{"a", 5}}, 10: {{"a", 10}}, 15: {{"a", 10}, {"b", 15}}, 20: {{"a", 10}, {"b", 20}},
		33: {{"a", 10}, {"b", 20}, {"c", 33}},
	} {
		got := r.inherit(at)
		if len(got) != len(want) {
			t.Errorf("at %d: %v; want %v", at, got, want)
			continue
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("at %d: %v; want %v", at, got, want)
			}
		}
	}
}

func TestCursorsGrow(t *testing.T) {
	t.Parallel()
	now := time.Unix(cursorBegin, 0).Add(100 * cursorEvery)
	for sent, check := range map[string]func(string) bool{
		"":                     func(s string) bool { return s == "100" },
		"7":                    func(s string) bool { return s == "100" },
		"x":                    func(s string) bool { return s == "100" },
		"100":                  func(s string) bool { n, err := digits(s); return err == nil && n > 100 && n <= 100+cursorSpread },
		"400":                  func(s string) bool { n, err := digits(s); return err == nil && n > 400 },
		"99999999999999999999": func(s string) bool { return s == "100" },
	} {
		if got := nextCursor(sent, now); !check(got) {
			t.Errorf("after %q comes %s", sent, got)
		}
	}
}
