package carry

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// AloneFor is how much longer than the worker would wait a command may run while nothing arrives from the worker.
	AloneFor = time.Minute
	// killPatience is how long the program in the sandbox may take to kill a command.
	killPatience = 10 * time.Second
	// exitTimeout is the exit code of a command that exceeded its time limit.
	exitTimeout = 124
)

// Run is one run of a command. All fields are required.
type Run struct {
	Command providers.Command // with defaults applied
	Program boxrun.Command
	// Start starts the program. After an error the command was not run: a program that was started nevertheless receives no message, and
	// ends.
	Start func(ctx context.Context) (boxrun.Stream, error)
	// NotStarted converts an error before the command's start to one with a code. Err may be the program's own error message.
	NotStarted func(ctx context.Context, err error) error
	// Sweep kills all processes with the mark if the program itself does not, and ends a sandbox that is for this command only. It has a
	// time limit of its own. If it returns [ErrSandboxEnded], that becomes the error of the run.
	Sweep func(mark string) error
	// Fresh is whether the sandbox is for this command only: then Sweep alone ends the command.
	Fresh bool

	session *boxrun.Session
	out     *output
}

// ProgramOf returns the boxrun command for cmd.
func ProgramOf(cmd providers.Command, env map[string]string) boxrun.Command {
	return boxrun.Command{
		ID: cmd.ID, Shell: "bash", Script: cmd.Script, Dir: dirOf(cmd), Env: env, Stdin: cmd.Stdin,
		Limit: cmd.Timeout + cmd.Grace + AloneFor,
	}
}

// Carry starts the command, waits for it to exit and returns its result. Res contains the fields that the provider knows already.
func (r *Run) Carry(ctx context.Context, res providers.Result) (providers.Result, error) {
	stream, err := r.Start(ctx)
	if err != nil {
		return res, r.notStarted(ctx, err)
	}
	r.out = newOutput(r.Command)
	r.session = boxrun.Start(stream, r.Program, r.out.take)
	defer r.session.Close() //nolint:errcheck // the stream has no error
	if err := r.session.Ready(ctx); err != nil {
		return res, r.notStarted(ctx, err)
	}
	if err := r.Command.MayBegin(); err != nil {
		return res, err // the program receives no message, and ends
	}
	began := time.Now()
	res.Started = true
	cause := r.await(ctx, r.session.Go())
	_ = r.session.Close() // no output is passed on after this
	res.Duration = time.Since(began)
	r.out.fill(&res)
	exit, ok := r.session.Exit()
	res.ExitCode, res.OOMKilled = exit.Code, exit.OOM
	switch {
	case errors.Is(cause, providers.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimeout
		return res, nil
	case cause != nil:
		return res, cause
	case !ok:
		return res, schemas.OpErrorf(schemas.Interrupted, "run",
			"the sandbox ended, or the connection to it broke, while the command ran: what it has done is not known")
	}
	return res, nil
}

// await waits until the command has ended and none of its processes is left. It returns nil if the command ended by itself, otherwise why
// it was ended. Unheard is the error of sending the start message, which may not have arrived; nil: it was sent.
func (r *Run) await(ctx context.Context, unheard error) error {
	var cause error
	if unheard == nil {
		cause = providers.Await(ctx, r.Command, r.session.Over(), r.session.Term)
		if _, ok := r.session.Exit(); ok && cause == nil {
			return nil
		}
	}
	switch left := r.end(); {
	case errors.Is(left, ErrSandboxEnded) && ctx.Err() != nil: // the caller that cancelled learns that the sandbox has ended
		return cmp.Or(cause, ctx.Err())
	case errors.Is(left, ErrSandboxEnded):
		return left
	case left != nil:
		return schemas.Wrap(schemas.Interrupted, "run", "the command could not be ended: it ends at its time limit", errors.Join(cause, left))
	}
	return cause
}

// end kills all processes that the command has started.
func (r *Run) end() error {
	if !r.Fresh {
		if r.session.Kill() == nil {
			r.over(killPatience)
		}
		if _, ok := r.session.Exit(); ok {
			return nil
		}
	}
	return r.Sweep(r.session.Mark())
}

// over waits for the end of the session, at most for patience.
func (r *Run) over(patience time.Duration) {
	clock := time.NewTimer(patience)
	defer clock.Stop()
	select {
	case <-r.session.Over():
	case <-clock.C:
	}
}

// notStarted returns the error for a command that was not started.
func (r *Run) notStarted(ctx context.Context, err error) error {
	switch code := schemas.CodeOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case code == schemas.Invalid || code == schemas.Exhausted:
		return err
	}
	return r.NotStarted(ctx, err)
}
