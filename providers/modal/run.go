package modal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// The user of sandboxes.
const (
	userName = "root"
	homePath = "/root"
)

// commitFor is how long the files of a command may take to be kept that is ended.
const commitFor = 10 * time.Second

// StartLimit implements [providers.StartLimiter]: the image may have to be built before the first sandbox.
func (p *Provider) StartLimit() time.Duration { return p.opt.Build + p.opt.Start }

// Run runs cmd in a new sandbox, or in the persistent one that it names.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	level := isolation()
	res := providers.Result{Runtime: "modal/" + level.Level, Isolation: &level, Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := carry.Environment(cmd, userName, homePath)
	if err != nil {
		return res, err
	}
	cmd = cmd.WithDefaults()
	if err := p.work.Begin(); err != nil {
		return res, err
	}
	defer p.work.Done()
	r := &running{p: p, cmd: cmd, program: carry.ProgramOf(cmd, env), fresh: cmd.Sandbox.IsZero()}
	if err := r.enter(ctx); err != nil {
		return res, err
	}
	defer r.router.close()
	if r.fresh {
		defer p.leave(r.id)
	}
	run := carry.Run{Command: cmd, Program: r.program, Start: r.start, NotStarted: r.notStarted, Sweep: r.sweep, Fresh: r.fresh}
	res, err = run.Carry(ctx, res)
	if err == nil && !r.swept {
		err = r.commit(res)
	}
	return res, err
}

// running is a command that is being started or is in progress.
type running struct {
	p       *Provider
	cmd     providers.Command
	program boxrun.Command
	id      string // of the sandbox
	router  *router
	fresh   bool // the sandbox is for this command only
	process *process
	swept   bool // the sandbox was ended with the command
}

// spec returns the spec of the command's sandbox.
func (r *running) spec() providers.Spec {
	spec := r.cmd.Spec
	spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
	return spec
}

// enter makes the sandbox of a command, or finds the persistent one, and connects to it.
func (r *running) enter(ctx context.Context) error {
	if r.fresh {
		made, err := r.p.make(ctx, order{kind: kindRun, spec: r.spec(), life: r.program.Limit + max(spareTime, r.p.opt.Start),
			tags: map[string]string{tagRun: cloud.Digest(r.cmd.ID)}})
		if err == nil {
			r.id = made.id
			r.router, err = r.p.modal.enter(ctx, r.id)
			if err != nil {
				r.p.discard(r.id)
				err = explain("run", err)
			}
		}
		if code := schemas.CodeOf(err); err != nil && (code == schemas.NotFound || code == schemas.Conflict) {
			err = schemas.Wrap(schemas.Unavailable, "run", "the sandbox ended before the command was started", err)
		}
		return err
	}
	s, err := r.p.find(ctx, r.cmd.Sandbox)
	switch {
	case err != nil:
		return err
	case r.cmd.Spec.Account != "" && s.Tags[tagRules] != r.p.rulesOf(r.spec()):
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	r.id = s.ID
	if r.router, err = r.p.modal.enter(ctx, r.id); cloud.StatusOf(err) == http.StatusNotFound {
		return gone(err)
	} else if err != nil {
		return explain("run", err)
	}
	if len(r.cmd.Mounts) > 0 {
		if err := r.router.reload(ctx); err != nil {
			r.router.close()
			return r.notStarted(ctx, err)
		}
	}
	return nil
}

// show shows a workspace under its short name, and starts what follows.
const show = `[ "$(readlink ` + providers.WorkspacePath + `)" = "$1" ] || ln -sfn "$1" ` + providers.WorkspacePath + `
shift
exec "$@"`

// start starts the program in the sandbox.
func (r *running) start(ctx context.Context) (boxrun.Stream, error) {
	args := boxrun.Arguments("bash", carry.SearchPath)
	if len(r.cmd.Mounts) > 0 {
		args = append([]string{"env", "PATH=" + carry.SearchPath, "bash", "-c", show, "show", r.cmd.Mounts[0].Path()}, args...)
	}
	process, err := r.router.program(ctx, r.program.Limit+carry.AloneFor, r.fresh, args)
	if err != nil {
		return nil, err
	}
	r.process = process
	return process, nil
}

// writes returns the path of the workspace that the command may have written to; empty if there is none.
func (r *running) writes() string {
	if len(r.cmd.Mounts) == 0 || r.cmd.Mounts[0].ReadOnly {
		return ""
	}
	return r.cmd.Mounts[0].Path()
}

// commit stores what a command has written to its workspace. If that fails no caller may rely on it.
func (r *running) commit(res providers.Result) error {
	path := r.writes()
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := r.router.commit(ctx, path); err != nil {
		return schemas.Wrap(schemas.Interrupted, "run",
			fmt.Sprintf("the command ended with %d, and Modal has not said that its files in the workspace are kept", res.ExitCode), err)
	}
	return nil
}

// sweep kills the processes that the command has started, if its program did not.
func (r *running) sweep(mark string) error {
	if !r.fresh {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		return r.p.sweep(ctx, r.id, mark)
	}
	r.swept = true
	if path := r.writes(); path != "" {
		ctx, cancel := context.WithTimeout(context.Background(), commitFor)
		if err := r.router.commit(ctx, path); err != nil {
			r.p.log.Debug("files of an ended command may be lost", "sandbox", r.id, "error", err)
		}
		cancel()
	}
	return r.p.endNow(r.id)
}

// notStarted returns the error for a command that was not started.
func (r *running) notStarted(ctx context.Context, err error) error {
	if r.process != nil {
		if cause := r.process.failed(); cause != nil {
			err = cause
		}
	}
	var notStarted *boxrun.NotStartedError
	code := cloud.StatusOf(err)
	away := code == http.StatusNotFound || code == http.StatusPreconditionFailed || code == http.StatusConflict
	if !errors.As(err, &notStarted) && !away {
		return explain("run", err)
	}
	if !r.fresh {
		if _, there := r.p.find(ctx, r.cmd.Sandbox); errors.Is(there, schemas.ErrNotFound) {
			return gone(err)
		}
	}
	return schemas.Wrap(schemas.Unavailable, "run", "the sandbox did not start the command", err)
}
