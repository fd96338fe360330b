package inflight_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// TestWorkIsAwaited: Close refuses further calls, ends the context, and returns when nothing is in flight.
func TestWorkIsAwaited(t *testing.T) {
	t.Parallel()
	var w inflight.Work
	if err := w.Begin(); err != nil {
		t.Fatal(err)
	}
	ctx, ended := w.Context(), false
	w.Go(func() {
		<-ctx.Done()
		if err := w.Begin(); !errors.Is(err, schemas.ErrUnavailable) {
			t.Errorf("a call of a closed provider: %v", err)
		}
		w.Go(func() { ended = true })
		w.Done()
	})
	if ctx.Err() != nil {
		t.Error("the context has ended before Close")
	}
	w.Close()
	if !ended {
		t.Error("Close has returned before the work behind a call ended")
	}
	w.Close() // it may be closed twice
	var unused inflight.Work
	unused.Close()
	if unused.Context().Err() == nil {
		t.Error("the context of closed work has not ended")
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	var locks inflight.Locks
	first := locks.Of("name")
	if locks.Of("name") != first || locks.Of("other") == first {
		t.Error("names are not kept apart")
	}
	for i := range 10_001 { // they are bounded
		locks.Of(fmt.Sprint(i))
	}
	if locks.Of("name") == first {
		t.Error("nothing was forgotten")
	}
}
