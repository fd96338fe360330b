package e2b

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

// ownPipes gives a program outputs that belong to its user: those of the daemon are root's, and no other user may open them as /dev/stderr.
const ownPipes = `exec > >(exec cat) 2> >(exec cat >&2); exec "$@"`

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return p.opt.Start }

// Run runs cmd in a new sandbox, or in the persistent one that it names.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	level := isolation()
	res := providers.Result{Runtime: "e2b/" + p.opt.Template, Isolation: &level, Sandbox: cmd.Sandbox}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.refuse(cmd.Spec, cmd.Network, cmd.Mounts); err != nil {
		return res, err
	}
	env, err := carry.Environment(cmd, userPlain, homePath)
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
		defer r.leave()
	}
	run := carry.Run{Command: cmd, Program: r.program, Start: r.start, NotStarted: r.notStarted, Sweep: r.sweep, Fresh: r.fresh}
	return run.Carry(ctx, res)
}

// running is a command that is being started or is in progress.
type running struct {
	p       *Provider
	cmd     providers.Command
	program boxrun.Command
	box     sandbox
	daemon  daemon
	fresh   bool // the sandbox is for this command only
}

// enter makes the sandbox of a command, or finds the persistent one and extends its lifetime as needed.
func (r *running) enter(ctx context.Context) (err error) {
	life := r.program.Limit + max(spareTime, r.p.opt.Start)
	if r.fresh {
		spec := r.cmd.Spec
		spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
		r.box, err = r.p.make(ctx, order{kind: kindRun, spec: spec, life: life, metadata: map[string]string{metaRun: cloud.Digest(r.cmd.ID)}})
		if code := schemas.CodeOf(err); err != nil && (code == schemas.NotFound || code == schemas.Conflict) {
			err = schemas.Wrap(schemas.Unavailable, "run", "the sandbox ended before the command was started", err)
		}
		r.daemon = r.p.daemonOf(r.box)
		return err
	}
	if r.box, err = r.p.find(ctx, r.cmd.Sandbox); err != nil {
		return err
	}
	switch {
	case r.box.State == statePaused:
		return gone(nil)
	case r.cmd.Spec.Account != "" && r.box.Metadata[metaRules] != r.p.rulesOf(r.keptSpec()):
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	// The service counts from its own clock: this host's clock cannot show whether enough time is left.
	if _, err := r.p.connect(ctx, r.box.ID, max(life, r.p.opt.Idle)); cloud.StatusOf(err) == http.StatusNotFound {
		return gone(err)
	} else if err != nil {
		return explain("run", err)
	}
	r.daemon = r.p.daemonOf(r.box)
	return nil
}

// keptSpec returns the spec with which the command's sandbox was reserved.
func (r *running) keptSpec() providers.Spec {
	spec := r.cmd.Spec
	spec.Network, spec.Mounts = r.cmd.Network, r.cmd.Mounts
	return spec
}

// leave kills the sandbox of a command that has ended.
func (r *running) leave() {
	if err := r.p.endNow(r.box.ID); err != nil {
		r.p.log.Warn("sandbox of a run not ended, it ends at its time limit", "sandbox", r.box.ID, "error", err)
	}
}

// start starts the program in the sandbox.
func (r *running) start(ctx context.Context) (boxrun.Stream, error) {
	args := append([]string{"/bin/bash", "-c", ownPipes, "run"}, boxrun.Arguments("bash", carry.SearchPath)...)
	stream, err := r.daemon.start(ctx, userPlain, r.program.Limit+carry.AloneFor, true, args...)
	if err != nil {
		return nil, err
	}
	return stream, nil
}

// sweep kills the processes that the command has started, if its program did not.
func (r *running) sweep(mark string) error {
	if r.fresh {
		return r.p.endNow(r.box.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return r.p.sweep(ctx, r.box.ID, r.daemon, mark)
}

// notStarted returns the error for a command that was not started.
func (r *running) notStarted(ctx context.Context, err error) error {
	var told *boxrun.NotStartedError
	switch {
	case errors.As(err, &told) || unrouted(err):
		if _, there := r.p.find(ctx, r.cmd.Sandbox); !r.fresh && errors.Is(there, schemas.ErrNotFound) {
			return gone(err)
		}
		return schemas.Wrap(schemas.Unavailable, "run", "the sandbox did not start the command", err)
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusConflict:
		return schemas.Wrap(schemas.Unavailable, "run", "the daemon in the sandbox did not start the command", err)
	default:
		return explain("run", err)
	}
}
