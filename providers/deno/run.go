package deno

import (
	"context"
	"errors"
	"maps"
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
	res := providers.Result{Runtime: "deno/" + level.Level, Isolation: &level, Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	if _, err := carry.Environment(cmd, "", ""); err != nil { // before anything is made
		return res, err
	}
	cmd = cmd.WithDefaults()
	if err := p.work.Begin(); err != nil {
		return res, err
	}
	defer p.work.Done()
	r := &running{p: p, cmd: cmd, fresh: cmd.Sandbox.IsZero()}
	at, err := r.enter(ctx)
	if r.door != nil {
		defer r.door.Close()
	}
	if r.fresh && r.box.ID != "" {
		defer r.leave()
	}
	if err != nil {
		return res, err
	}
	env, err := carry.Environment(cmd, at.User, at.Home)
	if err != nil {
		return res, err
	}
	maps.Copy(env, at.Puts) // the service knows the values, and the sandbox does not
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
	door    *door
	fresh   bool // the sandbox is for this command only
	process *spool.Process
}

// spec returns the spec of the command's sandbox.
func (r *running) spec() providers.Spec {
	spec := r.cmd.Spec
	spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
	return spec
}

// enter makes the sandbox of a command, or finds the persistent one and extends its lifetime as needed.
func (r *running) enter(ctx context.Context) (place, error) {
	limit := carry.ProgramOf(r.cmd, nil).Limit
	if r.fresh {
		box, first, err := r.p.make(ctx, order{box: kindRun + cloud.Digest(r.cmd.ID), spec: r.spec(), life: limit + max(spareTime, r.p.opt.Start)})
		if code := schemas.CodeOf(err); err != nil && (code == schemas.NotFound || code == schemas.Conflict) {
			err = schemas.Wrap(schemas.Unavailable, "run", "the sandbox ended before the command was started", err)
		}
		if err != nil {
			return place{}, err
		}
		r.box, r.door = box, r.p.doorOf(box.ID, first)
		at, err := r.p.workspaces.furnish(ctx, r.door, r.spec())
		return at, err
	}
	var err error
	if r.box, err = r.p.find(ctx, r.cmd.Sandbox); err != nil {
		return place{}, err
	}
	if r.cmd.Spec.Account != "" && r.box.facts().rules != r.p.rulesOf(r.spec()) {
		return place{}, schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	life, err := r.p.extend(ctx, r.box.ID, mostLife)
	switch code := cloud.StatusOf(err); {
	case code == http.StatusNotFound || code == http.StatusGone:
		return place{}, gone(err)
	case err != nil:
		return place{}, explain("run", err)
	case life < min(limit, leastLife):
		return place{}, schemas.OpErrorf(schemas.Unavailable, "run", "Deno ends the sandbox in %s, and the command may take %s", life, limit)
	}
	r.door = r.p.doorOf(r.box.ID, nil)
	at, err := r.p.workspaces.furnishOnce(ctx, r.door, r.box.Labels[labelBirth], r.spec())
	if cloud.StatusOf(err) == http.StatusNotFound {
		err = gone(err)
	}
	return at, err
}

// leave kills the sandbox of a command that has ended. It waits until the service has accepted the request, but not until the sandbox is
// gone.
func (r *running) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), killEach)
	defer cancel()
	if err := r.p.kill(ctx, r.box.ID); err != nil {
		r.p.discard(r.box.ID)
	}
}

// start returns the stream to the program in the sandbox, which the first write starts.
func (r *running) start(ctx context.Context) (boxrun.Stream, error) {
	r.process = spool.New(ctx, r.door, "", boxrun.Arguments("bash", carry.SearchPath))
	r.process.Leave = r.fresh
	return r.process, nil
}

// sweep kills the processes that the command has started, if its program did not.
func (r *running) sweep(mark string) error {
	if r.fresh {
		return r.p.endNow(r.box)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return r.p.sweep(ctx, r.box, r.door, mark)
}

// notStarted returns the error for a command that was not started.
func (r *running) notStarted(ctx context.Context, err error) error {
	if cause := r.process.Failed(); cause != nil {
		err = cause
	}
	var told *boxrun.NotStartedError
	code := cloud.StatusOf(err)
	switch {
	case code == 0 && schemas.CodeOf(err) == schemas.Exhausted:
		return err
	case !errors.As(err, &told) && code != http.StatusNotFound && code != http.StatusGone:
		return explain("run", err)
	case r.fresh:
	default:
		if _, there := r.p.find(ctx, r.cmd.Sandbox); errors.Is(there, schemas.ErrNotFound) || code != 0 {
			return gone(err)
		}
	}
	return schemas.Wrap(schemas.Unavailable, "run", "the sandbox did not start the command", err)
}
