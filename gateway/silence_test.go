package gateway_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestWhoOnlyListensIsNotTakenForGone: a client of a busy conversation sends nothing by itself and receives events all the time. It is
// still pinged.
//
//guarantee:a-conversation-has-no-holes
func TestWhoOnlyListensIsNotTakenForGone(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		s := e.socket()
		defer s.c.Close() // or else the gateway's end would write to a pipe without a reader
		s.write(`{"op":"attach","conv":"c_1"}`)
		s.until("live")
		const events, pause = 60, 5 * time.Second // for five minutes, and never silent for long
		for n := range events {
			time.Sleep(pause)
			e.note("c_1", n, "x")
			if f := s.next(); f.Op != "ev" || f.Data.Type != schemas.CallOutput {
				t.Fatalf("event %d: %+v", n, f)
			}
		}
	})
}
