package kubernetes

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Close waits until the boxes of ended runs are removed. Kept boxes stay in the cluster, where they are found by their names.
func (p *Provider) Close() error {
	p.runBoxes.work.Close()
	return nil
}

// Profile returns what the provider offers in this cluster.
func (p *Provider) Profile() providers.Profile { return p.terms.profile() }

// StartLimit implements [providers.StartLimiter].
func (p *Provider) StartLimit() time.Duration { return p.terms.opt.StartTimeout }

// Run runs cmd by an exec, in the kept box or in a new one. Further codes: invalid (the working directory does not exist, a variable's
// name is not valid), denied (the API server refuses it); never conflict.
func (p *Provider) Run(ctx context.Context, cmd providers.Command) (res providers.Result, err error) {
	cmd = cmd.WithDefaults()
	isolation := p.terms.isolation()
	res.Runtime, res.Isolation = "kubernetes/"+level, &isolation
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := p.terms.check(cmd.Spec, cmd.Network); err != nil {
		return res, err
	}
	token := runName(cmd.ID)
	data, err := runnerInput(token, cmd, cmd.Sandbox.IsZero())
	if err != nil {
		return res, err
	}
	if !cmd.Sandbox.IsZero() {
		t, err := p.boxes.find(ctx, cmd.Sandbox)
		if err != nil {
			return res, err
		}
		res.Sandbox = cmd.Sandbox
		if data, err = p.proxies.through(ctx, t, token, data, cmd); err != nil {
			return res, err
		}
		return p.execution(t, token, cmd).carryOut(ctx, data, res)
	}
	t, err := p.runBoxes.make(ctx, cmd)
	defer func() {
		if left := p.runBoxes.discard(ctx, t, err != nil || res.TimedOut); left != nil && ctx.Err() != nil && res.Started {
			err = errors.Join(err, left)
		}
	}()
	if err == nil {
		data, err = p.proxies.through(ctx, t, token, data, cmd)
	}
	if err != nil {
		return res, err
	}
	return p.execution(t, token, cmd).carryOut(ctx, data, res)
}

// execution returns an execution of cmd in a box.
func (p *Provider) execution(t target, token string, cmd providers.Command) *execution {
	return &execution{processes: p.processes, image: p.terms.opt.Image, target: t, token: token, cmd: cmd}
}

// EndRun ends the remains of a run: it removes the run's own box, and kills the run's processes in the kept box, which have the run's
// directory in their environment. It retries unanswered requests as long as its time allows, because the run's call waits until the run
// has ended.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	if id == "" {
		return schemas.Invalidf("id", "must not be empty")
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	err := errors.Join(
		again(ctx, unanswered, func() error { return p.runBoxes.endRun(ctx, id) }),
		again(ctx, unanswered, func() error { return p.processes.endRun(ctx, boxName(account, key), id) }),
	)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "end run", "what is left of the run cannot be ended", err)
	}
	return nil
}

// Reserve returns the box kept under key, and makes or wakes it if it has no pod. It blocks until the pod is ready, at most StartTimeout.
// A box ends by itself when it was unused for Options.Lifetime; each Reserve renews that time.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if err := p.terms.check(spec, spec.Network); err != nil {
		return schemas.Ref{}, err
	}
	return p.boxes.reserve(ctx, key, spec)
}

// Pause removes the pod of a kept box; its home stays unless it is ephemeral. The next Reserve makes a new pod, with another epoch. A box
// that is paused or gone already is no error.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error { return p.boxes.pause(ctx, ref) }

// Release deletes the box and waits until its processes are gone. A box that is gone, or was recreated under the same name, is left alone.
// Code: unavailable, also if the pod is not gone in time: release it again.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	return p.boxes.release(ctx, ref)
}

// ListKept lists the kept boxes of a deployment in the namespace, including paused ones. Their ages are exact only if the clocks of the
// cluster and this host agree.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	return p.boxes.listKept(ctx, deployment)
}

// Sweep removes what crashes have left behind: expired boxes of runs, kept boxes that were unused for their lifetime, and policies without
// a box. It returns their names; with dry it removes nothing. Now is this host's time, which must be close to the cluster's.
func (p *Provider) Sweep(ctx context.Context, now time.Time, dry bool) (removed []string, err error) {
	return p.boxes.sweep(ctx, now, dry)
}

// Clean sweeps every ten minutes until ctx ends. Several processes may do so concurrently.
func (p *Provider) Clean(ctx context.Context) error {
	for wait.Sleep(ctx, wait.Jitter(sweepEvery)) {
		switch removed, err := p.Sweep(ctx, time.Now(), false); {
		case err != nil && ctx.Err() == nil:
			p.log.Warn("sweep failed, trying again later", "error", err)
		case len(removed) > 0:
			p.log.Info("orphans removed", "objects", removed)
		}
	}
	return nil
}
