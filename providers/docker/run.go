package docker

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/schemas"
)

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return startLimit }

// Run runs cmd in a fresh container, or in the kept one that it names. If the kernel kills a process in a kept container because memory
// ran out, OOMKilled is set for all commands that ran in it then.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	isolation := p.terms.isolation(cmd.Network.Mode)
	res := providers.Result{Runtime: "docker/" + level, Isolation: &isolation, Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.terms.check(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := environment(cmd, p.image.path)
	if err != nil {
		return res, err
	}
	cmd = cmd.WithDefaults()
	if err := p.work.Begin(); err != nil {
		return res, err
	}
	defer p.work.Done()
	e := &execution{
		containers: p.containers, workspaces: p.workspaces, kept: p.kept, processes: p.processes, work: p.work,
		cmd: cmd, fresh: cmd.Sandbox.IsZero(),
	}
	e.program = boxrun.Command{
		ID: cmd.ID, Shell: p.image.shell, Script: cmd.Script, Dir: dirOf(cmd), Env: env, Stdin: cmd.Stdin,
		Limit: cmd.Timeout + cmd.Grace + aloneFor,
	}
	if e.fresh {
		return p.runFresh(ctx, e, res)
	}
	return p.runKept(ctx, e, res)
}

// runFresh runs the command in a container of its own, which it then removes.
func (p *Provider) runFresh(ctx context.Context, e *execution, res providers.Result) (providers.Result, error) {
	r := p.terms.rules(e.cmd.Spec, e.cmd.Network, e.cmd.Mounts)
	if p.warm.suits(r) {
		defer func() {
			p.work.Go(func() { p.warm.fill(r) }) // for the next one like it, when this one has what it needs
		}()
		if got, done, err := p.runWarm(ctx, e, r, res); done {
			return got, err
		}
	}
	creds, err := p.secrets.forCall(r)
	if err != nil {
		return res, err
	}
	if err := e.hide(creds); err != nil {
		return res, err
	}
	if e.id, err = p.builder.createForCall(ctx, r, e.program, certificateOf(creds)); err != nil {
		return res, e.notStarted(ctx, err)
	}
	defer func() {
		p.work.Go(func() { p.containers.remove(e.id) }) // nothing runs in it any more
	}()
	s, err := p.containers.start(ctx, e.id)
	if err != nil {
		return res, e.notStarted(ctx, err)
	}
	defer s.Close()     //nolint:errcheck // it has no error
	if r.Relay != nil { // nothing of the call runs before the word to start
		if e.relay, err = p.relays.forCall(ctx, e.id, r, creds); err != nil {
			e.abandon()
			return res, e.notStarted(ctx, err)
		}
		defer e.relay.close()
	}
	return e.carryOut(ctx, s, res)
}

// runWarm runs the command in a container that was started in advance. Done is false if there is none or it was not usable; nothing was
// started then.
func (p *Provider) runWarm(ctx context.Context, e *execution, r rules, res providers.Result) (_ providers.Result, done bool, _ error) {
	one := p.warm.take(ctx, r)
	if one == nil {
		return res, false, nil
	}
	defer p.work.Go(func() { p.warm.discard(one) })
	if e.program.ID != "" {
		if err := p.warm.rename(ctx, one, e.program.ID); err != nil {
			return res, false, nil // making a container says why
		}
	}
	e.id = one.id
	got, err := e.carryOut(ctx, one.stream, res)
	code := schemas.CodeOf(err)
	if err != nil && !got.Started && ctx.Err() == nil && (code == schemas.Unavailable || code == schemas.NotFound) {
		p.containers.log.Debug("container created in advance not used, creating another", "container", one.id, "error", err)
		return res, false, nil
	}
	return got, true, err
}

// runKept runs the command in a kept container, beside others.
func (p *Provider) runKept(ctx context.Context, e *execution, res providers.Result) (providers.Result, error) {
	if err := p.kept.checkUsable(ctx, e.cmd); err != nil {
		return res, err
	}
	e.id = e.cmd.Sandbox.ID
	var err error
	var creds *egress.Credentials
	if e.relay, creds, err = p.relays.forKept(ctx, e.cmd); err != nil {
		return res, err
	}
	if err := e.hide(creds); err != nil {
		return res, err
	}
	if e.relay != nil {
		e.mark = e.relay.relay.Mark()
	}
	made, err := p.containers.engine.ExecCreate(ctx, e.id, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, User: p.processes.owner.String(), WorkingDir: "/",
		Cmd: boxrun.Arguments(p.image.shell, p.image.path),
	})
	if errdefs.IsConflict(err) { // it was stopped meanwhile
		return res, schemas.Wrap(schemas.NotFound, "run", "the sandbox is gone: reserve it again", err)
	}
	if err != nil {
		return res, e.notStarted(ctx, err)
	}
	attached, err := p.containers.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return res, e.notStarted(ctx, err)
	}
	return e.carryOut(ctx, &stream{HijackedResponse: attached.HijackedResponse}, res)
}

// environment returns a command's variables: only declared ones, and the reserved ones, which take precedence.
func environment(cmd providers.Command, path string) (map[string]string, error) {
	env := map[string]string{}
	for _, declared := range []map[string]string{cmd.Spec.Env, cmd.Env} {
		if err := boxrun.CheckEnv(declared); err != nil {
			return nil, err
		}
		maps.Copy(env, declared)
	}
	env["PATH"], env["HOME"], env["TMPDIR"], env["LANG"] = path, home, temp, "C.UTF-8"
	env["USER"], env["LOGNAME"] = "sandbox", "sandbox"
	if strings.Contains(cmd.Script, "\x00") || strings.Contains(cmd.Dir, "\x00") {
		return nil, schemas.Invalidf("script", "NUL is not allowed")
	}
	return env, nil
}

// dirOf returns the working directory of a command.
func dirOf(cmd providers.Command) string {
	switch {
	case cmd.Dir == "" && len(cmd.Mounts) > 0:
		return cmd.Mounts[0].Path()
	case cmd.Dir == "":
		return temp
	case cmd.Dir[0] != '/':
		return temp + "/" + cmd.Dir
	default:
		return cmd.Dir
	}
}
