package docker

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// Pause freezes a kept container with all that is in it: its memory stays taken. The next Reserve resumes it, under the same Epoch. What is
// stopped or gone is no error.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error {
	c, err := p.kept(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !c.State.Running || c.State.Paused {
		return nil
	}
	_, err = p.engine.ContainerPause(ctx, c.ID, client.ContainerPauseOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if now, again := p.kept(ctx, ref); errors.Is(again, schemas.ErrNotFound) || again == nil && (now.State.Paused || !now.State.Running) {
		return nil // another process has done it
	}
	return engineError("pause", err)
}
