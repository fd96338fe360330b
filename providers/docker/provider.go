package docker

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Close waits until the containers of single calls are removed. Kept containers and the jobs in them stay.
func (p *Provider) Close() error {
	p.work.Close()
	return p.containers.engine.Close()
}

// Profile returns what the provider offers with its engine.
func (p *Provider) Profile() providers.Profile { return p.terms.profile(p.image.shell) }

// Reserve returns the container kept under key. It makes one if there is none, and starts a stopped one: that has its files, but no
// processes and a new Epoch. A container that was made with other rules (network, mounts, limits, image) is removed and made again.
// Workers on the same engine that race get the same container, because its name is unique. Codes also: exhausted, the installation has as
// many kept containers as allowed.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if key == "" {
		return schemas.Ref{}, schemas.Invalidf("key", "must not be empty")
	}
	if err := p.terms.check(spec, spec.Network, spec.Mounts); err != nil {
		return schemas.Ref{}, err
	}
	if err := p.work.Begin(); err != nil {
		return schemas.Ref{}, err
	}
	defer p.work.Done()
	return p.kept.reserve(ctx, key, spec)
}

// Pause freezes all processes of a kept container; its memory stays in use. The next Reserve resumes it with the same Epoch. A container
// that is stopped or gone is no error.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error { return p.kept.pause(ctx, ref) }

// Release removes a kept container and kills its processes; it returns when they have ended. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	return p.kept.release(ctx, ref)
}

// ListKept lists the kept containers of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	return p.kept.list(ctx, deployment)
}

// EndRun ends all remains of a run: it removes the run's own container, in any state, and kills the run's processes in the kept container,
// by their mark. If they repeatedly cannot be killed it ends the kept container.
func (p *Provider) EndRun(ctx context.Context, key string, _ schemas.AccountID, id string) error {
	if err := p.work.Begin(); err != nil {
		return err
	}
	defer p.work.Done()
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := errors.Join(p.containers.endRun(ctx, id), p.processes.endRun(ctx, keptName(p.containers.installation, key), id)); err != nil {
		return schemas.Wrap(schemas.Unavailable, "end run", "what is left of the run cannot be ended: "+said(err), err)
	}
	return nil
}

// Leftovers lists the containers of calls whose worker has died: those that ended over a minute ago, were never started, or run longer
// than any call may. Of kept containers it lists only those that were never started: the others belong to records, not to workers.
func (p *Provider) Leftovers(ctx context.Context) ([]Leftover, error) {
	return p.containers.leftovers(ctx)
}

// RemoveLeftovers removes the containers that [Provider.Leftovers] lists, and returns those removed.
func (p *Provider) RemoveLeftovers(ctx context.Context) ([]Leftover, error) {
	return p.containers.removeLeftovers(ctx)
}

// maintain periodically serves the networks of kept containers whose worker has ended and removes what dead workers have left, until the
// provider is closed.
func (p *Provider) maintain() {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	life := p.work.Context()
	for {
		ctx, cancel := context.WithTimeout(life, endTimeout)
		p.relays.serveAll(ctx)
		removed, err := p.containers.removeLeftovers(ctx)
		cancel()
		if len(removed) > 0 {
			p.containers.log.Info("containers of dead workers removed", "count", len(removed))
		}
		if life.Err() != nil {
			return
		}
		if err != nil {
			p.containers.log.Warn("containers of dead workers not removed, retrying", "error", err)
		}
		select {
		case <-life.Done():
			return
		case <-every.C:
		}
	}
}
