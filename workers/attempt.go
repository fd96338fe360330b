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
	"github.com/sandjet/sandjet/tools"
)

// attempt runs a prepared call in its own goroutine, which the worker abandons if it does not end with its context. It therefore has a
// copy of what was prepared.
type attempt struct {
	w    *workerRun
	call schemas.Call
	prep *preparation // gets a lost instance again
	preparedCall

	live *outputStreamer
	left *leaving
}

// carried is the outcome of a run: a result, or an error with the output until then.
type carried struct {
	result  schemas.Result
	partial *schemas.Result
	err     error
}

// run runs the call in one of the ways that its tool has.
func (a *attempt) run(ctx context.Context) (c carried) {
	defer func() {
		if p := recover(); p != nil {
			a.w.Log.Error("tool or provider panicked", "call", a.call.ID, "panic", p, "stack", string(debug.Stack()))
			c = carried{result: lifecycle.FailedResult(a.call,
				schemas.OpErrorf(schemas.Internal, "run", "the call broke the worker's code: what it had done until then is done"))}
		}
	}()
	if in, ok := a.input.(schemas.AsyncStatusInput); ok {
		c.result, c.err = a.w.status.Answer(ctx, a.call, in)
		return c
	}
	if in, ok := a.input.(schemas.LoadSkillInput); ok {
		c.result, c.err = a.loadSkill(ctx, in.Name)
		return c
	}
	if a.direct != nil {
		a.w.stuck.inProcess(a.left)
		var able bool
		if c.result, able, c.err = a.plan.RunNative(ctx, a.direct, a.w.searches); !able {
			c.err = schemas.OpErrorf(schemas.Unsupported, "workspace", "the tool %s needs a sandbox: this workspace is only read", a.call.Tool)
		}
		return c
	}
	var handled bool
	if c.result, handled, c.err = a.native(ctx); handled {
		return c
	}
	c.result, c.partial, c.err = a.onProvider(ctx)
	return c
}

// loadSkill loads a skill by runs of this attempt, or in this process.
func (a *attempt) loadSkill(ctx context.Context, name string) (schemas.Result, error) {
	l := &skillLoader{w: a.w, call: a.call, mounts: a.command.Mounts, left: a.left}
	l.run = func(ctx context.Context, plan tools.Plan) (providers.Result, error) {
		cmd := a.command
		cmd.Script, cmd.Stdin, cmd.OutputLimit = plan.Script, plan.Stdin, plan.OutputLimit
		cmd.Output = func(providers.Chunk) {}
		return a.runUntilStarted(ctx, cmd)
	}
	return l.load(ctx, name)
}

// native runs a file tool in this process, if the provider gives access to its files.
func (a *attempt) native(ctx context.Context) (r schemas.Result, handled bool, err error) {
	filer, ok := providers.As[providers.Filer](a.w.Provider)
	if !ok || a.call.Tool == schemas.ToolBash || a.w.stuck.full(true) {
		return r, false, nil
	}
	a.w.stuck.inProcess(a.left)
	root, err := filer.OpenWorkspace(ctx, a.call.Account, a.command.Mounts[0])
	if schemas.CodeOf(err) == schemas.Unsupported { // this one cannot be reached from here
		return r, false, nil
	}
	if err != nil {
		return r, true, fmt.Errorf("open the workspace: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	r, handled, err = a.plan.RunNative(ctx, root, a.w.searches)
	return r, handled, err
}

// onProvider runs the call's command. partial is the output until an error.
func (a *attempt) onProvider(ctx context.Context) (r schemas.Result, partial *schemas.Result, err error) {
	cmd := a.command
	cmd.Output = func(providers.Chunk) {}
	if a.plan.Live {
		cmd.Output = a.live.write
	}
	result, err := a.runUntilStarted(ctx, cmd)
	if stop := a.live.end(ctx); stop != nil {
		a.w.Metrics.LiveStopped()
		a.w.Log.Warn("live output stopped early", "call", a.call.ID, "error", stop)
	}
	if err == nil {
		return a.plan.Render(result), nil, nil
	}
	if a.plan.Live && (result.Started || len(result.Stdout)+len(result.Stderr) > 0) {
		p := a.plan.Render(result)
		partial = &p
	}
	return r, partial, err
}

// runUntilStarted retries the command until it was started: a provider without room, or that lost the box, has started nothing, so a retry
// is safe. It waits as long as the service asks for, and does not retry if that is too late.
func (a *attempt) runUntilStarted(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	o := a.preparedCall
	o.command = cmd
	until := time.Now().Add(min(shortage, a.prep.left()))
	for attempt := 1; ; attempt++ {
		r, err := a.w.Provider.Run(ctx, o.command)
		pause := max(runAgain.After(attempt), schemas.RetryAfterOf(err))
		code := schemas.CodeOf(err)
		if err == nil || r.Started || ctx.Err() != nil || time.Now().Add(pause).After(until) {
			return r, err
		}
		switch {
		case code == schemas.NotFound && o.keep != "":
			if err := a.prep.reserve(ctx, &o); err != nil && !schemas.CodeOf(err).Retryable() {
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
