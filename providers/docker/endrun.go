package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/schemas"
)

var _ providers.RunEnder = (*Provider)(nil)

// runLabel is what the label of a container says of the run that it is for.
func runLabel(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// EndRun kills what is there of a run: its own container is removed, in whatever state it is, and in the kept one its processes
// are killed, which are known by their mark. Where they cannot be, again and again, the kept container is ended with all that is in it.
func (p *Provider) EndRun(ctx context.Context, key string, _ schemas.AccountID, id string) error {
	if err := p.begin(); err != nil {
		return err
	}
	defer p.ending.Done()
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := errors.Join(p.endOwn(ctx, id), p.endInKept(ctx, p.nameOf(key), id)); err != nil {
		return schemas.Wrap(schemas.Unavailable, "end run", "what is left of the run cannot be ended: "+said(err), err)
	}
	return nil
}

// endOwn removes the containers of a run alone.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	labelled := func() client.Filters {
		return make(client.Filters).Add("label", labelInstallation+"="+p.opt.Installation, labelKind+"="+kindCall)
	}
	found, err := p.engine.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: labelled().Add("label", labelRun+"="+runLabel(id)),
	})
	if err != nil {
		return err
	}
	ready, err := p.engine.ContainerList(ctx, client.ContainerListOptions{ // that were ready before, and have it in their names
		All: true, Filters: labelled().Add("name", "-run-"+runLabel(id)+"-"),
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range slices.Concat(found.Items, ready.Items) {
		_, err := p.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsConflict(err) { // it is being removed: its processes end before it goes
			err = p.kill(ctx, c.ID)
		}
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endInKept kills the processes of a run in a kept container.
func (p *Provider) endInKept(ctx context.Context, name, id string) error {
	found, err := p.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return carry.Swept(p.sweepKept(ctx, found.Container.ID, boxrun.MarkOf(id))) // by its id: the name may be another one's soon
}
