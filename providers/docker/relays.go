package docker

import (
	"context"
	"encoding/json"
	"net/netip"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

// relayPause is between two reads of a container whose engine does not answer.
const relayPause = time.Second

// relays serves the networks of containers whose only way out is a relay.
type relays struct {
	containers *containers
	secrets    *secrets
	terms      *terms
	locks      *inflight.Locks
	work       *inflight.Work

	mu   sync.Mutex
	open map[string]*containerRelay // by id and start: of the kept containers that this worker serves
}

// forCall starts the relay of a call's container, which was just started.
func (rs *relays) forCall(ctx context.Context, id string, r rules, creds *egress.Credentials) (*containerRelay, error) {
	rules, err := egress.Compile(*r.Relay, rs.terms.opt.PrivateNetworks)
	if err != nil {
		return nil, err
	}
	found, err := rs.containers.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, engineError("relay", err)
	}
	if found.Container.State == nil || !found.Container.State.Running {
		return nil, schemas.OpErrorf(schemas.Unavailable, "relay", "the container has ended before its network was served")
	}
	return rs.start(found.Container, rules, creds)
}

// forKept returns the relay of the kept container of a command; nil if it has none or another worker serves it. It also returns the
// container's credentials, whose placeholders are the same in every worker; nil if it has none.
func (rs *relays) forKept(ctx context.Context, cmd providers.Command) (*containerRelay, *egress.Credentials, error) {
	if !rs.terms.relayed(cmd.Network.Mode) {
		return nil, nil, nil
	}
	c, err := rs.containers.kept(ctx, cmd.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	relay, err := rs.serve(c)
	if err != nil || len(cmd.Network.Credentials) == 0 {
		return relay, nil, err
	}
	if relay != nil {
		return relay, relay.creds, nil
	}
	rules, err := networkRules(c, rs.terms.opt.PrivateNetworks)
	if err != nil {
		return nil, nil, err
	}
	creds, err := rs.secrets.forKept(c, rules)
	return nil, creds, err
}

// networkRules returns the network rules in a kept container's label.
func networkRules(c container.InspectResponse, private []netip.Prefix) (*egress.Rules, error) {
	var n schemas.Network
	if err := json.Unmarshal([]byte(c.Config.Labels[labelNetwork]), &n); err != nil {
		return nil, schemas.Wrap(schemas.Internal, "relay", "the rules of the container cannot be read", err)
	}
	return egress.Compile(n, private)
}

// serve starts the relay of a running kept container, unless this or another worker serves it already. Without a relay nothing leaves the
// container. It returns the relay, nil if it is not this worker's. Codes: unavailable, invalid and unsupported (this worker does not allow
// its rules).
func (rs *relays) serve(c container.InspectResponse) (*containerRelay, error) {
	if c.Config.Labels[labelNetwork] == "" {
		return nil, nil //nolint:nilnil // most have none
	}
	key := c.ID + " " + c.State.StartedAt
	lock := rs.locks.Of(c.ID)
	lock.Lock()
	defer lock.Unlock()
	rs.mu.Lock()
	relay := rs.open[key]
	rs.mu.Unlock()
	if relay != nil {
		return relay, nil
	}
	rules, err := networkRules(c, rs.terms.opt.PrivateNetworks)
	if err != nil {
		return nil, err
	}
	creds, err := rs.secrets.forKept(c, rules)
	if err != nil {
		return nil, err
	}
	rs.secrets.follow(creds, c.Config.Labels)
	relay, err = rs.start(c, rules, creds)
	if schemas.CodeOf(err) == schemas.Conflict {
		return nil, nil //nolint:nilnil // another worker's
	}
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	rs.open[key] = relay
	rs.mu.Unlock()
	rs.work.Go(func() {
		rs.containers.untilEnded(c.ID, c.State.StartedAt)
		rs.mu.Lock()
		delete(rs.open, key)
		rs.mu.Unlock()
		relay.close()
	})
	return relay, nil
}

// serveAll serves all running kept containers of this installation, including those whose worker has ended.
func (rs *relays) serveAll(ctx context.Context) {
	if rs.terms.noRelay != "" {
		return
	}
	all, err := rs.containers.list(ctx, labelKind+"="+kindKept, labelNetwork)
	if err != nil {
		rs.containers.log.Warn("persistent containers not listed, their networks are served later", "error", err)
		return
	}
	for _, item := range all {
		if item.State != container.StateRunning {
			continue
		}
		found, err := rs.containers.engine.ContainerInspect(ctx, item.ID, client.ContainerInspectOptions{})
		if err != nil || found.Container.State == nil || found.Container.Config == nil || !found.Container.State.Running {
			continue // it is being removed
		}
		if _, err := rs.serve(found.Container); err != nil {
			rs.containers.log.Warn("network of a persistent container not served, the container has no network", "container", item.ID, "error", err)
		}
	}
}

// trialSpec returns the spec of the container that tries out a relay.
func trialSpec() providers.Spec {
	return providers.Spec{Account: "acct_trial", Network: schemas.Network{Mode: schemas.Restricted}}
}
