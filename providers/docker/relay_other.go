//go:build !linux

package docker

import (
	"cmp"
	"context"

	"github.com/moby/moby/api/types/container"

	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// wayOut is the relay of a container. There is none where the worker is not on Linux.
type wayOut struct {
	relay *egress.Relay
	creds *egress.Credentials
}

func (w *wayOut) close() {}

func (p *Provider) openWay(container.InspectResponse, *egress.Rules, *egress.Credentials) (*wayOut, error) {
	return nil, schemas.Errorf(schemas.Unsupported, "relay", "%s", p.noRelay)
}

func (p *Provider) relayed(mode schemas.NetworkMode) bool { return mode == schemas.Restricted }

func (p *Provider) findRelay(context.Context) { p.noRelay = cmp.Or(p.opt.noRelay, obstacle("", "")) }

func obstacle(string, string) string {
	return "the worker is not on Linux, so it cannot enter the networks of containers"
}
