package workers

import (
	"context"
	"fmt"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// runID names the run of a call with side effects, of which there is one at most.
func runID(c schemas.Call) string { return c.EventID() }

// endRun ends what a dead worker has left running of the call, where boxes outlive their workers. The call is not reported as interrupted
// before that: a reader of that result may inspect the files and repeat the call, so nothing may still be writing. If this worker dies
// here, the next one does the same.
//
// It waits for what cannot be ended until it has ended by itself.
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
