package docker

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// networkName is that of the network with a way out, on which containers do not reach one another.
func (p *Provider) networkName() string { return p.opt.Installation + "-allow-all" }

// makeNetwork makes that network where it is missing.
func (p *Provider) makeNetwork(ctx context.Context) error {
	name := p.networkName()
	_, err := p.engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		_, err = p.engine.NetworkCreate(ctx, name, client.NetworkCreateOptions{
			Driver:  "bridge",
			Options: map[string]string{"com.docker.network.bridge.enable_icc": "false"},
			Labels:  map[string]string{labelInstallation: p.opt.Installation},
		})
	}
	if err != nil && !errdefs.IsConflict(err) { // another worker was faster
		return schemas.Wrap(schemas.Unavailable, "docker", "the network of sandboxes with allow-all cannot be made", err)
	}
	return nil
}
