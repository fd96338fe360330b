//go:build !linux

package docker

import (
	"cmp"
	"context"

	"github.com/moby/moby/api/types/container"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// containerRelay is the relay of a container. It is never used: workers have relays on Linux only.
type containerRelay struct {
	relay *egress.Relay
	creds *egress.Credentials
}

func (w *containerRelay) close() {}

func (rs *relays) start(container.InspectResponse, *egress.Rules, *egress.Credentials) (*containerRelay, error) {
	return nil, schemas.OpErrorf(schemas.Unsupported, "relay", "%s", rs.terms.noRelay)
}

func findRelayProblem(_ context.Context, t *terms, _ *builder) string {
	return cmp.Or(t.opt.noRelay, obstacle("", ""))
}

func obstacle(string, string) string {
	return "the worker is not on Linux, so it cannot enter the networks of containers"
}
