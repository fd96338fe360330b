package e2b

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// listings is how often the list of sandboxes is read until it has one that was made.
const listings = 6

// Reserve returns the sandbox kept under key, and makes or wakes it if necessary. A sandbox that was made with other rules is killed and
// made again. The service has no unique names: if several sandboxes were made at once, one is chosen and the others are killed.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	box := cloud.BoxDigest(spec.Account, key)
	return carry.Reserving{
		Key: key, Work: &p.work, Lock: p.making.Of(box),
		Refuse:  func() error { return p.refuse(spec, spec.Network, spec.Mounts) },
		Attempt: func(ctx context.Context) (schemas.Ref, error) { return p.reserve(ctx, box, key, spec) },
	}.Run(ctx)
}

// reserve is one attempt of Reserve. Codes not_found and conflict: the sandbox was changed meanwhile, try again.
func (p *Provider) reserve(ctx context.Context, name, key string, spec providers.Spec) (schemas.Ref, error) {
	rules := p.rulesOf(spec)
	found, err := p.kept(ctx, name)
	if err != nil {
		return schemas.Ref{}, err
	}
	waking := map[string]*cloud.Slot{}
	for _, s := range found { // to choose one wakes them
		if s.State != statePaused {
			continue
		}
		if waking[s.ID], err = p.room.Enter(ctx, s.ID); err != nil {
			return schemas.Ref{}, err
		}
		defer waking[s.ID].Leave()
	}
	first, err := p.choose(ctx, found)
	switch {
	case err != nil:
		return schemas.Ref{}, err
	case first.ID == "" && len(found) > 0:
		return schemas.Ref{}, gone(nil) // and made again when lists have none any more
	case first.ID == "":
		return p.makeKept(ctx, name, key, rules, spec)
	case first.Metadata[metaRules] != rules:
		p.log.Info("persistent sandbox replaced: its rules have changed", "sandbox", first.ID, "account", spec.Account)
		if err := p.end(ctx, first.ID); err != nil {
			return schemas.Ref{}, explain("reserve", err)
		}
		for _, slot := range waking { // else it would count beside the next one
			slot.Leave()
		}
		return p.makeKept(ctx, name, key, rules, spec)
	}
	box, err := p.connect(ctx, first.ID, p.opt.Idle)
	if err != nil {
		return schemas.Ref{}, explain("reserve", err)
	}
	if slot := waking[first.ID]; slot != nil {
		slot.Started(first.ID)
	}
	box.Metadata = first.Metadata
	err = p.workspaces.furnishOnce(ctx, box, spec.Mounts)
	if err != nil && (unrouted(err) || p.isGone(ctx, first.ID)) {
		return schemas.Ref{}, gone(err)
	}
	return refOf(first), err
}

// unrouted reports whether E2B's gateway found no sandbox for a request. A sandbox that is ending may still be listed and woken.
func unrouted(err error) bool { return cloud.StatusOf(err) == http.StatusBadGateway }

// isGone reports whether a sandbox no longer exists. An existing one is woken.
func (p *Provider) isGone(ctx context.Context, id string) bool {
	_, err := p.connect(ctx, id, p.opt.Idle)
	return cloud.StatusOf(err) == http.StatusNotFound
}

// choose returns the one of a key's sandboxes that all workers choose ([cloud.Elect]), the zero sandbox if there is none, and kills the
// others. Paused ones are woken for that. The choice is cached.
func (p *Provider) choose(ctx context.Context, found []sandbox) (sandbox, error) {
	if len(found) == 1 && p.chosen.Has(found[0].ID) {
		return found[0], nil
	}
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID)
	}
	chosen, lost, err := cloud.Elect(ctx, ids, func(ctx context.Context, id, mark string) (string, error) {
		box, err := p.connect(ctx, id, p.opt.Idle)
		if cloud.StatusOf(err) == http.StatusNotFound {
			return "", cloud.ErrGone
		}
		if err != nil {
			return "", err
		}
		text, err := p.daemonOf(box).output(ctx, userRoot, "/bin/bash", "-c", cloud.MarkScript, "mark", mark)
		if err != nil && p.isGone(ctx, id) { // or the answer breaks off: another worker may have killed it since
			return "", cloud.ErrGone
		}
		if errors.Is(err, schemas.ErrUnavailable) || unrouted(err) { // the script was killed, or fails: another worker may just be ending the sandbox
			return "", nil
		}
		return strings.TrimSpace(text), err
	})
	if err != nil {
		return sandbox{}, explain("reserve", err)
	}
	for _, id := range lost {
		p.discard(id)
	}
	for _, s := range found {
		if s.ID == chosen {
			p.chosen.Add(chosen)
			return s, nil
		}
	}
	return sandbox{}, nil
}

