package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// reserveTries bounds how often others may be faster in making or removing a container before Reserve fails.
	reserveTries = 50
	reservePause = 100 * time.Millisecond
)

// errLeaving is the error of a container that is being removed.
var errLeaving = errors.New("the container is being removed")

// nameOf is the name of the container kept under a key: the same at every worker of the installation.
func (p *Provider) nameOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return p.opt.Installation + "-kept-" + hex.EncodeToString(sum[:16])
}

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
	if err := p.check(spec, spec.Network, spec.Mounts); err != nil {
		return schemas.Ref{}, err
	}
	if err := p.begin(); err != nil {
		return schemas.Ref{}, err
	}
	defer p.ending.Done()
	name, r := p.nameOf(key), p.rulesOf(spec, spec.Network, spec.Mounts)
	var last error
	for range reserveTries {
		ref, err := p.reserve(ctx, name, key, spec, r)
		switch {
		case err == nil && !ref.IsZero():
			return ref, nil
		case err == nil: // a step was taken here: the next look needs no patience
			continue
		case !errors.Is(err, errLeaving) && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err):
			return schemas.Ref{}, reserveError(err)
		}
		last = err
		select { // another process makes it, or removes it
		case <-time.After(reservePause):
		case <-ctx.Done():
			return schemas.Ref{}, ctx.Err()
		}
	}
	return schemas.Ref{}, schemas.Wrap(schemas.Unavailable, "reserve", "the container is made and removed again and again", last)
}

func reserveError(err error) error {
	if schemas.CodeOf(err) != schemas.Internal {
		return err
	}
	return engineError("reserve", err)
}

// reserve takes one step, or several: a zero Ref asks for another look, and an error of the kinds conflict, not found and
// errLeaving for one a little later.
func (p *Provider) reserve(ctx context.Context, name, key string, spec providers.Spec, r rules) (schemas.Ref, error) {
	found, err := p.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return schemas.Ref{}, p.makeKept(ctx, name, map[string]string{
			labelKey: key, labelRules: r.digest(), labelDeployment: spec.Deployment, labelSandbox: string(spec.Sandbox),
		}, r)
	}
	if err != nil {
		return schemas.Ref{}, err
	}
	c := found.Container
	if c.State == nil || c.Config == nil || c.State.Status == container.StateRemoving {
		return schemas.Ref{}, errLeaving
	}
	if c.Config.Labels[labelRules] != r.digest() || c.Config.Labels[labelKind] != kindKept || c.State.Dead {
		p.log.Info("persistent container replaced: the sandbox's rules have changed", "container", name, "account", r.Account)
		_, err := p.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return schemas.Ref{}, err
	}
	switch {
	case c.State.Paused:
		_, err = p.engine.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
		return schemas.Ref{}, err
	case c.State.Running:
		_, err := p.serve(c)
		return refOf(c), err
	}
	// It was made and not started yet, by another caller that is about to or has died; or it was stopped.
	for _, m := range r.Mounts {
		if err := p.makeWorkspace(ctx, r.Account, m.Namespace); err != nil {
			return schemas.Ref{}, err
		}
	}
	certificate, err := trusted(c)
	if err != nil {
		return schemas.Ref{}, err
	}
	return schemas.Ref{}, p.startKept(ctx, c.ID, r, certificate, c.State.Status == container.StateCreated)
}

// startKept starts a kept container. One that was never started and cannot be is removed: nothing was done in it, and it would count among
// the persistent ones until it could be started. A container that has run stays, with what is in it, whatever is wrong with it now.
func (p *Provider) startKept(ctx context.Context, id string, r rules, certificate []byte, first bool) error {
	err := p.furnish(ctx, id, r, true, certificate)
	if err == nil {
		_, err = p.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
	}
	if err == nil || !first || errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	// Not by force: another worker may have started it meanwhile.
	_, left := p.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true})
	if left != nil && !errdefs.IsConflict(left) && !errdefs.IsNotFound(left) {
		p.log.Warn("unstartable persistent container not removed, retrying", "container", id, "error", left)
	}
	return err
}

// makeKept makes the container of a key, unless there are too many. The next look starts it.
func (p *Provider) makeKept(ctx context.Context, name string, labels map[string]string, r rules) error {
	lock := p.lockOf(name)
	lock.Lock() // of this worker's callers one is enough: others find what it has made
	defer lock.Unlock()
	if _, err := p.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		return err
	}
	if p.opt.Boxes > 0 {
		all, err := p.list(ctx, kindKept)
		if err != nil {
			return err
		}
		if len(all) >= p.opt.Boxes {
			return schemas.Errorf(schemas.Exhausted, "reserve",
				"%d sandboxes are kept on this engine, as many as there may be (--docker-boxes): try later", len(all))
		}
	}
	if r.Relay != nil {
		text, err := json.Marshal(r.Relay)
		if err != nil {
			return fmt.Errorf("docker: %w", err)
		}
		labels[labelNetwork] = string(text)
	}
	creds, said, err := p.newKeptCredentials(r)
	if err != nil {
		return err
	}
	if creds != nil {
		labels[labelCredentials] = said
	}
	id, err := p.make(ctx, name, r, kindKept, labels)
	if err != nil {
		return err
	}
	return p.startKept(ctx, id, r, certificateOf(creds), true)
}

