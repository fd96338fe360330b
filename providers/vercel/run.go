package vercel

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return p.opt.Start }

// Run runs cmd in a new sandbox, or in the persistent one that it names.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	level := isolation()
	res := providers.Result{Runtime: "vercel/" + level.Level, Isolation: &level, Sandbox: cmd.Sandbox}
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
	r := &running{p: p, cmd: cmd, program: carry.ProgramOf(cmd, env), fresh: cmd.Sandbox.IsZero()}
	if err := r.enter(ctx); err != nil {
		return res, err
	}
	if r.fresh {
		defer p.leave(r.box.Sandbox.Name)
	}
	run := carry.Run{Command: cmd, Program: r.program, Start: r.start, NotStarted: r.notStarted, Sweep: r.sweep, Fresh: r.fresh}
	return run.Carry(ctx, res)
}

// running is a command that is being started or is in progress.
type running struct {
	p       *Provider
	cmd     providers.Command
	program boxrun.Command
	box     box
	fresh   bool // the sandbox is for this command only
	process *process
}

// spec returns the spec of the command's sandbox.
func (r *running) spec() providers.Spec {
	spec := r.cmd.Spec
	spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
	return spec
}

// digest returns the digest of a run's id for the name of its sandbox.
func digest(id string) string {
	if id == "" {
		return cloud.Random()
	}
	return cloud.Digest(id)
}

// enter makes the sandbox of a command, or finds the persistent one and extends its lifetime as needed.
func (r *running) enter(ctx context.Context) (err error) {
	life := r.program.Limit + max(spareTime, r.p.opt.Start)
	if r.fresh {
		r.box, err = r.p.make(ctx, order{name: r.p.nameOf(kindRun, digest(r.cmd.ID)), spec: r.spec(), life: life})
		if code := schemas.CodeOf(err); err != nil && (code == schemas.NotFound || code == schemas.Conflict) {
			err = schemas.Wrap(schemas.Unavailable, "run", "the sandbox ended before the command was started", err)
		}
		return err
	}
	b, id, err := r.p.find(ctx, r.cmd.Sandbox)
	if err != nil {
		return err
	}
	_, rules := birthOf(b.Sandbox)
	switch {
	case b.Session.ID != id || b.Session.Status != statusRunning:
		return gone(nil)
	case r.cmd.Spec.Account != "" && rules != r.p.rulesOf(r.spec()):
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	r.box = b
	return r.p.extend(ctx, b, max(life, r.p.opt.Idle), r.program.Limit)
}

// start returns the stream to the program in the sandbox, which the first write starts, in this session only.
func (r *running) start(ctx context.Context) (boxrun.Stream, error) {
	r.process = session{r.p.api, r.box.Session.ID}.program(ctx, r.program)
	r.process.leave = r.fresh
	return r.process, nil
}

// sweep kills the processes that the command has started, if its program did not.
func (r *running) sweep(mark string) error {
	if r.fresh {
		return r.p.endNow(r.box.Sandbox.Name, r.box.Session.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return r.p.sweep(ctx, r.box, mark)
}

// notStarted returns the error for a command that was not started.
func (r *running) notStarted(ctx context.Context, err error) error {
	if cause := r.process.failed(); cause != nil {
		err = cause
	}
	var notStarted *boxrun.NotStartedError
	switch {
	case cloud.StatusOf(err) == 0 && schemas.CodeOf(err) == schemas.Exhausted:
		return err
	case !errors.As(err, &notStarted) && !stopped(err) && cloud.StatusOf(err) != http.StatusNotFound:
		return explain("run", err)
	case r.fresh:
	default:
		b, id, there := r.p.find(ctx, r.cmd.Sandbox)
		if errors.Is(there, schemas.ErrNotFound) || there == nil && (b.Session.ID != id || b.Session.Status != statusRunning) {
			return gone(err)
		}
	}
	return schemas.Wrap(schemas.Unavailable, "run", "the sandbox did not start the command", err)
}
