package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
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

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return startLimit }

// Run runs cmd in a container of its own, or in the kept one that it names. In a kept container a command that was killed
// for want of memory makes OOMKilled true for all commands that were in it then.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	isolation := p.isolationOf(cmd.Network.Mode)
	res := providers.Result{Runtime: "docker/" + level, Isolation: &isolation, Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.check(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := p.environment(cmd)
	if err != nil {
		return res, err
	}
	cmd = cmd.WithDefaults()
	if err := p.begin(); err != nil {
		return res, err
	}
	defer p.ending.Done()
	r := &running{p: p, cmd: cmd, fresh: cmd.Sandbox.IsZero()}
	r.program = boxrun.Command{
		ID: cmd.ID, Shell: p.shell, Script: cmd.Script, Dir: dirOf(cmd), Env: env, Stdin: cmd.Stdin,
		Limit: cmd.Timeout + cmd.Grace + aloneFor,
	}
	if r.fresh {
		return r.inFresh(ctx, res)
	}
	return r.inKept(ctx, res)
}

// running is a command on its way.
type running struct {
	p       *Provider
	cmd     providers.Command
	program boxrun.Command
	id      string              // of the container
	fresh   bool                // the container is for this command only
	creds   *egress.Credentials // what stands for secrets in the container; nil: nothing does
	session *boxrun.Session
	out     *output
	way     *wayOut // out of the container; nil: none, or not this worker's
	mark    uint64  // what was refused before
}

// inFresh makes a container, runs the command as the one process that it is for, and has it removed.
func (r *running) inFresh(ctx context.Context, res providers.Result) (providers.Result, error) {
	p := r.p
	rules := p.rulesOf(r.cmd.Spec, r.cmd.Network, r.cmd.Mounts)
	if p.mayBeWarm(rules) {
		defer func() {
			p.ending.Go(func() { p.warmUp(rules) }) // for the next one like it, when this one has what it needs
		}()
		if got, done, err := r.inWarm(ctx, rules, res); done {
			return got, err
		}
	}
	var err error
	if r.creds, err = p.newCredentials(rules); err != nil {
		return res, err
	}
	if err := r.lock(r.creds); err != nil {
		return res, err
	}
	if r.id, err = p.makeForCall(ctx, rules, r.program, r.creds); err != nil {
		return res, r.notStarted(ctx, err)
	}
	defer func() {
		p.ending.Go(func() { p.remove(r.id) }) // nothing runs in it any more
	}()
	s, err := p.attachAndStart(ctx, r.id)
	if err != nil {
		return res, r.notStarted(ctx, err)
	}
	defer s.Close()         //nolint:errcheck // it has no error
	if rules.Relay != nil { // nothing of the call runs before the word to start
		if r.way, err = p.wayOf(ctx, r.id, rules, r.creds); err != nil {
			r.abandon()
			return res, r.notStarted(ctx, err)
		}
		defer r.way.close()
	}
	return r.carryOut(ctx, s, res)
}

// attachAndStart starts a container of a call, with its main process at the end of a stream.
func (p *Provider) attachAndStart(ctx context.Context, id string) (*stream, error) {
	attached, err := p.engine.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, err
	}
	s := &stream{HijackedResponse: attached.HijackedResponse}
	if _, err := p.engine.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		_ = s.Close() // it has no error
		return nil, err
	}
	return s, nil
}

// makeForCall makes the container of one call, whose main process is the program that runs it.
func (p *Provider) makeForCall(ctx context.Context, r rules, program boxrun.Command, creds *egress.Credentials) (id string, err error) {
	done, err := p.openMounts(ctx, r.Account, r.Mounts)
	if err != nil {
		return "", err
	}
	defer done()
	if r.Network == schemas.AllowAll && r.Relay == nil {
		if err := p.makeNetwork(ctx); err != nil {
			return "", err
		}
	}
	labels := map[string]string{labelUntil: until(time.Now().Add(program.Limit + aloneFor))}
	if program.ID != "" {
		labels[labelRun] = runLabel(program.ID)
	}
	o := p.containerOf(r, kindCall, labels)
	o.Name = p.opt.Installation + "-call-" + strings.ToLower(schemas.NewID(""))
	o.Config.Entrypoint = boxrun.Arguments(program.Shell, p.path)
	o.Config.OpenStdin, o.Config.StdinOnce = true, true // it ends with this process's connection
	o.Config.AttachStdin, o.Config.AttachStdout, o.Config.AttachStderr = true, true, true
	made, err := p.engine.ContainerCreate(ctx, o)
	if err != nil {
		return "", err
	}
	if err := p.furnish(ctx, made.ID, r, p.opt.WritableRoot, certificateOf(creds)); err != nil {
		p.ending.Go(func() { p.remove(made.ID) })
		return "", err
	}
	return made.ID, nil
}