// kept lists the sandboxes of a key, the oldest first.
func (p *Provider) kept(ctx context.Context, box string) ([]sandbox, error) {
	found, err := p.list(ctx, map[string]string{metaInstallation: p.opt.Installation, metaBox: box})
	if err != nil {
		return nil, explain("reserve", err)
	}
	slices.SortFunc(found, func(a, b sandbox) int { return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID)) })
	return found, nil
}

// makeKept makes the sandbox of a key, and ends it if another one is chosen.
func (p *Provider) makeKept(ctx context.Context, box, key, rules string, spec providers.Spec) (schemas.Ref, error) {
	made, err := p.make(ctx, order{kind: kindKept, spec: spec, life: p.opt.Idle, metadata: map[string]string{
		metaBox: box, metaKey: key, metaRules: rules, metaDeployment: cloud.Digest(spec.Deployment),
	}})
	if err != nil {
		return schemas.Ref{}, err
	}
	again := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		found, err := p.kept(ctx, box)
		if err != nil { // it is there, and the next who looks finds it
			return schemas.Ref{}, err
		}
		if slices.ContainsFunc(found, func(s sandbox) bool { return s.ID == made.ID }) {
			chosen, err := p.choose(ctx, found)
			if err == nil && chosen.ID != made.ID {
				err = schemas.OpErrorf(schemas.Conflict, "reserve", "another worker has made it meanwhile")
			}
			return refOf(made), err
		}
		if n == listings || !again.Sleep(ctx, n) { // lists lag behind, or another worker has chosen and ended it
			p.discard(made.ID)
			return schemas.Ref{}, schemas.OpErrorf(schemas.Conflict, "reserve", "E2B does not list a sandbox that it has made")
		}
	}
}

// refOf returns the ref of a persistent sandbox. Its processes survive a pause, so its epoch is its birth.
func refOf(s sandbox) schemas.Ref { return schemas.Ref{ID: s.ID, Epoch: s.Metadata[metaBirth]} }

// find returns the sandbox that a ref names. Code: not_found, it is gone or not of this installation.
func (p *Provider) find(ctx context.Context, ref schemas.Ref) (sandbox, error) {
	s, err := p.get(ctx, ref.ID)
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusBadRequest:
		return s, gone(err)
	case err != nil:
		return s, explain("run", err)
	case s.Metadata[metaInstallation] != p.opt.Installation || s.Metadata[metaKind] != kindKept || refOf(s) != ref:
		return s, gone(nil)
	}
	return s, nil
}

// Release kills a persistent sandbox with all its processes. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	s, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return explain("release", p.end(ctx, s.ID))
}

// Pause pauses a persistent sandbox, with its memory stored on the service's disks. After the next Reserve its processes continue, with
// the same Epoch.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error {
	s, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) || err == nil && s.State == statePaused {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = p.ask(ctx, http.MethodPost, s.ID, "/pause", map[string]bool{"memory": true}, nil)
	if err == nil {
		p.room.Ended(s.ID)
	}
	switch cloud.StatusOf(err) {
	case http.StatusNotFound, http.StatusConflict: // another worker was faster
		return nil
	}
	return explain("pause", err)
}

// ListKept lists the persistent sandboxes of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	found, err := p.list(ctx, map[string]string{
		metaInstallation: p.opt.Installation, metaKind: kindKept, metaDeployment: cloud.Digest(deployment),
	})
	if err != nil {
		return nil, explain("list", err)
	}
	var boxes []providers.KeptBox
	for _, s := range found {
		b := providers.KeptBox{
			Ref: refOf(s), Key: s.Metadata[metaKey], Account: schemas.AccountID(s.Metadata[metaAccount]), State: providers.BoxRunning,
			Age: cloud.Age(s.Started, s.now),
		}
		if s.State == statePaused {
			b.State = providers.BoxPaused
		}
		boxes = append(boxes, b)
	}
	return boxes, nil
}
