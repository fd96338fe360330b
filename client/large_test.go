package client_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// largest is an event as large as there may be: its text is of characters that JSON writes with six bytes.
const largest = 6_300_000

// largeEvent is event n after event prev with so many bytes of data.
func largeEvent(n, prev, size int) string {
	return strings.Replace(ev(n, prev), `"data":{}`, `"data":{"text":"`+strings.Repeat(`\u0001`, size/6)+`"}`, 1)
}

func TestTheLargestEventIsRead(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, func(p *peer) {
		p.attached("-1")
		p.say(largeEvent(1, 0, largest), ev(2, 1))
		p.hear("detach")
	})
	same(t, told(t, s, schemas.Cursor{}, 2), "1", "2")
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, data, _ := strings.Cut(largeEvent(1, 0, largest), `"data":`)
		_, _ = io.WriteString(w, "id: "+cur(1)+"\ndata: "+strings.TrimSuffix(data, "}")+"\n\n")
	})
	same(t, take(t, c.Events(t.Context(), "c", schemas.Cursor{}), 1), "1")
}

// What is too large comes again with each connection: the socket ends after the second, and says what to do.
func TestAnEventThatIsTooLargeEndsTheReader(t *testing.T) {
	t.Parallel()
	const tooLarge = 9 << 20
	wantRemedy := func(what string, err error) {
		t.Helper()
		if schemas.CodeOf(err) != schemas.Exhausted || !strings.Contains(err.Error(), "use a newer client") {
			t.Errorf("%s: %v", what, err)
		}
	}
	gateway := func(p *peer) {
		p.attached("-1")
		_ = p.c.WriteMessage(1, []byte(largeEvent(1, 0, tooLarge))) // the client may be gone before it is written whole
		_, _, _ = p.c.ReadMessage()
	}
	s, done := sockets(t, gateway, gateway)
	for _, err := range s.Follow(t.Context(), "c", schemas.Cursor{}) {
		wantRemedy("a reader of the socket", err)
	}
	select {
	case err := <-done:
		wantRemedy("the socket", err)
	case <-time.After(90 * time.Second):
		t.Error("the socket has not ended")
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: "+cur(1)+"\ndata: "+strings.Repeat("x", tooLarge)+"\n\n")
	})
	for _, err := range c.Events(t.Context(), "c", schemas.Cursor{}) {
		wantRemedy("events", err)
	}
}

// An answer that is too large is not asked for again, and says what to do.
func TestAnAnswerThatIsTooLarge(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		answer(w, http.StatusOK, fmt.Sprintf(`{"id":"x","text":%q}`, strings.Repeat("x", 16<<20)))
	})
	_, err := c.Get(t.Context(), "x")
	if schemas.CodeOf(err) != schemas.Exhausted || !strings.Contains(err.Error(), "ask for less at once") || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}
