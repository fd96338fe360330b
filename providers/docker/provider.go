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

// Profile is what the provider can do on its engine.
func (p *Provider) Profile() providers.Profile { return p.terms.profile(p.image.shell) }

// Reserve returns the container kept under key, making it when there is none and starting it when it was stopped: its files are there then,
// its processes are not, and its Epoch is another. One that was made under other rules (network, mounts, limits, image) is removed and made
// again. Workers on the same engine that race get the same one, for the engine gives a name once. Codes also: exhausted, the installation
// keeps as many as it may.
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

// Pause freezes a kept container with all that is in it: its memory stays taken. The next Reserve resumes it, under the same Epoch. What is
// stopped or gone is no error.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error { return p.kept.pause(ctx, ref) }

// Release removes a kept container with all that is in it, and returns when it has ended. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	return p.kept.release(ctx, ref)
}

// ListKept lists the kept containers of a deployment that are this installation's.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	return p.kept.list(ctx, deployment)
}

// EndRun kills what is there of a run: its own container is removed, in whatever state it is, and in the kept one its processes
// are killed, which are known by their mark. Where they cannot be, again and again, the kept container is ended with all that is in it.
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

// Leftovers lists the containers of calls whose worker has died: those that have ended a minute ago, that were
// never started, and that run longer than any call may. Of kept containers only those are among them that were never
// started: the others belong to records, not to workers.
func (p *Provider) Leftovers(ctx context.Context) ([]Leftover, error) {
	return p.containers.leftovers(ctx)
}

// RemoveLeftovers removes what [Provider.Leftovers] lists, and returns what it has removed.
func (p *Provider) RemoveLeftovers(ctx context.Context) ([]Leftover, error) {
	return p.containers.removeLeftovers(ctx)
}

// maintain serves the networks of kept containers whose worker has ended and removes what dead workers have left, again and again until the
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
