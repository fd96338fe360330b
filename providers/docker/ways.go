package docker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/egress"
	"github.com/sandjet/sandjet/schemas"
)

// relayPause is between two looks at a container whose engine does not answer.
const relayPause = time.Second

// wayOf opens the way out of a container of one call, which was started just now.
func (p *Provider) wayOf(ctx context.Context, id string, r rules, creds *egress.Credentials) (*wayOut, error) {
	rules, err := egress.Compile(*r.Relay, p.opt.PrivateNetworks)
	if err != nil {
		return nil, err
	}
	found, err := p.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, engineError("relay", err)
	}
	if found.Container.State == nil || !found.Container.State.Running {
		return nil, schemas.Errorf(schemas.Unavailable, "relay", "the container has ended before its network was served")
	}
	return p.openWay(found.Container, rules, creds)
}

// keptWay is the way out of the kept container of a command; nil where it has none, or another worker serves it. The placeholders of
// secrets in it are the same for every worker that serves it; nil: there are none.
func (p *Provider) keptWay(ctx context.Context, cmd providers.Command) (*wayOut, *egress.Credentials, error) {
	if !p.relayed(cmd.Network.Mode) {
		return nil, nil, nil
	}
	c, err := p.kept(ctx, cmd.Sandbox)
	if err != nil {
		return nil, nil, err
	}
	way, err := p.serve(c)
	if err != nil || len(cmd.Network.Credentials) == 0 {
		return way, nil, err
	}
	if way != nil {
		return way, way.creds, nil
	}
	rules, err := p.rulesFor(c)
	if err != nil {
		return nil, nil, err
	}
	creds, err := p.credentialsOf(c, rules)
	return nil, creds, err
}

// rulesFor reads what a kept container with a relay may reach.
func (p *Provider) rulesFor(c container.InspectResponse) (*egress.Rules, error) {
	var n schemas.Network
	if err := json.Unmarshal([]byte(c.Config.Labels[labelNetwork]), &n); err != nil {
		return nil, schemas.Wrap(schemas.Internal, "relay", "the rules of the container cannot be read", err)
	}
	return egress.Compile(n, p.opt.PrivateNetworks)
}

// serve has the relay of a kept container that runs be there: this worker's or another's. While there is none nothing gets out of the
// container. It returns the way where it is this worker's. Codes: unavailable, invalid and unsupported (its rules are not those that this
// worker may keep).
func (p *Provider) serve(c container.InspectResponse) (*wayOut, error) {
	if c.Config.Labels[labelNetwork] == "" {
		return nil, nil //nolint:nilnil // most have none
	}
	key := c.ID + " " + c.State.StartedAt
	lock := p.lockOf(c.ID)
	lock.Lock()
	defer lock.Unlock()
	p.mu.Lock()
	way := p.ways[key]
	p.mu.Unlock()
	if way != nil {
		return way, nil
	}
	rules, err := p.rulesFor(c)
	if err != nil {
		return nil, err
	}
	creds, err := p.credentialsOf(c, rules)
	if err != nil {
		return nil, err
	}
	p.follow(creds, c.Config.Labels)
	way, err = p.openWay(c, rules, creds)
	if schemas.CodeOf(err) == schemas.Conflict {
		return nil, nil //nolint:nilnil // another worker's
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.ways[key] = way
	p.mu.Unlock()
	p.ending.Go(func() {
		p.untilEnded(c.ID, c.State.StartedAt)
		p.mu.Lock()
		delete(p.ways, key)
		p.mu.Unlock()
		way.close()
	})
	return way, nil
}

// untilEnded blocks until a start of a container has ended, or this provider is closed.
func (p *Provider) untilEnded(id, started string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.ending.Go(func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		ended := p.engine.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-ended.Result:
		case err := <-ended.Error:
			p.log.Debug("end of a container not seen, checking again", "container", id, "error", err)
		}
		found, err := p.engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		switch {
		case ctx.Err() != nil, errdefs.IsNotFound(err):
			return
		case err == nil && (found.Container.State == nil || !found.Container.State.Running || found.Container.State.StartedAt != started):
			return
		}
		select { // the engine was unreachable
		case <-time.After(relayPause):
		case <-ctx.Done():
			return
		}
	}
}

// serveAll has the relays of all kept containers of this installation be there that run: those whose worker has ended among them.
func (p *Provider) serveAll(ctx context.Context) {
	if p.noRelay != "" {
		return
	}
	all, err := p.labelled(ctx, labelInstallation+"="+p.opt.Installation, labelKind+"="+kindKept, labelNetwork)
	if err != nil {
		p.log.Warn("persistent containers not listed, their networks are served later", "error", err)
		return
	}
	for _, item := range all {
		if item.State != container.StateRunning {
			continue
		}
		found, err := p.engine.ContainerInspect(ctx, item.ID, client.ContainerInspectOptions{})
		if err != nil || found.Container.State == nil || found.Container.Config == nil || !found.Container.State.Running {
			continue // it is on its way out
		}
		if _, err := p.serve(found.Container); err != nil {
			p.log.Warn("network of a persistent container not served, the container has no network", "container", item.ID, "error", err)
		}
	}
}

// trialSpec is that of a container that tries out whether it can have a relay.
func trialSpec() providers.Spec {
	return providers.Spec{Account: "acct_trial", Network: schemas.Network{Mode: schemas.Restricted}}
}
