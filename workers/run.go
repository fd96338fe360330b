package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/jobs"
)

const (
	// shortage is how long a started call waits for a provider that has no room or is away. It cannot
	// go back to the log any more: another worker would have to take it for interrupted.
	shortage = 30 * time.Second
	// overtime is what a provider gets beyond a run's start, timeout and grace before its run is cancelled.
	overtime = 15 * time.Second
	// lastWords is how long a run whose context has ended may take to end, beyond its grace.
	lastWords = 5 * time.Second
)

var runAgain = wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second} //nolint:gochecknoglobals // a constant

// foreground is the run of a call that waits for its end.
type foreground struct {
	t *execution
	preparedCall

	use  *use     // of a copy of files on S3
	left *outputs // what the call leaves for people
}

// prepare finds all that can be found before the start.
func (f *foreground) prepare(ctx context.Context) (err error) {
	t := f.t
	if t.w.stuck.full(false) {
		return errStuck
	}
	if t.call.Tool == schemas.ToolAsyncStatus && t.call.Unfit() == nil {
		f.input, err = t.call.TypedInput() // it needs neither sandbox nor workspace
		f.command.Timeout = jobs.StatusWithin
		return err
	}
	if f.preparedCall, err = t.compile(ctx); err != nil {
		return err
	}
	if in, ok := f.input.(schemas.BashInput); ok && in.Background { // admission names a job for each
		return &schemas.Error{Code: schemas.Unsupported, Field: "input.background", Message: "the call names no job: send it again"}
	}
	if f.use, err = t.bringIn(ctx, f.preparedCall); err != nil {
		return err
	}
	if f.sandbox.Persistent {
		if err = t.reserve(ctx, &f.preparedCall); err != nil {
			return err
		}
	}
	f.left, err = t.lookBefore(ctx, f.preparedCall) // also after hooks: what they change is no call's
	return err
}

func (f *foreground) later(err error) bool { return schemas.CodeOf(err).Retryable() }

// run carries the call out under a context that ends when somebody ends the call, also if that was asked for before.
func (f *foreground) run(hard context.Context) (schemas.Result, error) {
	ctx, cancel := f.t.w.inFlight.running(hard, f.t.call.EventID())
	defer cancel(nil)
	r, err := f.t.carryOut(ctx, &f.preparedCall)
	if err != nil {
		return r, streams.RetryAfter(0, err)
	}
	if err := f.left.collect(hard, &r); err != nil {
		return r, err
	}
	f.use.takeOut(hard, &r)
	return r, nil
}

func (f *foreground) ran(context.Context, schemas.Result) {}
func (f *foreground) abandon(context.Context)             { f.use.abandon() }

func (f *foreground) close() {
	f.use.leave()
	f.left.close()
	_ = f.preparedCall.close() // it was only read
}

// carryOut runs the order and returns its result, or an error when the call is to be handed back:
// one without side effects whose run was ended by the worker's stop, or one of which something may still run.
//
// A run that does not end with its context is left to itself: its slot comes back whatever a tool or a provider does.
func (t *execution) carryOut(ctx context.Context, o *preparedCall) (schemas.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, longest(o.command, providers.StartLimitOf(t.w.Provider), t.left()))
	defer cancel()
	if o.command.ID != "" {
		check := newLiveCheck(t.known, t.w.inFlight)
		o.command.Begin = func() error { return check.await(ctx) }
	}
	l := t.streamer()
	done := make(chan carried, 1)
	left := new(leaving)
	t.w.runs.Go(func() {
		defer t.w.stuck.returned(left)
		done <- t.runOnce(ctx, *o, l, left)
	})
	c, ok := carried{}, false
	select {
	case c = <-done:
		ok = true
	case <-ctx.Done():
		select {
		case c = <-done:
			ok = true
		case <-time.After(o.command.Grace + lastWords):
		}
	}
	if !ok {
		t.w.stuck.abandon(left)
		l.abandon()
		t.w.Log.Error("run did not end with its context, abandoned", "call", t.call.ID, "tool", t.call.Tool)
		c.err = schemas.Errorf(schemas.Timeout, "run",
			"the run did not end at its time and could not be killed: what it had done until then is done")
	}
	if c.err == nil { // what was carried out to its end counts, also if somebody asked for its end
		c.result.Call, c.result.Conversation, c.result.Tool = t.call.ID, t.call.Conversation, t.call.Tool
		return c.result, nil
	}
	return t.ended(ctx, c.partial, c.err)
}

// longest is how long the provider has for a command: its time, and before that what a sandbox may take to start, as long as both end
// by the call's deadline. It is pure.
func longest(cmd providers.Command, start, left time.Duration) time.Duration {
	return max(cmd.Timeout, min(start+cmd.Timeout, left)) + cmd.Grace + overtime
}

// carried is what came of a run: a result, or an error with what had been printed.
type carried struct {
	result  schemas.Result
	partial *schemas.Result
	err     error
}

// runOnce runs the order in one of the ways in which its tool can be run.
func (t *execution) runOnce(ctx context.Context, o preparedCall, l *outputStreamer, left *leaving) (c carried) {
	defer func() {
		if p := recover(); p != nil {
			t.w.Log.Error("tool or provider panicked", "call", t.call.ID, "panic", p, "stack", string(debug.Stack()))
			c = carried{result: lifecycle.FailedResult(t.call,
				schemas.Errorf(schemas.Internal, "run", "the call broke the worker's code: what it had done until then is done"))}
		}
	}()
	if in, ok := o.input.(schemas.AsyncStatusInput); ok {
		c.result, c.err = t.w.status.Answer(ctx, t.call, in)
		return c
	}
	if in, ok := o.input.(schemas.LoadSkillInput); ok {
		c.result, c.err = t.loadSkill(ctx, o, in, left)
		return c
	}
	if o.direct != nil {
		t.w.stuck.inProcess(left)
		var able bool
		if c.result, able, c.err = o.plan.RunNative(ctx, o.direct, t.w.searches); !able {
			c.err = schemas.Errorf(schemas.Unsupported, "workspace", "the tool %s needs a sandbox: this workspace is only read", t.call.Tool)
		}
		return c
	}
	var handled bool
	if c.result, handled, c.err = t.native(ctx, o, left); handled {
		return c
	}
	c.result, c.partial, c.err = t.onProvider(ctx, o, l)
	return c
}

