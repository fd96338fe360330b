package docker

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// startLimit is how long an engine under load may take to create and start a container.
	startLimit = time.Minute
	// killPatience is how long the program in a kept container may take to kill a command before the container is ended.
	killPatience = 10 * time.Second
	// aloneFor is how much longer than its worker would wait a command may run when nothing arrives from the worker.
	aloneFor = time.Minute
	// exitTimeout is the exit code of a command whose time was over, exitKilled that of one that was killed.
	exitTimeout = 124
	exitKilled  = 137
)

// execution runs one command by the program at the end of a stream, and waits for it to exit.
type execution struct {
	containers *containers
	workspaces *workspaces
	kept       *keptContainers
	processes  *processes
	work       *inflight.Work

	cmd     providers.Command
	program boxrun.Command
	id      string // of the container
	fresh   bool   // the container is for this command only
	session *boxrun.Session
	out     *output
	relay   *containerRelay // of the container; nil: none, or not this worker's
	mark    uint64          // what the relay refused before
}

// notStarted returns the error for a command that was not started.
func (e *execution) notStarted(ctx context.Context, err error) error {
	var early *boxrun.NotStartedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &early) && isFull(early.Text):
		return schemas.Wrap(schemas.Exhausted, "run", "the sandbox is full of processes or files", err)
	case errors.As(err, &early) && !e.fresh && e.kept.checkUsable(ctx, e.cmd) != nil:
		return schemas.Wrap(schemas.NotFound, "run", "the sandbox is gone: reserve it again", err)
	case schemas.CodeOf(err) != schemas.Internal:
		return err
	case e.fresh && errdefs.IsNotFound(err) && strings.Contains(err.Error(), "image"):
		return engineError("run", err)
	case e.fresh && errdefs.IsNotFound(err):
		return schemas.Wrap(schemas.Unavailable, "run", "the container was removed before it was started", err)
	default:
		return engineError("run", err)
	}
}

// carryOut starts the command by the program at the end of s, waits for it to exit and returns its result.
func (e *execution) carryOut(ctx context.Context, s *stream, res providers.Result) (providers.Result, error) {
	e.out = newOutput(e.cmd, e.workspaces.spill(e.cmd.Mounts))
	defer e.out.close()
	e.session = boxrun.Start(s, e.program, e.out.take)
	defer e.session.Close() //nolint:errcheck // the stream has no error
	if err := e.session.Ready(ctx); err != nil {
		e.abandon()
		return res, e.notStarted(ctx, err)
	}
	if err := e.cmd.MayBegin(); err != nil {
		e.abandon()
		return res, err
	}
	began := time.Now()
	res.Started = true
	err := e.session.Go()
	var cause error
	if err == nil {
		cause = e.await(ctx)
	}
	_ = e.session.Close() // from here on nothing is handed over
	res.Duration = time.Since(began)
	if e.relay != nil {
		if said := e.relay.relay.Notices(e.mark); len(said) > 0 {
			e.out.take(true, said)
		}
	}
	e.out.fill(&res, e.containers.log)
	exit, ok := e.session.Exit()
	res.ExitCode, res.OOMKilled = exit.Code, exit.OOM
	switch {
	case errors.Is(cause, providers.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimeout
		return res, nil
	case cause != nil:
		return res, cause
	case !ok:
		return e.withoutWord(ctx, res)
	default:
		return res, nil
	}
}

// abandon ends the container of a program that has started nothing.
func (e *execution) abandon() {
	if e.fresh {
		e.kill()
	}
}

// await waits until the command has ended and its processes are gone, except background processes in a kept container. It returns nil if
// the command ended by itself, otherwise why it was ended, or that it could not be.
func (e *execution) await(ctx context.Context) error {
	cause := providers.Await(ctx, e.cmd, e.session.Over(), e.session.Term)
	var left error
	if cause != nil {
		left = e.end()
	} else if e.fresh {
		e.finish()
	} else if _, ok := e.session.Exit(); !ok {
		left = e.sweep()
	}
	switch {
	case errors.Is(left, carry.ErrSandboxEnded) && ctx.Err() != nil: // the caller that ended it learns that it has ended
		return cmp.Or(cause, ctx.Err())
	case errors.Is(left, carry.ErrSandboxEnded):
		return left
	case left != nil:
		return schemas.Wrap(schemas.Interrupted, "run", "the command could not be ended: it ends at its time limit", errors.Join(cause, left))
	}
	return cause
}

// end kills all processes that the command has started, and waits for their end.
func (e *execution) end() error {
	if e.fresh {
		e.kill()
		<-e.over(endTimeout)
		return nil
	}
	if e.session.Kill() == nil {
		<-e.over(killPatience)
	}
	if _, ok := e.session.Exit(); ok {
		return nil
	}
	return e.sweep()
}

// over returns a channel that is closed at the end of the session, at the latest after patience.
func (e *execution) over(patience time.Duration) <-chan struct{} {
	done := make(chan struct{})
	e.work.Go(func() {
		defer close(done)
		clock := time.NewTimer(patience)
		defer clock.Stop()
		select {
		case <-e.session.Over():
		case <-clock.C:
		}
	})
	return done
}

// finish waits until the container of an ended command has stopped, and kills it if it does not.
func (e *execution) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	ended := e.containers.engine.ContainerWait(ctx, e.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-ended.Result:
	case err := <-ended.Error:
		e.containers.log.Debug("end of a container not seen, killing it", "container", e.id, "error", err)
		e.kill()
	}
}

// kill kills the command's own container and waits for its end.
func (e *execution) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := e.containers.kill(ctx, e.id); err != nil {
		e.containers.log.Warn("container not killed, it ends at its time limit", "container", e.id, "error", err)
	}
}

// sweep kills the processes that a command has left in the kept container, after its program has ended.
func (e *execution) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return e.processes.sweep(ctx, e.id, e.session.Mark())
}

// withoutWord returns the result of a command whose program ended without reporting: the container was ended, or all processes in it that
// could report were killed.
func (e *execution) withoutWord(ctx context.Context, res providers.Result) (providers.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	found, err := e.containers.engine.ContainerInspect(ctx, e.id, client.ContainerInspectOptions{})
	if err == nil && found.Container.State != nil && found.Container.State.OOMKilled {
		res.OOMKilled, res.ExitCode = true, exitKilled
		return res, nil
	}
	return res, schemas.OpErrorf(schemas.Interrupted, "run",
		"the sandbox ended, or what watched over the command in it was killed, while the command ran")
}
