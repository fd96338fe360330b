package deno

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
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// leastLife is how long a kept sandbox has to live for another reservation: as long as a run may take. One that the service does not let
// live for so long is replaced.
const leastLife = providers.RunLimit

// boxOf returns the label value that identifies the persistent sandbox of a key.
func boxOf(account schemas.AccountID, key string) string {
	return kindKept + cloud.BoxDigest(account, key)
}

// listings is how often the list of sandboxes is read until it has one that was made.
const listings = 8

// Reserve returns the sandbox kept under key, and makes it if there is none. A sandbox that was made with other rules is killed and made
// again. The service has no unique names: if several sandboxes were made at once, one is chosen and the others are killed.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	box := boxOf(spec.Account, key)
	return carry.Reserving{
		Key: key, Work: &p.work, Lock: p.making.Of(box),
		Refuse: func() error {
			if len(keyLabel(spec.Account, key)) > mostLabel {
				return schemas.OpErrorf(schemas.Unsupported, "reserve", "the key of a sandbox on Deno has at most %d bytes", mostLabel)
			}
			return p.refuse(spec, spec.Network, spec.Mounts)
		},
		Attempt: func(ctx context.Context) (schemas.Ref, error) { return p.reserve(ctx, box, key, spec) },
	}.Run(ctx)
}

// reserve is one attempt of Reserve. Codes not_found and conflict: the sandbox was changed meanwhile, try again.
func (p *Provider) reserve(ctx context.Context, box, key string, spec providers.Spec) (schemas.Ref, error) {
	found, err := p.kept(ctx, box)
	if err != nil {
		return schemas.Ref{}, err
	}
	first, err := p.choose(ctx, found, nil)
	if err != nil {
		return schemas.Ref{}, err
	}
	var life time.Duration
	if first.ID != "" {
		if life, err = p.extend(ctx, first.ID, mostLife); isGone(err) {
			first, err = sandbox{}, nil
		}
	}
	switch {
	case err != nil:
		return schemas.Ref{}, explain("reserve", err)
	case first.ID == "":
		return p.makeKept(ctx, order{box: box, key: key, spec: spec, life: mostLife})
	case first.facts().rules != p.rulesOf(spec) || life < leastLife:
		p.log.Info("instance replaced, it has other rules or cannot live longer", "sandbox", first.ID, "account", spec.Account, "life", life)
		if err := p.end(ctx, first); err != nil {
			return schemas.Ref{}, explain("reserve", err)
		}
		return schemas.Ref{}, gone(nil) // and made again with the next attempt
	}
	d := p.doorOf(first.ID, nil)
	defer d.Close()
	if _, err = p.workspaces.furnishOnce(ctx, d, first.Labels[labelBirth], spec); isGone(err) {
		return schemas.Ref{}, gone(err)
	}
	return refOf(first), err
}

// kept lists the sandboxes of a key, the oldest first.
func (p *Provider) kept(ctx context.Context, box string) ([]sandbox, error) {
	found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBox: box})
	slices.SortFunc(found, func(a, b sandbox) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return found, explain("reserve", err)
}

// isGone reports whether an error says that a sandbox is not there.
func isGone(err error) bool {
	return cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusGone
}

