package durable

import (
	"testing"

	"github.com/sandjet/sandjet/streams"
)

// A page has so many messages, and so many bytes with what each takes beside its data; the first is there however large it is.
func TestAPageOfADurableStreamIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bytes, want int
	}{
		"single bytes": {1, pageMessages},
		"small":        {messageBytes, pageMessages},
		"large":        {pageBytes / 4, 3},
		"one":          {pageBytes, 1},
	} {
		var p page
		data := make([]byte, tc.bytes)
		n := 0
		for n < 2*pageMessages && p.add(streams.DurableEntry{Seq: uint64(n + 1), Data: data}) {
			n++
		}
		if n != tc.want || len(p.messages) != n || p.next != uint64(n) {
			t.Errorf("%s: %d messages, %d of them kept, next %d; want %d", name, n, len(p.messages), p.next, tc.want)
		}
		if p.size > pageBytes && n > 1 {
			t.Errorf("%s: %d bytes", name, p.size)
		}
	}
	var p page
	data := []byte("ab")
	if !p.add(streams.DurableEntry{Seq: 7, Data: data}) || !p.add(streams.DurableEntry{Seq: 9}) || p.next != 9 || len(p.messages) != 1 {
		t.Errorf("a message without data: %+v", p)
	}
	if data[0] = 'x'; string(p.messages[0].data) != "ab" {
		t.Error("the page keeps what the log has sent")
	}
}