// ended finds the result of a run that was not carried out to its end, or an error when the call is to be handed back.
func (t *execution) ended(ctx context.Context, partial *schemas.Result, err error) (schemas.Result, error) {
	cause := context.Cause(ctx)
	byHand, isCancel := errors.AsType[cancelError](cause)
	switch {
	case isCancel && unended(err):
		return endedResult(t.call, schemas.StatusCancelled, lifecycle.Because(lifecycle.TextUnended, byHand.reason), partial), nil
	case ctx.Err() != nil && !isCancel && unended(err) && t.sideEffects: // who takes it over waits until nothing of it is left
		return schemas.Result{}, err
	case isCancel:
		return endedResult(t.call, schemas.StatusCancelled, lifecycle.Because(lifecycle.TextKilled, byHand.reason), partial), nil
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded) && !t.sideEffects:
		return schemas.Result{}, err
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded):
		return endedResult(t.call, schemas.StatusInterrupted, lifecycle.TextStopped, partial), nil
	case schemas.CodeOf(err) == schemas.Interrupted && t.sideEffects:
		if err := t.endRun(ctx); err != nil { // the next delivery tries again
			return schemas.Result{}, err
		}
		return endedResult(t.call, schemas.StatusInterrupted, lifecycle.TextInterrupted, partial), nil
	}
	t.w.Log.Warn("run failed", "call", t.call.ID, "code", schemas.CodeOf(err), "error", err)
	return withPartial(lifecycle.FailedResult(t.call, err), partial), nil
}

// unended reports whether a run may go on whose context has ended: its provider could not end it.
func unended(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err) // that of the context itself has a code too
	return ok && e.Code == schemas.Interrupted
}

// native runs a file tool in this process, where the provider lets its files be reached.
func (t *execution) native(ctx context.Context, o preparedCall, left *leaving) (r schemas.Result, handled bool, err error) {
	filer, ok := providers.As[providers.Filer](t.w.Provider)
	if !ok || t.call.Tool == schemas.ToolBash || t.w.stuck.full(true) {
		return r, false, nil
	}
	t.w.stuck.inProcess(left)
	root, err := filer.OpenWorkspace(ctx, t.call.Account, o.command.Mounts[0])
	if schemas.CodeOf(err) == schemas.Unsupported { // this one cannot be reached from here
		return r, false, nil
	}
	if err != nil {
		return r, true, fmt.Errorf("open the workspace: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	r, handled, err = o.plan.RunNative(ctx, root, t.w.searches)
	return r, handled, err
}

// onProvider runs the order's command. Partial is what had been printed when there is an error.
func (t *execution) onProvider(ctx context.Context, o preparedCall,
	l *outputStreamer) (r schemas.Result, partial *schemas.Result, err error) {
	o.command.Output = func(providers.Chunk) {}
	if o.plan.Live {
		o.command.Output = l.write
	}
	result, err := t.persist(ctx, o)
	if stop := l.end(ctx); stop != nil {
		t.w.Metrics.LiveStopped()
		t.w.Log.Warn("live output stopped early", "call", t.call.ID, "error", stop)
	}
	if err == nil {
		return o.plan.Render(result), nil, nil
	}
	if o.plan.Live && (result.Started || len(result.Stdout)+len(result.Stderr) > 0) {
		p := o.plan.Render(result)
		partial = &p
	}
	return r, partial, err
}

// persist runs the command until it was started: a provider that has no room or lost the box has
// started nothing, so asking again is safe. It is asked no sooner than its service wants to be, and not at all where that is too late.
func (t *execution) persist(ctx context.Context, o preparedCall) (providers.Result, error) {
	until := time.Now().Add(min(shortage, t.left()))
	for attempt := 1; ; attempt++ {
		r, err := t.w.Provider.Run(ctx, o.command)
		pause := max(runAgain.After(attempt), schemas.RetryAfterOf(err))
		code := schemas.CodeOf(err)
		if err == nil || r.Started || ctx.Err() != nil || time.Now().Add(pause).After(until) {
			return r, err
		}
		switch {
		case code == schemas.NotFound && o.keep != "":
			if err := t.reserve(ctx, &o); err != nil && !schemas.CodeOf(err).Retryable() {
				return r, err
			}
		case !code.Retryable():
			return r, err
		}
		if !wait.Sleep(ctx, pause) {
			return r, context.Cause(ctx)
		}
	}
}

// streamer makes the call's live output.
func (t *execution) streamer() *outputStreamer {
	n, check := 0, newLiveCheck(t.known, t.w.inFlight)
	return &outputStreamer{call: t.call.ID, attempt: t.attempt,
		publish: func(d schemas.OutputData) (func(context.Context) error, error) {
			if err := check.unfinished(); err != nil {
				return nil, err
			}
			n++
			event := schemas.NewEvent(t.call, schemas.CallOutput, schemas.OutputID(t.call.Account, t.call.ID, d.Attempt, n), t.w.Bus.Now(), d)
			f, err := streams.Events.PublishAsync(context.Background(), t.w.Bus, event)
			if err != nil {
				return nil, err
			}
			return f.Wait, nil
		}}
}
