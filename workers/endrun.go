package workers

import (
	"context"
	"fmt"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// runID names the run of a call with side effects, which is started once.
func runID(c schemas.Call) string { return c.EventID() }

// endRun ends what a worker that is gone has left running of the call, where boxes outlive their workers. Until it returns nil the call
// is not called interrupted: who reads that may look at what was done, and repeat it, and nothing may still be at it. A worker that
// dies in here leaves the call to the next one, which does the same.
//
// What cannot be ended is waited for until it has ended by itself.
func (s *workerRun) endRun(ctx context.Context, known *evidence) error {
	call := known.call
	ender, ok := providers.As[providers.RunEnder](s.Provider)
	if !ok {
		return nil
	}
	if err := s.at(atEnding, call); err != nil {
		return err
	}
	err := ender.EndRun(ctx, sandboxes.Key(call), call.Account, runID(call))
	if err == nil {
		return s.at(atEnded, call)
	}
	limit := providers.StartLimitOf(s.Provider) + providers.RunLimit
	if ctx.Err() == nil && !known.lastStart.IsZero() && s.Bus.Now().Sub(known.lastStart) > limit {
		s.Log.Warn("end of an interrupted run not confirmed in time", "call", call.ID, "error", err)
		return nil
	}
	return fmt.Errorf("end what a dead worker has started: %w", err)
}
