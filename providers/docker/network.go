package docker

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/schemas"
)

// networkName returns the name of the installation's network for allow-all, on which containers cannot reach one another.
func networkName(installation string) string { return installation + "-allow-all" }

// makeNetwork creates the network for allow-all if it is missing.
func (cs *containers) makeNetwork(ctx context.Context) error {
	name := networkName(cs.installation)
	_, err := cs.engine.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	if errdefs.IsNotFound(err) {
		_, err = cs.engine.NetworkCreate(ctx, name, client.NetworkCreateOptions{
			Driver:  "bridge",
			Options: map[string]string{"com.docker.network.bridge.enable_icc": "false"},
			Labels:  map[string]string{labelInstallation: cs.installation},
		})
	}
	if err != nil && !errdefs.IsConflict(err) { // another worker was faster
		return schemas.Wrap(schemas.Unavailable, "docker", "the network of sandboxes with allow-all cannot be made", err)
	}
	return nil
}
