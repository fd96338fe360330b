package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// Events that wait for a slow reader are bounded in bytes besides their number.
func TestWhatWaitsForAReaderIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := New("http://gateway.test", "").Socket()
	f, err := s.follower("c", schemas.Cursor{}, false)
	if err != nil {
		t.Fatal(err)
	}
	cursor := func(n int) string { return fmt.Sprintf("e1_%020d", n) }
	hear := func(n int) {
		t.Helper()
		before := "-1"
		if n > 1 {
			before = cursor(n - 1)
		}
		var w wsFrame
		if err := json.Unmarshal(fmt.Appendf(nil, `{"op":"ev","conv":"c","cur":%q,"prev":%q,"data":{"specversion":"1.0","id":"%d",`+
			`"type":"call.output","source":"/accounts/acct_a","subject":"x","time":"2026-01-01T00:00:00Z","data":{"text":%q}}}`,
			cursor(n), before, n, strings.Repeat("x", 1<<20)), &w); err != nil {
			t.Fatal(err)
		}
		s.dispatch(w)
	}
	begin := func() { f.request, f.answered = 1, true }
	begin()
	for n := 1; n <= 20; n++ {
		hear(n)
	}
	items, err := s.take(f)
	if len(items) != 8 || err != nil || f.bytes != 0 || f.full {
		t.Fatalf("%d events waited, %v", len(items), err)
	}
	begin()
	for n := 9; n <= 20; n++ {
		hear(n)
	}
	if items, err := s.take(f); len(items) != 8 || items[0].Event.ID != "9" || err != nil {
		t.Errorf("%d events waited then, %v", len(items), err)
	}
}
