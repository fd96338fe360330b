package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/inflight"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// reserveTries bounds how often others may be faster in making or removing a container before Reserve fails.
	reserveTries = 50
	reservePause = 100 * time.Millisecond
)

// errLeaving is the error of a container that is being removed.
var errLeaving = errors.New("the container is being removed")

// keptName returns the name of the container kept under a key, the same in every worker of the installation.
func keptName(installation, key string) string {
	sum := sha256.Sum256([]byte(key))
	return installation + "-kept-" + hex.EncodeToString(sum[:16])
}

// reserveError maps an error of the engine to one with a code; errors that have a code stay.
func reserveError(err error) error {
	if schemas.CodeOf(err) != schemas.Internal {
		return err
	}
	return engineError("reserve", err)
}

// keptContainers makes, wakes and removes containers that persist between calls.
type keptContainers struct {
	containers *containers
	builder    *builder
	relays     *relays
	secrets    *secrets
	terms      *terms
	locks      *inflight.Locks
}

// reserve returns the container kept under key. See [Provider.Reserve].
func (k *keptContainers) reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	name, r := keptName(k.containers.installation, key), k.terms.rules(spec, spec.Network, spec.Mounts)
	var last error
	for range reserveTries {
		ref, err := k.step(ctx, name, key, spec, r)
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

// step advances a reservation by one or more steps. A zero Ref means: call again at once; an error with the codes conflict or not_found,
// or errLeaving: call again a little later.
func (k *keptContainers) step(ctx context.Context, name, key string, spec providers.Spec, r rules) (schemas.Ref, error) {
	found, err := k.containers.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return schemas.Ref{}, k.create(ctx, name, map[string]string{
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
		k.containers.log.Info("persistent container replaced: the sandbox's rules have changed", "container", name, "account", r.Account)
		_, err := k.containers.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return schemas.Ref{}, err
	}
	switch {
	case c.State.Paused:
		_, err = k.containers.engine.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{})
		return schemas.Ref{}, err
	case c.State.Running:
		_, err := k.relays.serve(c)
		return refOf(c), err
	}
	// It was made and not started yet, by another caller that is about to or has died; or it was stopped.
	for _, m := range r.Mounts {
		if err := k.builder.workspaces.make(ctx, r.Account, m.Namespace); err != nil {
			return schemas.Ref{}, err
		}
	}
	certificate, err := trusted(c)
	if err != nil {
		return schemas.Ref{}, err
	}
	return schemas.Ref{}, k.start(ctx, c.ID, r, certificate, c.State.Status == container.StateCreated)
}

// start starts a kept container. With first, a container that cannot be started is removed: nothing has run in it, and it would count
// among the persistent ones. A container that has run before stays, with its files, whatever its error is.
func (k *keptContainers) start(ctx context.Context, id string, r rules, certificate []byte, first bool) error {
	err := k.builder.furnish(ctx, id, r, true, certificate)
	if err == nil {
		_, err = k.containers.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
	}
	if err == nil || !first || errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	// Not by force: another worker may have started it meanwhile.
	_, left := k.containers.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{RemoveVolumes: true})
	if left != nil && !errdefs.IsConflict(left) && !errdefs.IsNotFound(left) {
		k.containers.log.Warn("unstartable persistent container not removed, retrying", "container", id, "error", left)
	}
	return err
}

// create creates the container of a key, unless there are too many. The next step starts it.
func (k *keptContainers) create(ctx context.Context, name string, labels map[string]string, r rules) error {
	lock := k.locks.Of(name)
	lock.Lock() // of this worker's callers one is enough: others find what it has made
	defer lock.Unlock()
	if _, err := k.containers.engine.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		return err
	}
	if k.terms.opt.Boxes > 0 {
		all, err := k.containers.list(ctx, labelKind+"="+kindKept)
		if err != nil {
			return err
		}
		if len(all) >= k.terms.opt.Boxes {
			return schemas.OpErrorf(schemas.Exhausted, "reserve",
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
	creds, said, err := k.secrets.forNew(r)
	if err != nil {
		return err
	}
	if creds != nil {
		labels[labelCredentials] = said
	}
	id, err := k.builder.createKept(ctx, name, r, labels)
	if err != nil {
		return err
	}
	return k.start(ctx, id, r, certificateOf(creds), true)
}

// stateOf returns the state of a kept container.
func stateOf(s container.State) providers.BoxState {
	switch {
	case s.Dead || s.Status == container.StateRemoving, s.Status == container.StateCreated: // which only its maker starts
		return providers.BoxEnding
	case s.Running && !s.Paused:
		return providers.BoxRunning
	}
	return providers.BoxPaused
}

// checkUsable returns an error unless the kept container of a command is running and was made with the command's rules. It skips the rules
// if the command has no account, as for jobs, whose managing workers do not know the rules. Codes: not_found, unavailable.
func (k *keptContainers) checkUsable(ctx context.Context, cmd providers.Command) error {
	c, err := k.containers.kept(ctx, cmd.Sandbox)
	if err != nil {
		return err
	}
	if !c.State.Running || c.State.Paused {
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was stopped: reserve it again")
	}
	if cmd.Spec.Account != "" && c.Config.Labels[labelRules] != k.terms.rules(cmd.Spec, cmd.Network, cmd.Mounts).digest() {
		return schemas.OpErrorf(schemas.NotFound, "run", "the sandbox was made under other rules: reserve it again")
	}
	return nil
}

// pause freezes all processes of a kept container.
func (k *keptContainers) pause(ctx context.Context, ref schemas.Ref) error {
	c, err := k.containers.kept(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !c.State.Running || c.State.Paused {
		return nil
	}
	_, err = k.containers.engine.ContainerPause(ctx, c.ID, client.ContainerPauseOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	if now, again := k.containers.kept(ctx, ref); errors.Is(again, schemas.ErrNotFound) || again == nil && (now.State.Paused || !now.State.Running) {
		return nil // another process has done it
	}
	return engineError("pause", err)
}

// release removes a kept container and kills its processes; it returns when they have ended.
func (k *keptContainers) release(ctx context.Context, ref schemas.Ref) error {
	c, err := k.containers.kept(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for range reserveTries {
		_, err = k.containers.engine.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
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

// list lists the kept containers of a deployment.
func (k *keptContainers) list(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	now, err := k.containers.clock(ctx)
	if err != nil {
		return nil, engineError("list", err)
	}
	all, err := k.containers.list(ctx, labelKind+"="+kindKept, labelDeployment+"="+deployment)
	if err != nil {
		return nil, engineError("list", err)
	}
	var boxes []providers.KeptBox
	for _, c := range all {
		found, err := k.containers.engine.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{}) // a list does not say when it was started
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
