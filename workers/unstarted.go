package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// storeResult writes the result of a call and reports whether it was stored: the log knows a repeated result.
//
// A result of a call with side effects that was not started takes the start's place: it is stored under the
// id of the start's proof. So either the proof is on the log or this result, whoever comes first, and a worker
// that still makes ready for the call cannot start it any more. Its event has the id of every result. First is
// what is told before it.
func storeResult(ctx context.Context, b *streams.Bus, c schemas.Call, r schemas.Result, started bool, first ...schemas.Event) (bool, error) {
	id := schemas.FinishedID(c.Account, c.ID)
	fence := id
	if c.SideEffects() && !started {
		fence = schemas.StartedID(c.Account, c.ID, 1)
	}
	stored, err := streams.StoreFenced(ctx, b, schemas.NewEvent(c, schemas.CallFinished, id, r.Finished, r), fence, first...)
	return err == nil && !stored.Duplicate, err
}

// unstarted settles the job of a call whose result was written and which certainly started nothing,
// so that its group and whoever waits for it learn that. A call without a job has nothing to settle,
// and a job that has its end keeps it. It may be called again after an error: the first end counts.
func unstarted(ctx context.Context, b *streams.Bus, c schemas.Call, reason string) error {
	if !startsJob(c) {
		return nil
	}
	// Admission may have died before it made the record; the settler needs it.
	if _, err := lifecycle.EnsureJob(ctx, b, c); err != nil {
		return fmt.Errorf("look for the record of the job: %w", err)
	}
	return complete(ctx, b, schemas.Completion{
		Job: c.Job, Account: c.Account, State: schemas.JobUnstarted, Via: schemas.ViaCall, Reason: reason, Finished: b.Now(),
	})
}

// neverLaunched is unstarted for those who only know that the call's worker is gone: a job that may
// have been launched is left to whoever looks after it.
func neverLaunched(ctx context.Context, b *streams.Bus, c schemas.Call, reason string) error {
	if !startsJob(c) {
		return nil
	}
	p, err := lifecycle.EnsureJob(ctx, b, c)
	if err != nil {
		return fmt.Errorf("look for the record of the job: %w", err)
	}
	if p.Value.State != schemas.JobWaiting {
		return nil
	}
	return unstarted(ctx, b, c, reason)
}

// startsJob reports whether a call starts a job. One in the foreground does not, and a dead letter may
// name something that nobody could look up.
func startsJob(c schemas.Call) bool { return c.Job.Validate() == nil }

// complete tells the end of a job. That it has one already is no error.
func complete(ctx context.Context, b *streams.Bus, c schemas.Completion) error {
	if _, err := lifecycle.Complete(ctx, b, c); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("tell the end of the job: %w", err)
	}
	return nil
}
