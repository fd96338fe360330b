package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

var writeAgain = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // a constant

// finish writes the result, once, and settles the job that it leaves unstarted. It tries for as long as this
// worker may: a log that is away for a moment must not cost a result.
func (t *execution) finish(hard context.Context, r schemas.Result) error {
	r.Finished = t.w.Bus.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(farewell, cancel) })()
	for attempt := 1; ; attempt++ {
		written, err := t.write(ctx, r)
		if written {
			t.w.Metrics.Finished(t.call.Tool, r.Status)
		}
		if err == nil {
			if t.had != nil {
				r = *t.had
			}
			err = t.settleUnlaunched(ctx, r)
		}
		if err == nil {
			return t.w.at(atFinished, t.call)
		}
		switch {
		case schemas.CodeOf(err) == schemas.Invalid:
			return fmt.Errorf("write the result: %w", err) // no use in saying it again
		case errors.Is(err, errElsewhere):
			return streams.RetryAfter(again, err)
		}
		t.w.Log.Warn("result not written, retrying", "call", t.call.ID, "attempt", attempt, "error", err)
		if !writeAgain.Sleep(ctx, attempt) {
			return streams.RetryAfter(0, fmt.Errorf("write the result: %w", errors.Join(err, ctx.Err())))
		}
	}
}

// write publishes the result unless there may be one already and there is.
func (t *execution) write(ctx context.Context, r schemas.Result) (written bool, err error) {
	unstarted := !t.proven // when the result was made
	if t.doubtful() || t.unannounced() {
		if done, err := t.hasResult(ctx, r, unstarted); done || err != nil {
			return false, err
		}
	}
	written, err = lifecycle.Finish(ctx, t.w.Bus, t.call, r, t.proven, t.announcement()...)
	if err != nil || written {
		return written, err
	}
	done, err := t.hasResult(ctx, r, unstarted)
	if err == nil && !done {
		err = schemas.Errorf(schemas.Unavailable, "result", "the log has a start or a result of the call that cannot be read yet")
	}
	return false, err
}

// hasResult looks whether the call has its result, which is kept then.
func (t *execution) hasResult(ctx context.Context, r schemas.Result, unstarted bool) (bool, error) {
	announced := t.announced
	state, err := t.read(ctx)
	switch {
	case err != nil:
		return false, err
	case state.Forgotten && announced: // it was there: retention has removed it, with the result that another has written
		return false, errElsewhere
	case state.Result != nil:
		if state.Result.Finished.Equal(r.Finished) && state.Result.Status == r.Status {
			t.had = nil // it is this execution's own, whose confirmation was lost
		} else {
			t.w.Log.Warn("late result dropped, the call has one", "call", t.call.ID, "status",
				r.Status, "has", state.Result.Status)
		}
		return true, nil
	case unstarted && t.sideEffects && len(state.Started) > 0:
		return false, errElsewhere
	}
	return false, nil
}
