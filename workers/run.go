package workers

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/workers/guard"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

const (
	// shortage is how long a started call waits for a provider that has no room or is away. It cannot
	// go back to the log any more: another worker would have to take it for interrupted.
	shortage = 30 * time.Second
	// overtime is what a provider gets beyond a run's timeout and grace before its run is cancelled.
	overtime = 15 * time.Second
	// lastWords is how long a run whose context has ended may take to end, beyond its grace.
	lastWords = 5 * time.Second
)

// preparedCall is a call with all that its run needs.
type preparedCall struct {
	input   any
	plan    tools.Plan
	sandbox schemas.Sandbox
	command providers.Command
	keep    string // key of the kept box; empty: a fresh one
}

// run starts a call and stays with it until its result is on the log.
func (t *execution) run(ctx context.Context) error {
	defer func() { t.stay.Leave() }()
	if t.call.Job != "" {
		return t.launch(ctx)
	}
	if t.w.stuck.full(false) {
		return streams.RetryAfter(stuckPause, schemas.Errorf(schemas.Unavailable, "run", "as many runs as this worker has slots do not end: restart it"))
	}
	o, err := t.prepare(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil, schemas.CodeOf(err).Retryable():
		return streams.RetryAfter(awhile(err, t.delivery.Attempt), err) // nothing was started
	default:
		return t.finish(ctx, unpreparedResult(t.call, err))
	}
	if err := t.w.at(atPrepared, t.call); err != nil {
		return err
	}
	run, cancel := t.w.inFlight.running(ctx, t.call.EventID())
	defer cancel(nil)
	if reason, found, _ := t.cancelled(); found {
		return t.finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	if err := t.start(ctx); err != nil {
		return streams.RetryAfter(again, err)
	}
	// Once more, now that nobody else takes the call for one that was not started.
	if reason, found, _ := t.cancelled(); found {
		return t.finish(ctx, unrunResult(t.call, toCancel, reason))
	}
	begun, started := time.Now(), t.w.Bus.Now()
	t.w.Metrics.Wait(t.call.Tool, started.Sub(t.call.Accepted))
	if err := t.w.at(atStarted, t.call); err != nil {
		return err
	}
	result, err := t.carryOut(run, o)
	if err != nil {
		return streams.RetryAfter(0, err)
	}
	if err := t.w.at(atRan, t.call); err != nil {
		return err
	}
	t.w.Metrics.Run(t.call.Tool, time.Since(begun))
	result.Started = started
	return t.finish(ctx, result)
}

// prepare finds all that can be found before the start, so that what is wrong or away costs no
// start. Retryable codes: try again later.
func (t *execution) prepare(ctx context.Context) (o preparedCall, err error) {
	if t.call.Tool == schemas.ToolAsyncStatus && t.call.Refused == "" {
		return t.prepareStatus()
	}
	if o, err = t.compile(ctx); err != nil {
		return o, err
	}
	if in, ok := o.input.(schemas.BashInput); ok && in.Background { // admission names a job for each
		return o, &schemas.Error{Code: schemas.Unsupported, Field: "input.background", Message: "the call names no job: send it again"}
	}
	if o.sandbox.Persistent {
		err = t.reserve(ctx, &o)
	}
	return o, err
}

// compile finds the records that the call names and makes its command.
func (t *execution) compile(ctx context.Context) (o preparedCall, err error) {
	c := t.call
	if c.Refused != "" {
		return o, &schemas.Error{Code: schemas.Denied, Message: c.Refused}
	}
	if o.input, err = schemas.DecodeAcceptedInput(c.Tool, c.Input); err != nil {
		return o, err
	}
	if o.sandbox, err = t.sandbox(ctx); err != nil {
		return o, fmt.Errorf("sandbox of the call: %w", err)
	}
	if err := guarded(o); err != nil {
		return o, err
	}
	if c.Workspace != "" {
		if _, err = t.w.Specs.Workspace(ctx, c.Account, c.Workspace); err != nil {
			return o, fmt.Errorf("workspace of the call: %w", err)
		}
	}
	if o.plan, err = tools.Compile(c, o.input); err != nil {
		return o, fmt.Errorf("compile the call: %w", err)
	}
	o.command = t.command(o)
	o.plan.Timeout = o.command.Timeout // so that the text names what was applied
	return o, nil
}

// guarded refuses a command of bash that its sandbox's guard does not let through.
func guarded(o preparedCall) error {
	in, ok := o.input.(schemas.BashInput)
	if !ok {
		return nil
	}
	if r := guard.Check(in.Command, o.sandbox.Guard, o.sandbox.Runtimes); r != nil {
		return &schemas.Error{Code: schemas.Denied, Field: "input.command", Message: r.Text, Err: r}
	}
	return nil
}

// reserve gets the kept box of the call's sandbox, ready for use, when the provider can keep one.
func (t *execution) reserve(ctx context.Context, o *preparedCall) error {
	if !t.w.instances.Kept() {
		return nil // the profile says so, and admission has told
	}
	o.keep = sandboxes.Key(t.call)
	return t.acquire(ctx, o)
}

// acquire gets the kept box of an order. A call that had to reserve its box again is in there once.
func (t *execution) acquire(ctx context.Context, o *preparedCall) error {
	stay, err := t.w.instances.Acquire(ctx, sandboxes.Request{
		Call: t.call, Sandbox: o.sandbox, Command: o.command, ScriptTimeout: t.timeoutOf(o.sandbox, 0),
		Interruptible: func(ctx context.Context) (context.Context, func()) { return t.w.inFlight.within(ctx, t.call.EventID()) },
		Hooked:        func() error { return t.w.at(atHooked, t.call) },
	})
	if err != nil {
		return err
	}
	t.stay.Leave()
	t.stay, o.command.Sandbox = stay, stay.Ref()
	return nil
}

// start puts the proof of the start on the log. A call with side effects may run only after nil.
//
// A proof that is there already is somebody else's, or was stored by this very execution and the word of
// it got lost. Either way the call goes back to the log: its next delivery looks. So it does when the
// proof took so long that the log may have forgotten another's: then it is there, and nothing was run.
func (t *execution) start(ctx context.Context) error {
	c := t.call
	event := lifecycle.StartEvent(c, t.w.me(), t.delivery.Attempt, t.w.Bus.Now())
	if !c.SideEffects() {
		return t.startReading(ctx, event)
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		if err := t.assure(ctx); err != nil {
			return err
		}
		mine, err := lifecycle.Start(ctx, t.w.Bus, event, t.announcement()...)
		switch {
		case err == nil && !mine:
			return schemas.Errorf(schemas.Unavailable, "start", "the call was started or ended before: what became of it must be looked up")
		case err == nil && !t.w.holds(t.sure):
			t.w.Log.Warn("a start is not carried out: its proof took too long", "call", c.ID)
			return schemas.Errorf(schemas.Unavailable, "start", "the proof of the start took too long: the call may be in other hands")
		case err == nil:
			t.proven, t.mine, t.announced = true, true, true
			return nil
		case !schemas.CodeOf(err).Retryable() || wait > time.Second || !sleep(ctx, wait):
			return fmt.Errorf("tell of the start: %w", err)
		}
	}
}

// startReading tells of the start of a call without side effects, which does not wait for it. After a long
// preparation it is looked first whether somebody has ended the call: nothing is told behind a result.
func (t *execution) startReading(ctx context.Context, event schemas.Event) error {
	if !t.w.kept(t.sure) || clock.Since(t.sure.Since) > settleDelay/2 || t.unannounced() {
		state, err := t.read(ctx)
		if err != nil {
			return err
		}
		if state.Result != nil {
			return schemas.Wrap(schemas.Unavailable, "start", "the call was ended elsewhere", errElsewhere)
		}
	}
	for _, first := range t.announcement() {
		if err := streams.Precede(ctx, t.w.Bus, first); err != nil {
			return fmt.Errorf("tell that the call was accepted: %w", err)
		}
		t.announced = true
	}
	if _, err := streams.Events.PublishAsync(ctx, t.w.Bus, event); err != nil {
		t.w.Log.Warn("call.started not published", "call", t.call.ID, "error", err)
	}
	return nil
}

// carryOut runs the order and returns its result, or an error when the call is to be handed back:
// one without side effects whose run was ended by the worker's stop.
//
// A run that does not end with its context is left to itself: its slot comes back whatever a tool or a provider does.
func (t *execution) carryOut(ctx context.Context, o preparedCall) (schemas.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.command.Timeout+o.command.Grace+overtime)
	defer cancel()
	l := t.streamer()
	done := make(chan carried, 1)
	left := new(leaving)
	t.w.runs.Go(func() {
		defer t.w.stuck.returned(left)
		done <- t.attempt(ctx, o, l, left)
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
		t.w.Log.Error("a run does not end with its context and is left to itself", "call", t.call.ID, "tool", t.call.Tool)
		c.err = schemas.Errorf(schemas.Timeout, "run", "the run did not end at its time and could not be killed: what it had done until then is done")
	}
	if c.err == nil { // what was carried out to its end counts, also if somebody asked for its end
		c.result.Call, c.result.Conversation, c.result.Tool = t.call.ID, t.call.Conversation, t.call.Tool
		return c.result, nil
	}
	return t.ended(ctx, c.partial, c.err)
}

// carried is what came of a run: a result, or an error with what had been printed.
type carried struct {
	result  schemas.Result
	partial *schemas.Result
	err     error
}

// attempt runs the order in one of the ways in which its tool can be run.
func (t *execution) attempt(ctx context.Context, o preparedCall, l *outputStreamer, left *leaving) (c carried) {
	defer func() {
		if p := recover(); p != nil {
			t.w.Log.Error("a tool or provider panicked", "call", t.call.ID, "panic", p, "stack", string(debug.Stack()))
			c = carried{result: lifecycle.FailedResult(t.call, schemas.Errorf(schemas.Internal, "run", "the call broke the worker's code: what it had done until then is done"))}
		}
	}()
	var handled bool
	if c.result, handled, c.err = t.status(ctx, o); handled {
		return c
	}
	if c.result, handled, c.err = t.native(ctx, o, left); handled {
		return c
	}
	c.result, c.partial, c.err = t.onProvider(ctx, o, l)
	return c
}

// ended finds the result of a run that was not carried out to its end.
func (t *execution) ended(ctx context.Context, partial *schemas.Result, err error) (schemas.Result, error) {
	cause := context.Cause(ctx)
	byHand, isCancel := errors.AsType[cancelError](cause)
	switch {
	case isCancel:
		return endedResult(t.call, schemas.Cancelled, lifecycle.Because(lifecycle.TextKilled, byHand.reason), partial), nil
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded) && !t.call.SideEffects():
		return schemas.Result{}, err
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded):
		return endedResult(t.call, schemas.Broken, lifecycle.TextStopped, partial), nil
	case schemas.CodeOf(err) == schemas.Interrupted && t.call.SideEffects():
		return endedResult(t.call, schemas.Broken, lifecycle.TextInterrupted, partial), nil
	}
	t.w.Log.Warn("run failed", "call", t.call.ID, "code", schemas.CodeOf(err), "error", err)
	return withPartial(lifecycle.FailedResult(t.call, err), partial), nil
}

