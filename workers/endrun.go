package workers

import (
	"context"
	"fmt"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// runID names the run of a call with side effects, which is started once.
func (t *execution) runID() string { return t.call.EventID() }

// endRun ends what a worker that is gone has left running of the call, where boxes outlive their workers. Until it returns nil the call
// is not called interrupted: who reads that may look at what was done, and repeat it, and nothing may still be at it. A worker that
// dies in here leaves the call to the next one, which does the same.
//
// What cannot be ended is waited for until it has ended by itself.
func (t *execution) endRun(ctx context.Context) error {
	ender, ok := providers.As[providers.RunEnder](t.w.Provider)
	if !ok {
		return nil
	}
	if err := t.w.at(atEnding, t.call); err != nil {
		return err
	}
	err := ender.EndRun(ctx, sandboxes.Key(t.call), t.call.Account, t.runID())
	if err == nil {
		return t.w.at(atEnded, t.call)
	}
	limit := providers.StartLimitOf(t.w.Provider) + providers.RunLimit
	if ctx.Err() == nil && !t.known.lastStart.IsZero() && t.w.Bus.Now().Sub(t.known.lastStart) > limit {
		t.w.Log.Warn("end of an interrupted run not confirmed in time", "call", t.call.ID, "error", err)
		return nil
	}
	return fmt.Errorf("end what a dead worker has started: %w", err)
}
