package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// resultGrace is how long a result may take to be stored after the worker's hard stop.
const resultGrace = 5 * time.Second

var writeAgain = wait.Backoff{First: 50 * time.Millisecond, Most: time.Second} //nolint:gochecknoglobals // a constant

// finisher writes the only result of a call.
type finisher struct {
	w     *workerRun
	known *evidence
}

// finish writes the result, once, and settles the job if it was not started. It retries for as long as this worker may: a log that is
// briefly unavailable must not cost a result.
func (f finisher) finish(hard context.Context, r schemas.Result) error {
	call := f.known.call
	r.Finished = f.w.Bus.Now()
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	defer cancel()
	defer context.AfterFunc(hard, func() { time.AfterFunc(resultGrace, cancel) })()
	for attempt := 1; ; attempt++ {
		written, err := f.write(ctx, r)
		if written {
			f.w.Metrics.Finished(call.Tool, r.Status)
		}
		if err == nil {
			if f.known.result != nil {
				r = *f.known.result
			}
			err = f.settleJob(ctx, r)
		}
		if err == nil {
			return f.w.at(atFinished, call)
		}
		switch {
		case schemas.CodeOf(err) == schemas.Invalid:
			return fmt.Errorf("write the result: %w", err) // writing it again would fail again
		case errors.Is(err, errElsewhere):
			return streams.RetryAfter(retrySoon, err)
		}
		f.w.Log.Warn("result not written, retrying", "call", call.ID, "attempt", attempt, "error", err)
		if !writeAgain.Sleep(ctx, attempt) {
			return streams.RetryAfter(0, fmt.Errorf("write the result: %w", errors.Join(err, ctx.Err())))
		}
	}
}

// write publishes the result, unless another one may exist and does.
func (f finisher) write(ctx context.Context, r schemas.Result) (written bool, err error) {
	e := f.known
	unstarted := !e.started // when the result was made
	if e.stale() || e.announcementUnknown() {
		if done, err := f.hasResult(ctx, r, unstarted); done || err != nil {
			return false, err
		}
	}
	written, err = lifecycle.Finish(ctx, f.w.Bus, e.call, r, e.started, e.announcement()...)
	if err != nil || written {
		return written, err
	}
	done, err := f.hasResult(ctx, r, unstarted)
	if err == nil && !done {
		err = schemas.OpErrorf(schemas.Unavailable, "result", "the log has a start or a result of the call that cannot be read yet")
	}
	return false, err
}

// hasResult reads whether the call already has a result, which then counts.
func (f finisher) hasResult(ctx context.Context, r schemas.Result, unstarted bool) (bool, error) {
	e := f.known
	announced := e.announced
	state, err := e.readLog(ctx)
	switch {
	case err != nil:
		return false, err
	case state.Forgotten && announced: // it was there: retention has removed it, with the result that another has written
		return false, errElsewhere
	case state.Result != nil:
		if state.Result.Finished.Equal(r.Finished) && state.Result.Status == r.Status {
			e.result = nil // it is this execution's own, whose acknowledgement was lost
		} else {
			f.w.Log.Warn("late result dropped, the call has one", "call", e.call.ID, "status",
				r.Status, "has", state.Result.Status)
		}
		return true, nil
	case unstarted && e.sideEffects && len(state.Started) > 0:
		return false, errElsewhere
	}
	return false, nil
}

// settleJob settles the job of a background call with the result r, if the job was not launched. This execution may know that for certain;
// after another process's result the job's record decides, because that process may not have known of a launch.
func (f finisher) settleJob(ctx context.Context, r schemas.Result) error {
	e, known := f.known, lifecycle.AsRecorded
	switch {
	case e.call.Job == "", r.StatusID != "":
		return nil
	case e.notLaunched && e.result == nil:
		known = lifecycle.Certainly
	}
	return lifecycle.SettleNotStarted(ctx, f.w.Bus, e.call, whyUnstarted(r), known)
}

// whyUnstarted is the reason in the completion of a job that its call did not start.
func whyUnstarted(r schemas.Result) string {
	if r.Status == schemas.StatusFailed && r.Error != nil {
		return r.Error.Error()
	}
	return cmp.Or(r.Text, string(r.Status))
}
