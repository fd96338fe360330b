package workers

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/jobs"
)

const (
	// shortage is how long a started call waits for a provider that has no room or is unavailable. It cannot
	// be redelivered any more: another worker would have to take it for interrupted.
	shortage = 30 * time.Second
	// runMargin is what a provider gets beyond a run's start, timeout and grace before its run is cancelled.
	runMargin = 15 * time.Second
	// endGrace is how long a run whose context has ended may take to end, beyond its grace.
	endGrace = 5 * time.Second
)

var runAgain = wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // a constant

// foreground is the run of a call that waits for its end.
type foreground struct {
	w     *workerRun
	call  schemas.Call
	known *evidence
	prep  *preparation
	preparedCall

	use  *use     // of a copy of files on S3
	left *outputs // what the call leaves for people
}

// prepare finds all that can be found before the start.
func (f *foreground) prepare(ctx context.Context) (err error) {
	if f.w.stuck.full(false) {
		return errStuck
	}
	if f.call.Tool == schemas.ToolAsyncStatus && f.call.Unfit() == nil {
		f.input, err = f.call.TypedInput() // it needs neither sandbox nor workspace
		f.command.Timeout = jobs.StatusWithin
		return err
	}
	if f.preparedCall, err = f.prep.compile(ctx); err != nil {
		return err
	}
	if in, ok := f.input.(schemas.BashInput); ok && in.Background { // admission names a job for each
		return &schemas.Error{Code: schemas.Unsupported, Field: "input.background", Message: "the call names no job: send it again"}
	}
	if f.use, err = f.prep.copyIn(ctx, f.preparedCall); err != nil {
		return err
	}
	if f.sandbox.Persistent {
		if err = f.prep.reserve(ctx, &f.preparedCall); err != nil {
			return err
		}
	}
	if f.left, err = f.w.outputsOf(f.known, f.sandbox, f.files); err != nil {
		return err
	}
	f.left.lookBefore(ctx, f.prep.left()) // also after hooks: what they change is no call's
	return nil
}

func (f *foreground) temporary(err error) bool { return schemas.CodeOf(err).Retryable() }

// run carries the call out under a context that ends when the call is cancelled, also if that was asked for before.
func (f *foreground) run(hard context.Context) (schemas.Result, error) {
	ctx, cancel := f.w.inFlight.running(hard, f.call.EventID())
	defer cancel(nil)
	r, err := f.carryOut(ctx)
	if err != nil {
		return r, streams.RetryAfter(0, err)
	}
	if err := f.left.collect(hard, &r); err != nil {
		return r, err
	}
	f.use.takeOut(hard, &r)
	return r, nil
}

func (f *foreground) release(context.Context, schemas.Result) {}
func (f *foreground) abandon(context.Context)                 { f.use.abandon() }

func (f *foreground) close() {
	f.use.leave()
	f.left.close()
	_ = f.preparedCall.close() // it was only read
}

// carryOut runs the call and returns its result, or an error when the call is to be redelivered:
// one without side effects whose run was ended by the worker's stop, or one of which something may still run.
//
// A run that does not end with its context is left to itself: its slot comes back whatever a tool or a provider does.
func (f *foreground) carryOut(ctx context.Context) (schemas.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, longest(f.command, providers.StartLimitOf(f.w.Provider), f.prep.left()))
	defer cancel()
	if f.command.ID != "" {
		check := newLiveCheck(f.known, f.w.inFlight)
		f.command.Begin = func() error { return check.await(ctx) }
	}
	l := f.streamer()
	done := make(chan carried, 1)
	left := new(leaving)
	a := &attempt{w: f.w, call: f.call, prep: f.prep, preparedCall: f.preparedCall, live: l, left: left}
	f.w.runs.Go(func() {
		defer f.w.stuck.returned(left)
		done <- a.run(ctx)
	})
	c, ok := carried{}, false
	select {
	case c = <-done:
		ok = true
	case <-ctx.Done():
		select {
		case c = <-done:
			ok = true
		case <-time.After(f.command.Grace + endGrace):
		}
	}
	if !ok {
		f.w.stuck.abandon(left)
		l.abandon()
		f.w.Log.Error("run did not end with its context, abandoned", "call", f.call.ID, "tool", f.call.Tool)
		c.err = schemas.OpErrorf(schemas.Timeout, "run",
			"the run did not end at its time and could not be killed: what it had done until then is done")
	}
	if c.err == nil { // what was carried out to its end counts, also if it was cancelled meanwhile
		c.result.Call, c.result.Conversation, c.result.Tool = f.call.ID, f.call.Conversation, f.call.Tool
		return c.result, nil
	}
	return f.ended(ctx, c.partial, c.err)
}

// longest is how long the provider has for a command: its time, and before that what a sandbox may take to start, as long as both end
// by the call's deadline. It is pure.
func longest(cmd providers.Command, start, left time.Duration) time.Duration {
	return max(cmd.Timeout, min(start+cmd.Timeout, left)) + cmd.Grace + runMargin
}

// ended finds the result of a run that was not carried out to its end, or an error when the call is to be redelivered.
func (f *foreground) ended(ctx context.Context, partial *schemas.Result, err error) (schemas.Result, error) {
	cause := context.Cause(ctx)
	byHand, isCancel := errors.AsType[cancelError](cause)
	switch {
	case isCancel && unended(err):
		return endedResult(f.call, schemas.StatusCancelled, lifecycle.Because(lifecycle.TextUnended, byHand.reason), partial), nil
	case ctx.Err() != nil && !isCancel && unended(err) && f.known.sideEffects: // the next worker waits until nothing of it is left
		return schemas.Result{}, err
	case isCancel:
		return endedResult(f.call, schemas.StatusCancelled, lifecycle.Because(lifecycle.TextKilled, byHand.reason), partial), nil
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded) && !f.known.sideEffects:
		return schemas.Result{}, err
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded):
		return endedResult(f.call, schemas.StatusInterrupted, lifecycle.TextStopped, partial), nil
	case schemas.CodeOf(err) == schemas.Interrupted && f.known.sideEffects:
		if err := f.w.endRun(ctx, f.known); err != nil { // the next delivery tries again
			return schemas.Result{}, err
		}
		return endedResult(f.call, schemas.StatusInterrupted, lifecycle.TextInterrupted, partial), nil
	}
	f.w.Log.Warn("run failed", "call", f.call.ID, "code", schemas.CodeOf(err), "error", err)
	return withPartial(lifecycle.FailedResult(f.call, err), partial), nil
}

// unended reports whether a run may still be running whose context has ended: its provider could not end it.
func unended(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err) // that of the context itself has a code too
	return ok && e.Code == schemas.Interrupted
}

// streamer makes the call's live output.
func (f *foreground) streamer() *outputStreamer {
	n, check := 0, newLiveCheck(f.known, f.w.inFlight)
	return &outputStreamer{call: f.call.ID, attempt: f.known.attempt,
		publish: func(d schemas.OutputData) (func(context.Context) error, error) {
			if err := check.unfinished(); err != nil {
				return nil, err
			}
			n++
			event := schemas.NewEvent(f.call, schemas.CallOutput, schemas.OutputID(f.call.Account, f.call.ID, d.Attempt, n), f.w.Bus.Now(), d)
			sent, err := streams.Events.PublishAsync(context.Background(), f.w.Bus, event)
			if err != nil {
				return nil, err
			}
			return sent.Wait, nil
		}}
}
