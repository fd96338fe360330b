package daytona

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return p.opt.Start }

// Run runs cmd in a new sandbox, or in the persistent one that it names.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	level := isolation()
	res := providers.Result{Runtime: "daytona/" + level.Level, Isolation: &level, Sandbox: cmd.Sandbox, Notices: notices(cmd.Network)}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := carry.Environment(cmd, p.opt.User, p.home())
	if err != nil {
		return res, err
	}
	cmd = cmd.WithDefaults()
	if err := p.work.Begin(); err != nil {
		return res, err
	}
	defer p.work.Done()
	r := &running{p: p, cmd: cmd, fresh: cmd.Sandbox.IsZero()}
	if err := r.enter(ctx); err != nil {
		return res, err
	}
	if r.fresh {
		defer p.leave(r.box.ID)
	}
	run := carry.Run{
		Command: cmd, Program: carry.ProgramOf(cmd, env), Start: r.start, NotStarted: r.notStarted, Sweep: r.sweep, Fresh: r.fresh,
	}
	return run.Carry(ctx, res)
}

// running is a command that is being started or is in progress.
type running struct {
	p       *Provider
	cmd     providers.Command
	box     sandbox
	toolbox toolbox
	epoch   string // in which a kept sandbox must be
	fresh   bool   // the sandbox is for this command only
	process *spool.Process
}

// spec returns the spec of the command's sandbox.
func (r *running) spec() providers.Spec {
	spec := r.cmd.Spec
	spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
	return spec
}

// enter makes the sandbox of a command, or finds the persistent one.
func (r *running) enter(ctx context.Context) (err error) {
	if r.fresh {
		r.box, err = r.p.make(ctx, order{kind: kindRun, spec: r.spec(), labels: map[string]string{labelRun: cloud.Digest(r.cmd.ID)}})
		if code := schemas.CodeOf(err); err != nil && (code == schemas.NotFound || code == schemas.Conflict) {
			err = schemas.Wrap(schemas.Unavailable, "run", "the sandbox ended before the command was started", err)
		}
	} else {
		r.box, r.epoch, err = r.p.find(ctx, r.cmd.Sandbox)
	}
	switch {
	case err != nil:
		return err
	case r.fresh:
	case r.box.State != stateStarted:
		return gone(nil)
	case r.cmd.Spec.Account != "" && r.box.Labels[labelRules] != r.p.rulesOf(r.spec()):
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	if r.toolbox, err = r.p.toolboxOf(r.box); err != nil && r.fresh {
		r.p.discard(r.box.ID)
	}
	return err
}

// start returns the stream to the program in the sandbox, which the first write starts.
func (r *running) start(ctx context.Context) (boxrun.Stream, error) {
	r.process = spool.New(ctx, r.toolbox, r.epoch, boxrun.Arguments("bash", carry.SearchPath))
	r.process.Leave = r.fresh
	return r.process, nil
}

// sweep kills the processes that the command has started, if its program did not.
func (r *running) sweep(mark string) error {
	if r.fresh {
		return r.p.endNow(r.box.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return r.p.sweep(ctx, r.box.ID, r.toolbox, mark)
}

// notStarted returns the error for a command that was not started.
func (r *running) notStarted(ctx context.Context, err error) error {
	if cause := r.process.Failed(); cause != nil {
		err = cause
	}
	var told *boxrun.NotStartedError
	code := cloud.StatusOf(err)
	away := code == http.StatusNotFound || code == http.StatusBadRequest || code == http.StatusConflict || code == http.StatusBadGateway
	switch {
	case code == 0 && (schemas.CodeOf(err) == schemas.NotFound || schemas.CodeOf(err) == schemas.Exhausted):
		return err
	case !errors.As(err, &told) && !away:
		return explain("run", err)
	case r.fresh:
	default:
		if s, _, there := r.p.find(ctx, r.cmd.Sandbox); errors.Is(there, schemas.ErrNotFound) || there == nil && s.State != stateStarted {
			return gone(err)
		}
	}
	return schemas.Wrap(schemas.Unavailable, "run", "the sandbox did not start the command", err)
}
