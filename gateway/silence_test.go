package gateway_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// TestWhoOnlyListensIsNotTakenForGone: a client of a busy conversation says nothing by itself, and is told something all
// the time. It is asked all the same whether it is there.
//
//guarantee:a-conversation-has-no-holes
func TestWhoOnlyListensIsNotTakenForGone(t *testing.T) {
	inTime(t, func(t *testing.T, e *edge, _ *keys) {
		s := e.socket()
		defer s.c.Close() // or else the gateway's end would write to nobody
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
