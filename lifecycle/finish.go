package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

// Finish writes the result of a call and reports whether it was stored: a second result of the call is not.
//
// If the call has side effects and was not started, the result is stored under the message id of its start event. The log accepts only one
// of the two, so a worker that is still preparing the call can no longer start it. The event's own id is that of every result. The events
// in first are published before it.
func Finish(ctx context.Context, b *streams.Bus, c schemas.Call, r schemas.Result, started bool, first ...schemas.Event) (bool, error) {
	e := finished(c, r)
	fence := e.ID
	if c.SideEffects() && !started {
		fence = schemas.StartedID(c.Account, c.ID, 1)
	}
	stored, err := streams.StoreFenced(ctx, b, e, fence, first...)
	if err == nil {
		err = wakeFor(ctx, b, c) // also for who has died in between
	}
	return err == nil && !stored.Duplicate, err
}

// finished returns the event of a result.
func finished(c schemas.Call, r schemas.Result) schemas.Event {
	return schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), r.Finished, r)
}

// FinishUnheld writes the result of a call that no worker handles, and settles the job that it would have started. If the job was launched
// after all, the result names it, and the job is left to its manager. It reports whether the result was written: another process may have
// ended or, if state shows no start, started the call since it was read. If state does not show the call's acceptance, that is published
// first. Looked must be from before state was read. Code: unavailable (state may be out of date: read it again).
func FinishUnheld(ctx context.Context, b *streams.Bus, r schemas.Result, state callstate.State, looked streams.Certainty) (bool, error) {
	c := state.Call
	if StartsJob(c) {
		p, err := EnsureJob(ctx, b, c)
		if err != nil {
			return false, fmt.Errorf("look for the record of the job: %w", err)
		}
		switch StartOf(p.Value) {
		case HasStarted:
			r = LaunchedResult(c, p.Value)
		case MayHaveStarted:
			r = MayRunResult(c)
		case NeverStarted:
		}
	}
	if !b.Holds(looked) {
		return false, schemas.OpErrorf(schemas.Unavailable, "result",
			"this process stalled, or its connection was lost: the call must be looked up again")
	}
	r.Finished = b.Now()
	var first []schemas.Event
	if !state.Accepted {
		first = append(first, schemas.AcceptedEvent(c))
	}
	written, err := Finish(ctx, b, c, r, len(state.Started) > 0, first...)
	if err != nil || !written {
		return false, err
	}
	return true, SettleNotStarted(ctx, b, c, r.Text, AsRecorded)
}

// FinishParked writes the result of a call that waited for an approval and is not released to a worker, and settles the job that it would
// have started, so that its group does not wait for it. Absent is a time at which the result was not stored. It is idempotent.
func FinishParked(ctx context.Context, b *streams.Bus, c schemas.Call, r schemas.Result, absent streams.Absence) error {
	r.Finished = b.Now()
	if _, err := streams.StoreOnce(ctx, b, finished(c, r), absent.Cautiously()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if err := wakeFor(ctx, b, c); err != nil {
		return fmt.Errorf("wake the turn that waits for the call: %w", err)
	}
	return SettleNotStarted(ctx, b, c, r.Text, Certainly)
}

// Knowledge says whether the caller of [SettleNotStarted] is certain.
type Knowledge bool

// How sure a caller is that a job was not started.
const (
	Certainly  Knowledge = true  // nothing was launched, whatever the record says
	AsRecorded Knowledge = false // only the call's worker is known to be gone: a job that may have been launched is left to its manager
)

// SettleNotStarted settles the job of a call that has its result and started nothing, so that its group and waiting requests are notified.
// It does nothing for a call without a job, and a job that has ended stays as it is. It may be called again after an error: the first end
// counts.
func SettleNotStarted(ctx context.Context, b *streams.Bus, c schemas.Call, reason string, k Knowledge) error {
	if !StartsJob(c) {
		return nil
	}
	p, err := EnsureJob(ctx, b, c) // admission may have died before it made the record; the settler needs it
	if err != nil {
		return fmt.Errorf("look for the record of the job: %w", err)
	}
	if k == AsRecorded && p.Value.State != schemas.JobWaiting {
		return nil
	}
	return CompleteOnce(ctx, b, schemas.Completion{
		Job: c.Job, Account: c.Account, State: schemas.JobUnstarted, ReportedBy: schemas.ReportedByCall, Reason: reason, Finished: b.Now(),
	})
}

// boxReplaced is why a job has failed whose box has made room for another.
const boxReplaced = "its sandbox was made again while it ran: it ended with the one before"

// EndJob settles a job with the end that its manager reports. A lost job is recorded as failed with the code interrupted if replaced is
// set, or if its instance's record names another sandbox than the job's: then the job cannot be found again. Any process may call it, and
// call it again after an error: the first end counts.
func EndJob(ctx context.Context, b *streams.Bus, j schemas.Job, end schemas.Completion, replaced bool) error {
	if end.State != schemas.JobLost {
		return CompleteOnce(ctx, b, end)
	}
	if !replaced {
		var err error
		if replaced, err = BoxReplaced(ctx, b, j); err != nil {
			return fmt.Errorf("look for the job's instance: %w", err)
		}
	}
	if replaced {
		end.State, end.Code, end.Reason = schemas.JobFailed, schemas.Interrupted, boxReplaced
	}
	return CompleteOnce(ctx, b, end)
}

// StartsJob reports whether a call on the log starts a job. A foreground call does not; a dead letter may contain an invalid job id.
func StartsJob(c schemas.Call) bool { return c.Job.Validate() == nil }

// CompleteOnce is [Complete] for callers that do not need to know which end counts: it returns no error if the job has one already.
func CompleteOnce(ctx context.Context, b *streams.Bus, c schemas.Completion) error {
	if _, err := Complete(ctx, b, c); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("publish the end of the job: %w", err)
	}
	return nil
}