// choose returns the one of a key's sandboxes that all workers choose ([cloud.Elect]), the zero sandbox if there is none, and ends the
// others. A sandbox that this worker has furnished was chosen before. Mine is the open door of a sandbox that the caller has made.
func (p *Provider) choose(ctx context.Context, found []sandbox, mine *door) (sandbox, error) {
	if len(found) == 1 {
		if _, ok := p.workspaces.places.of(found[0].Labels[labelBirth]); ok {
			return found[0], nil
		}
	}
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID)
	}
	chosen, lost, err := cloud.Elect(ctx, ids, func(ctx context.Context, id, mark string) (string, error) {
		d := mine
		if d == nil || d.id != id {
			d = p.doorOf(id, nil)
			defer d.Close()
		}
		said, err := d.Execute(ctx, spool.Look, endTimeout, cloud.MarkScript, mark)
		if err != nil && !isGone(err) { // the answer breaks off, or is of whatever kind: another worker may have killed it since
			if _, there := p.extend(ctx, id, mostLife); isGone(there) {
				err = there
			}
		}
		if isGone(err) {
			return "", cloud.ErrGone
		}
		return strings.TrimSpace(said.Result), err
	})
	if err != nil {
		return sandbox{}, explain("reserve", err)
	}
	for _, id := range lost {
		p.discard(id)
	}
	for _, s := range found {
		if s.ID == chosen {
			return s, nil
		}
	}
	return sandbox{}, nil
}

// makeKept makes the sandbox of a key, and ends it if another one is chosen.
func (p *Provider) makeKept(ctx context.Context, o order) (schemas.Ref, error) {
	made, first, err := p.make(ctx, o)
	if err != nil {
		return schemas.Ref{}, err
	}
	d := p.doorOf(made.ID, first)
	defer d.Close()
	pause := wait.Backoff{First: 50 * time.Millisecond, Most: time.Second}
	for n := 1; ; n++ {
		found, err := p.kept(ctx, o.box)
		if err != nil {
			return schemas.Ref{}, err // the next who looks finds it
		}
		if slices.ContainsFunc(found, func(s sandbox) bool { return s.ID == made.ID }) {
			chosen, err := p.choose(ctx, found, d)
			switch {
			case err != nil:
				return schemas.Ref{}, err
			case chosen.ID != made.ID:
				return schemas.Ref{}, schemas.OpErrorf(schemas.Conflict, "reserve", "another worker has made it meanwhile")
			}
			if _, err = p.workspaces.furnishOnce(ctx, d, made.Labels[labelBirth], o.spec); err != nil && schemas.CodeOf(err) != schemas.Unavailable {
				p.discard(made.ID)
			}
			return refOf(made), err
		}
		if n == listings || !pause.Sleep(ctx, n) { // lists lag behind, or another worker has chosen and ended it
			p.discard(made.ID)
			return schemas.Ref{}, schemas.OpErrorf(schemas.Conflict, "reserve", "Deno does not list a sandbox that it has made")
		}
	}
}

// refOf returns the ref of a persistent sandbox. It is never paused, so its epoch is its birth.
func refOf(s sandbox) schemas.Ref { return schemas.Ref{ID: s.ID, Epoch: s.Labels[labelBirth]} }

// find returns the sandbox that a ref names. Code: not_found, it is gone or not of this installation.
func (p *Provider) find(ctx context.Context, ref schemas.Ref) (sandbox, error) {
	if regionOf(ref.ID) == "" || ref.Epoch == "" {
		return sandbox{}, gone(nil)
	}
	found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation, labelBirth: ref.Epoch})
	if err != nil {
		return sandbox{}, explain("run", err)
	}
	i := slices.IndexFunc(found, func(s sandbox) bool { return s.ID == ref.ID && strings.HasPrefix(s.Labels[labelBox], kindKept) })
	if i < 0 {
		return sandbox{}, gone(nil)
	}
	return found[i], nil
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
	return explain("release", p.end(ctx, s))
}

// ListKept lists the persistent sandboxes of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	found, err := p.list(ctx, map[string]string{labelInstallation: p.opt.Installation})
	if err != nil {
		return nil, explain("list", err)
	}
	var boxes []providers.KeptBox
	for _, s := range found {
		if f := s.facts(); s.key() != "" && f.deployment == short(deployment) {
			boxes = append(boxes, providers.KeptBox{
				Ref: refOf(s), Key: s.key(), Account: f.account, State: providers.BoxRunning, Age: cloud.Age(s.Created, time.Now().Add(time.Duration(p.ahead.Load()))),
			})
		}
	}
	return boxes, nil
}
