package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A proof is tried for some three seconds. Nothing was started: the call goes back to the log then.
const proofAttempts = 6

var proveAgain = wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // a constant

// start puts the proof of the start on the log. A call with side effects may run only after nil.
//
// A proof that is there already is somebody else's, or was stored by this very execution and the confirmation got lost.
// Either way the call goes back to the log: its next delivery looks. So it does when the proof took so long that the log
// may have forgotten another's: then it is there, and nothing was run.
func (t *execution) start(ctx context.Context) error {
	c := t.call
	event := lifecycle.StartEvent(c, t.w.me(), t.delivery.Attempt, t.w.Bus.Now())
	if !t.sideEffects {
		return t.startReading(ctx, event)
	}
	for attempt := 1; ; attempt++ {
		if err := t.assure(ctx); err != nil {
			return err
		}
		mine, err := lifecycle.Start(ctx, t.w.Bus, event, t.announcement()...)
		switch {
		case err == nil && !mine:
			return schemas.Errorf(schemas.Unavailable, "start", "the call was started or ended before: its state must be looked up")
		case err == nil && !t.w.holds(t.sure):
			t.w.Log.Warn("start of a call confirmed too late, call handed back", "call", c.ID)
			return schemas.Errorf(schemas.Unavailable, "start", "the proof of the start took too long: the call may be in other hands")
		case err == nil:
			t.proven, t.mine, t.announced = true, true, true
			return nil
		case !schemas.CodeOf(err).Retryable() || attempt == proofAttempts || !proveAgain.Sleep(ctx, attempt):
			return fmt.Errorf("prove the start: %w", err)
		}
	}
}

// startReading publishes the start of a call without side effects, which does not wait for it. After a long
// preparation it is looked first whether somebody has ended the call: nothing is published behind a result.
func (t *execution) startReading(ctx context.Context, event schemas.Event) error {
	if sure := t.w.holds(t.sure); !t.w.kept(t.sure) || clock.Since(t.sure.Since) > settleDelay/2 || t.unannounced() {
		state, err := t.read(ctx)
		if err != nil {
			return err
		}
		if state.Result != nil || state.Forgotten && !sure {
			return schemas.Wrap(schemas.Unavailable, "start", "the call was ended elsewhere", errElsewhere)
		}
	}
	for _, first := range t.announcement() {
		if err := streams.Precede(ctx, t.w.Bus, first); err != nil {
			return fmt.Errorf("publish call.accepted: %w", err)
		}
		t.announced = true
	}
	if _, err := streams.Events.PublishAsync(ctx, t.w.Bus, event); err != nil {
		t.w.Log.Warn("call.started not published", "call", t.call.ID, "error", err)
	}
	return nil
}
