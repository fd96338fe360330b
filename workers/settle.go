package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// settleDelay is how long a cancelled call that is not in flight here is left alone, so that a
// worker that has just taken it can show its start. Up to as much again is added, so that one of
// many workers is the first.
const settleDelay = 300 * time.Millisecond

// settlement is a cancelled call that gets its result when it is due, if it has none by then.
type settlement struct {
	cancel schemas.Cancel
	at     time.Time // when the log took the request
	due    time.Time
}

// cancelRequested takes a request for the end of a call that came while this worker watches. It never blocks:
// what does not fit is settled when the call is delivered.
func (s *workerRun) cancelRequested(c schemas.Cancel, at time.Time) {
	fresh := s.cancels.add(c, at, s.Bus.Now())
	id := schemas.Call{Account: c.Account, ID: c.Call}.EventID()
	if s.inFlight.cancel(id, c, at) || !fresh {
		return
	}
	select {
	case s.settle <- settlement{cancel: c, at: at, due: time.Now().Add(settleDelay + wait.Upto(settleDelay))}:
	default:
	}
}

// settleCancelled gives cancelled calls that still wait in the queue their result, so that no client
// has to wait until they are delivered.
func (s *workerRun) settleCancelled(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-s.settle:
			if !wait.Sleep(ctx, time.Until(next.due)) {
				return
			}
			if err := s.settleOne(ctx, next.cancel, next.at); err != nil && ctx.Err() == nil {
				s.Log.Warn("cancelled call not finished, its next delivery finishes it", "call", next.cancel.Call, "error", err)
			}
		}
	}
}

// settleOne gives a cancelled call its result, if it is a call of this provider that was never
// started. One that was started is its worker's.
func (s *workerRun) settleOne(ctx context.Context, c schemas.Cancel, at time.Time) error {
	call, err := s.Bus.Calls().Find(ctx, c.Account, c.Call)
	switch {
	case schemas.CodeOf(err) == schemas.NotFound:
		return nil
	case err != nil:
		return fmt.Errorf("find the call: %w", err)
	case call.Provider != s.Name || !lifecycle.CancelConcerns(c, at, call.Accepted):
		return nil
	}
	now := s.Bus.Certainty()
	state, err := s.Bus.States().Read(ctx, call)
	if err != nil {
		return fmt.Errorf("look for the call on its conversation: %w", err)
	}
	if state.Result != nil || len(state.Started) > 0 || state.Forgotten { // what may have been run is left to its next delivery
		return nil
	}
	r := unrunResult(call, toCancel, c.Reason)
	written, err := lifecycle.FinishUnheld(ctx, s.Bus, r, state, now)
	if written {
		s.Metrics.Finished(call.Tool, r.Status)
	}
	return err
}