// inKept runs the command beside others in a container that stays.
func (r *running) inKept(ctx context.Context, res providers.Result) (providers.Result, error) {
	p := r.p
	if err := p.stillThere(ctx, r.cmd); err != nil {
		return res, err
	}
	r.id = r.cmd.Sandbox.ID
	var err error
	var creds *egress.Credentials
	if r.way, creds, err = p.keptWay(ctx, r.cmd); err != nil {
		return res, err
	}
	if err := r.lock(creds); err != nil {
		return res, err
	}
	if r.way != nil {
		r.mark = r.way.relay.Mark()
	}
	made, err := p.engine.ExecCreate(ctx, r.id, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, User: fmt.Sprintf("%d:%d", p.opt.UID, p.opt.GID), WorkingDir: "/",
		Cmd: boxrun.Arguments(p.shell, p.path),
	})
	if errdefs.IsConflict(err) { // it was stopped meanwhile
		return res, schemas.Wrap(schemas.NotFound, "run", "the sandbox is gone: reserve it again", err)
	}
	if err != nil {
		return res, r.notStarted(ctx, err)
	}
	attached, err := p.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return res, r.notStarted(ctx, err)
	}
	return r.carryOut(ctx, &stream{HijackedResponse: attached.HijackedResponse}, res)
}

// notStarted says why nothing was started.
func (r *running) notStarted(ctx context.Context, err error) error {
	var told *boxrun.NotStartedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &told) && isFull(told.Text):
		return schemas.Wrap(schemas.Exhausted, "run", "the sandbox is full of processes or files", err)
	case errors.As(err, &told) && !r.fresh && r.p.stillThere(ctx, r.cmd) != nil:
		return schemas.Wrap(schemas.NotFound, "run", "the sandbox is gone: reserve it again", err)
	case schemas.CodeOf(err) != schemas.Internal:
		return err
	case r.fresh && errdefs.IsNotFound(err) && strings.Contains(err.Error(), "image"):
		return engineError("run", err)
	case r.fresh && errdefs.IsNotFound(err):
		return schemas.Wrap(schemas.Unavailable, "run", "the container was removed before it was started", err)
	default:
		return engineError("run", err)
	}
}

// carryOut starts the command by the program at the end of s, and sees it to its end.
func (r *running) carryOut(ctx context.Context, s *stream, res providers.Result) (providers.Result, error) {
	r.out = r.p.newOutput(r.cmd)
	defer r.out.close()
	r.session = boxrun.Start(s, r.program, r.out.take)
	defer r.session.Close() //nolint:errcheck // the stream has no error
	if err := r.session.Ready(ctx); err != nil {
		r.abandon()
		return res, r.notStarted(ctx, err)
	}
	if err := r.cmd.MayBegin(); err != nil {
		r.abandon()
		return res, err
	}
	began := time.Now()
	res.Started = true
	err := r.session.Go()
	var cause error
	if err == nil {
		cause = r.await(ctx)
	}
	_ = r.session.Close() // from here on nothing is handed over
	res.Duration = time.Since(began)
	if r.way != nil {
		if said := r.way.relay.Notices(r.mark); len(said) > 0 {
			r.out.take(true, said)
		}
	}
	r.out.fill(&res, r.p.log)
	exit, ok := r.session.Exit()
	res.ExitCode, res.OOMKilled = exit.Code, exit.OOM
	switch {
	case errors.Is(cause, providers.ErrTimeout):
		res.TimedOut, res.ExitCode = true, exitTimeout
		return res, nil
	case cause != nil:
		return res, cause
	case !ok:
		return r.withoutWord(ctx, res)
	default:
		return res, nil
	}
}

// abandon ends a program that has started nothing.
func (r *running) abandon() {
	if r.fresh {
		r.kill()
	}
}