// lockOf is the lock of a name. There are few at a time; a lock stays for its next holder.
func (p *Provider) lockOf(name string) *sync.Mutex {
	const most = 1024
	p.mu.Lock()
	defer p.mu.Unlock()
	lock := p.making[name]
	if lock == nil {
		if len(p.making) >= most {
			clear(p.making) // a holder keeps its lock: the engine alone decides who makes a container
		}
		lock = &sync.Mutex{}
		p.making[name] = lock
	}
	return lock
}

// refOf names a container that runs: each start has an Epoch of its own, for it has other processes.
func refOf(c container.InspectResponse) schemas.Ref {
	return schemas.Ref{ID: c.ID, Epoch: c.State.StartedAt}
}

// list lists the containers of a kind of this installation, whatever their state.
func (p *Provider) list(ctx context.Context, kind string) ([]container.Summary, error) {
	return p.labelled(ctx, labelInstallation+"="+p.opt.Installation, labelKind+"="+kind)
}

// labelled lists the containers that have all of some labels, whatever their state.
func (p *Provider) labelled(ctx context.Context, labels ...string) ([]container.Summary, error) {
	found, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labels...)})
	return found.Items, err
}

// ListKept lists the kept containers of a deployment that are this installation's.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	info, err := p.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, engineError("list", err)
	}
	now, err := time.Parse(time.RFC3339Nano, info.Info.SystemTime) // the engine's clock made the times below
	if err != nil {
		now = time.Now()
	}
	all, err := p.labelled(ctx, labelInstallation+"="+p.opt.Installation, labelKind+"="+kindKept, labelDeployment+"="+deployment)
	if err != nil {
		return nil, engineError("list", err)
	}
	var boxes []providers.KeptBox
	for _, c := range all {
		found, err := p.engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{}) // a list does not say when it was started
		switch {
		case errdefs.IsNotFound(err):
			continue
		case err != nil:
			return nil, engineError("list", err)
		case found.Container.State == nil:
			continue
		}
		boxes = append(boxes, providers.KeptBox{
			Ref: refOf(found.Container), Key: c.Labels[labelKey], Account: schemas.AccountID(c.Labels[labelAccount]),
			Age: now.Sub(time.Unix(c.Created, 0)), State: stateOf(*found.Container.State),
		})
	}
	return boxes, nil
}

func stateOf(s container.State) providers.BoxState {
	switch {
	case s.Dead || s.Status == container.StateRemoving, s.Status == container.StateCreated: // which only its maker starts
		return providers.BoxEnding
	case s.Running && !s.Paused:
		return providers.BoxRunning
	}
	return providers.BoxPaused
}

// kept finds the kept container of a ref. Codes: not_found, unavailable.
func (p *Provider) kept(ctx context.Context, ref schemas.Ref) (container.InspectResponse, error) {
	gone := schemas.Errorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	if !isID(ref.ID) {
		return container.InspectResponse{}, gone
	}
	found, err := p.engine.ContainerInspect(ctx, ref.ID, client.ContainerInspectOptions{})
	c := found.Container
	switch {
	case errdefs.IsNotFound(err):
		return c, gone
	case err != nil:
		return c, engineError("run", err)
	case c.State == nil || c.Config == nil || c.Config.Labels[labelKind] != kindKept ||
		c.Config.Labels[labelInstallation] != p.opt.Installation || refOf(c) != ref:
		return c, gone
	}
	return c, nil
}

// isID reports whether s is a container's whole id: names and beginnings of ids mean other containers at other times.
func isID(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// stillThere reports whether the kept container of a command runs and has the command's rules, where these are said: jobs are managed by
// workers that do not know them. Codes: not_found, unavailable.
func (p *Provider) stillThere(ctx context.Context, cmd providers.Command) error {
	c, err := p.kept(ctx, cmd.Sandbox)
	if err != nil {
		return err
	}
	if !c.State.Running || c.State.Paused {
		return schemas.Errorf(schemas.NotFound, "run", "the sandbox was stopped: reserve it again")
	}
	if cmd.Spec.Account != "" && c.Config.Labels[labelRules] != p.rulesOf(cmd.Spec, cmd.Network, cmd.Mounts).digest() {
		return schemas.Errorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	return nil
}

// Release removes a kept container with all that is in it, and returns when it has ended. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	c, err := p.kept(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for range reserveTries {
		_, err = p.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return engineError("release", err)
		}
		select { // another process is removing it
		case <-time.After(reservePause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return schemas.Wrap(schemas.Unavailable, "release", "the container is being removed for long", err)
}
