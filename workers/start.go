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

// A proof is tried for some three seconds. Nothing was started: the call is redelivered then.
const proofAttempts = 6

var proveAgain = wait.Backoff{First: 50 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // a constant

// startWriter writes the start of a call.
type startWriter struct {
	w     *workerRun
	known *evidence
}

// start puts the proof of the start on the log. A call with side effects may run only after nil.
func (s startWriter) start(ctx context.Context) error {
	event := lifecycle.StartEvent(s.known.call, s.w.me(), s.known.attempt, s.w.Bus.Now())
	if s.known.sideEffects {
		return s.prove(ctx, event)
	}
	return s.publish(ctx, event)
}

// prove stores the proof of the start of a call with side effects.
//
// A proof that is there already is another worker's, or was stored by this very execution and the acknowledgement was lost.
// Either way the call is redelivered, and its next delivery reads the log. So it is when the proof took so long that the log
// may have forgotten another's: then this one is stored, and nothing was run.
func (s startWriter) prove(ctx context.Context, event schemas.Event) error {
	e := s.known
	for attempt := 1; ; attempt++ {
		if err := e.confirm(ctx); err != nil {
			return err
		}
		own, err := lifecycle.Start(ctx, s.w.Bus, event, e.announcement()...)
		switch {
		case err == nil && !own:
			return schemas.OpErrorf(schemas.Unavailable, "start", "the call was started or ended before: its state must be looked up")
		case err == nil && !e.fresh(e.asOf):
			s.w.Log.Warn("start of a call confirmed too late, call handed back", "call", e.call.ID)
			return schemas.OpErrorf(schemas.Unavailable, "start", "the proof of the start took too long: the call may be in other hands")
		case err == nil:
			e.started, e.ownStart, e.announced = true, true, true
			return nil
		case !schemas.CodeOf(err).Retryable() || attempt == proofAttempts || !proveAgain.Sleep(ctx, attempt):
			return fmt.Errorf("prove the start: %w", err)
		}
	}
}

// publish publishes the start of a call without side effects, which does not wait for it. After a long
// preparation it first reads whether another process has ended the call: nothing is published behind a result.
func (s startWriter) publish(ctx context.Context, event schemas.Event) error {
	e := s.known
	if fresh := e.fresh(e.asOf); !e.alive(e.asOf) || clock.Since(e.asOf.Since) > settleDelay/2 || e.announcementUnknown() {
		state, err := e.readLog(ctx)
		if err != nil {
			return err
		}
		if state.Result != nil || state.Forgotten && !fresh {
			return schemas.Wrap(schemas.Unavailable, "start", "the call was ended elsewhere", errElsewhere)
		}
	}
	for _, first := range e.announcement() {
		if err := streams.Precede(ctx, s.w.Bus, first); err != nil {
			return fmt.Errorf("publish call.accepted: %w", err)
		}
		e.announced = true
	}
	if _, err := streams.Events.PublishAsync(ctx, s.w.Bus, event); err != nil {
		s.w.Log.Warn("call.started not published", "call", e.call.ID, "error", err)
	}
	return nil
}