// await returns when the command has ended and nothing of it is left that must not be: nil when it ended by itself, else
// why it was ended, or that it could not be.
func (r *running) await(ctx context.Context) error {
	cause := providers.Await(ctx, r.cmd, r.session.Over(), r.session.Term)
	var left error
	if cause != nil {
		left = r.end()
	} else if r.fresh {
		r.finish()
	} else if _, ok := r.session.Exit(); !ok {
		left = r.sweep()
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

// end kills all that the command has started and waits for that.
func (r *running) end() error {
	if r.fresh {
		r.kill()
		<-r.over(endTimeout)
		return nil
	}
	if r.session.Kill() == nil {
		<-r.over(killPatience)
	}
	if _, ok := r.session.Exit(); ok {
		return nil
	}
	return r.sweep()
}

// over is the end of the session, or of the waiting caller's time.
func (r *running) over(patience time.Duration) <-chan struct{} {
	done := make(chan struct{})
	r.p.ending.Go(func() {
		defer close(done)
		clock := time.NewTimer(patience)
		defer clock.Stop()
		select {
		case <-r.session.Over():
		case <-clock.C:
		}
	})
	return done
}

// finish waits until nothing is left of the container of a command that has ended, whose main process ends now.
func (r *running) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	ended := r.p.engine.ContainerWait(ctx, r.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-ended.Result:
	case err := <-ended.Error:
		r.p.log.Debug("end of a container not seen, killing it", "container", r.id, "error", err)
		r.kill()
	}
}

// kill kills all that is in the command's own container. It returns when that has ended.
func (r *running) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := r.p.kill(ctx, r.id); err != nil {
		r.p.log.Warn("container not killed, it ends at its time limit", "container", r.id, "error", err)
	}
}

// kill kills all that is in a container. It returns when that has ended; one that has ended already or is gone is no error.
func (p *Provider) kill(ctx context.Context, id string) error {
	_, err := p.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // not running is what is wanted
		return err
	}
	ended := p.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-ended.Result:
	case err := <-ended.Error:
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// sweep ends what is left in the kept container of a command whose program is gone.
func (r *running) sweep() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return r.p.sweepKept(ctx, r.id, r.session.Mark())
}

// sweepKept ends the processes with a mark in a kept container, repeatedly where that fails, for the container holds more than these.
// Ctx must have an end. One that is gone or stopped has nothing left.
func (p *Provider) sweepKept(ctx context.Context, id, mark string) error {
	return carry.Sweeping{
		Sandbox: id, Log: p.log,
		Sweep: func(ctx context.Context) error {
			if ended, err := p.awake(ctx, id); ended || err != nil {
				return err
			}
			return p.sweepOnce(ctx, id, mark)
		},
		Gone: func(ctx context.Context, _ error) (bool, error) { return p.awake(ctx, id) },
		End:  func(ctx context.Context) error { return p.kill(ctx, id) },
	}.Run(ctx)
}

// awake has a paused container continue, as the next command in it would, for none runs in a paused one. Ended is true
// of one that has no processes.
func (p *Provider) awake(ctx context.Context, id string) (ended bool, err error) {
	found, err := p.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case found.Container.State == nil || !found.Container.State.Running:
		return true, nil
	case !found.Container.State.Paused:
		return false, nil
	}
	_, err = p.engine.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	if errdefs.IsConflict(err) { // another process has unpaused it
		return false, nil
	}
	return false, err
}

// sweepOnce ends the processes with a mark, once. Its error is that of [boxrun.SweepResult], or the engine's.
func (p *Provider) sweepOnce(ctx context.Context, id, mark string) error {
	made, err := p.engine.ExecCreate(ctx, id, client.ExecCreateOptions{
		AttachStdout: true, User: fmt.Sprintf("%d:%d", p.opt.UID, p.opt.GID), WorkingDir: "/", Cmd: boxrun.TrySweepArguments(p.shell, p.path, mark),
	})
	if err != nil {
		return err
	}
	attached, err := p.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	_, _ = attached.Reader.WriteTo(io.Discard) // its end is the program's
	state, err := p.engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	switch {
	case err != nil:
		return err
	case state.Running:
		return schemas.Errorf(schemas.Unavailable, "sweep", "the connection to the sweep broke")
	}
	return boxrun.SweepResult(state.ExitCode, "")
}

// withoutWord is the result of a command whose program ended without a word: the container was ended, or every process in it that could
// report was killed.
func (r *running) withoutWord(ctx context.Context, res providers.Result) (providers.Result, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	found, err := r.p.engine.ContainerInspect(ctx, r.id, client.ContainerInspectOptions{})
	if err == nil && found.Container.State != nil && found.Container.State.OOMKilled {
		res.OOMKilled, res.ExitCode = true, exitKilled
		return res, nil
	}
	return res, schemas.Errorf(schemas.Interrupted, "run",
		"the sandbox ended, or what watched over the command in it was killed, while the command ran")
}

// remove removes a container with all that is in it.
func (p *Provider) remove(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_, err := p.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict: it is being removed
		p.log.Warn("container not removed, it is left for the sweep", "container", id, "error", err)
	}
}