// native runs a file tool in this process, where the provider lets its files be reached.
func (t *execution) native(ctx context.Context, o preparedCall, left *leaving) (r schemas.Result, handled bool, err error) {
	filer, ok := providers.As[providers.Filer](t.w.Provider)
	if !ok || t.call.Tool == schemas.ToolBash || t.w.stuck.full(true) {
		return r, false, nil
	}
	t.w.stuck.inProcess(left)
	root, err := filer.OpenWorkspace(ctx, t.call.Account, o.command.Mounts[0])
	if err != nil {
		return r, true, fmt.Errorf("open the workspace: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	r, handled, err = o.plan.RunNative(ctx, root)
	return r, handled, err
}

// onProvider runs the order's command. Partial is what had been printed when there is an error.
func (t *execution) onProvider(ctx context.Context, o preparedCall, l *outputStreamer) (r schemas.Result, partial *schemas.Result, err error) {
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
// started nothing, so asking again is safe.
func (t *execution) persist(ctx context.Context, o preparedCall) (providers.Result, error) {
	until := time.Now().Add(min(shortage, t.left()))
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		r, err := t.w.Provider.Run(ctx, o.command)
		code := schemas.CodeOf(err)
		if err == nil || r.Started || ctx.Err() != nil || time.Now().Add(wait).After(until) {
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
		select {
		case <-ctx.Done():
			return r, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// sandbox finds the rules of the call's box. Without a sandbox the call only reads: the box reaches nothing
// and has the usual limits. Without a workspace there is nothing that a kept box could be kept for.
func (t *execution) sandbox(ctx context.Context) (schemas.Sandbox, error) {
	c := t.call
	if c.Sandbox == "" {
		return schemas.Sandbox{Account: c.Account, Provider: c.Provider, Network: schemas.Network{Mode: schemas.DenyAll}}, nil
	}
	s, err := t.w.Specs.Sandbox(ctx, c.Account, c.Sandbox)
	s.Persistent = s.Persistent && c.Workspace != ""
	return s, err
}

// command is the run of an order, in a box kept to the sandbox's rules.
func (t *execution) command(o preparedCall) providers.Command {
	cmd := o.plan.Command()
	if c := t.call; c.Workspace != "" {
		mount := providers.Mount{Namespace: schemas.Namespace(c.Account, c.Workspace), ReadOnly: o.plan.ReadOnly && !o.sandbox.Persistent}
		cmd.Dir, cmd.Mounts = mount.Path(), []providers.Mount{mount}
	}
	cmd.Env = o.sandbox.EnvVars
	cmd.Network = o.sandbox.Network
	cmd.Timeout = t.timeout(o.sandbox)
	if cmd.OutputLimit == 0 { // a file tool's answer needs what it needs
		cmd.OutputLimit = outputLimit(o.sandbox)
	}
	cmd.Spec = providers.Spec{
		Account: t.call.Account, Network: o.sandbox.Network, Mounts: cmd.Mounts, Env: o.sandbox.EnvVars, MemoryLimit: o.sandbox.MemoryLimit,
	}
	return cmd
}

// timeout is the call's own, else its sandbox's, within the bounds of the provider and the deadline.
func (t *execution) timeout(s schemas.Sandbox) time.Duration {
	return t.timeoutOf(s, time.Duration(t.call.Timeout))
}

// timeoutOf is d, or where that is 0 the sandbox's, within the same bounds.
func (t *execution) timeoutOf(s schemas.Sandbox, d time.Duration) time.Duration {
	if d <= 0 {
		d = time.Duration(s.Timeout)
	}
	if d <= 0 {
		d = schemas.DefaultTimeout
	}
	d = min(d, schemas.MaxTimeout, max(t.left(), time.Millisecond))
	if most := providers.ProfileOf(t.w.Provider).MaxTimeout; most > 0 {
		d = min(d, time.Duration(most))
	}
	return d
}

func outputLimit(s schemas.Sandbox) int {
	if s.OutputLimit <= 0 {
		return schemas.DefaultOutputLimit
	}
	return min(s.OutputLimit, schemas.MaxOutputLimit)
}

// streamer makes the call's live output.
func (t *execution) streamer() *outputStreamer {
	n, sure := 0, t.sure
	return &outputStreamer{call: t.call.ID, attempt: t.delivery.Attempt, publish: func(d schemas.OutputData) (func(context.Context) error, error) {
		var err error
		if sure, err = t.stillRuns(sure); err != nil {
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
