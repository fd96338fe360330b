package vercel

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Reserve returns the sandbox kept under key, and makes or resumes it if necessary. A sandbox that was made with other rules is deleted
// and made again. Its name is unique in the project: if several workers make it at once one succeeds, and the others find it.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	box := cloud.BoxDigest(spec.Account, key)
	return carry.Reserving{
		Key: key, Work: &p.work, Lock: p.making.Of(box),
		Refuse:  func() error { return p.refuse(spec, spec.Network, spec.Mounts) },
		Attempt: func(ctx context.Context) (schemas.Ref, error) { return p.reserve(ctx, box, key, spec) },
	}.Run(ctx)
}

// reserve is one attempt of Reserve. Codes not_found and conflict: the sandbox was changed meanwhile, try again.
func (p *Provider) reserve(ctx context.Context, digest, key string, spec providers.Spec) (schemas.Ref, error) {
	name, rules := p.nameOf(kindKept, digest), p.rulesOf(spec)
	b, err := p.get(ctx, name, false)
	_, has := birthOf(b.Sandbox)
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound:
		b, err = p.make(ctx, order{name: name, kept: true, spec: spec, life: p.opt.Idle, tags: map[string]string{
			tagKey: tagOf(key), tagDeployment: deploymentTag(spec.Deployment),
		}})
		if err != nil {
			return schemas.Ref{}, err
		}
	case err != nil:
		return schemas.Ref{}, explain("reserve", err)
	case b.Sandbox.Tags[tagInstallation] != p.opt.Installation || fromTag(b.Sandbox.Tags[tagKey]) != key:
		return schemas.Ref{}, schemas.OpErrorf(schemas.Unavailable, "reserve",
			"another's sandbox has the name %s: delete it, or choose another --vercel-installation", name)
	case has != rules:
		p.log.Info("persistent sandbox replaced by one with other rules", "sandbox", name, "account", spec.Account)
		if err := p.end(ctx, name, b.Session.ID); err != nil {
			return schemas.Ref{}, explain("reserve", err)
		}
		return schemas.Ref{}, gone(nil) // and made again with the next attempt
	default:
		if b, err = p.wake(ctx, b); err != nil {
			return schemas.Ref{}, err
		}
	}
	if err := p.extend(ctx, b, p.opt.Idle, 0); err != nil {
		return schemas.Ref{}, err
	}
	return refOf(b), p.workspaces.furnishOnce(ctx, b.Session.ID, spec.Mounts)
}

// wake is [sandboxes.awake] for a persistent sandbox; resuming one whose session has ended is counted against the limit.
func (p *Provider) wake(ctx context.Context, b box) (box, error) {
	within, cancel := context.WithTimeout(ctx, p.opt.Start)
	defer cancel()
	if alive(b.Session.Status) {
		return p.awake(within, b)
	}
	name := b.Sandbox.Name
	slot, err := p.room.Enter(within, name)
	if err != nil {
		return b, err
	}
	defer slot.Leave()
	if b, err = p.awake(within, b); err == nil {
		slot.Started(name)
	}
	return b, err
}

// deploymentTag returns the tag's value for a deployment; it is never empty.
func deploymentTag(name string) string { return "d" + cloud.Digest(name) }

// extend ensures that a session lives for life from now on, or up to an eighth less. The service counts from the session's start, by its
// own clock. If it grants no more, least is enough; a session that lives shorter is left to end, and the sandbox continues in the next.
// Codes: not_found (it has ended), unavailable.
func (p *api) extend(ctx context.Context, b box, life, least time.Duration) error {
	since := b.Session.Started
	if since == 0 {
		since = b.Session.Created
	}
	left := time.UnixMilli(since+b.Session.Timeout).Sub(b.now) - time.Second // which a clock in a header may be behind
	if left >= least && left >= life-life/8 {                                // not a request for each second
		return nil
	}
	_, err := session{p, b.Session.ID}.ask(ctx, http.MethodPost, "/extend-timeout",
		map[string]int64{"duration": max(life-left, time.Second).Milliseconds()})
	code := cloud.StatusOf(err)
	switch {
	case err == nil:
		return nil
	case stopped(err) || code == http.StatusNotFound:
		return gone(err)
	case code != http.StatusBadRequest && code != http.StatusForbidden && code != http.StatusPaymentRequired &&
		code != http.StatusUnprocessableEntity:
		return explain("extend", err)
	case left < least:
		return schemas.Wrap(schemas.Unavailable, "run", "the plan of this team lets the sandbox run for too short a time: "+
			"it goes on in another session when this one has ended", err)
	}
	return nil
}

// refOf returns the ref of a persistent sandbox. Stopping ends its processes, so its epoch consists of its birth and its session.
func refOf(b box) schemas.Ref {
	birth, _ := birthOf(b.Sandbox)
	return schemas.Ref{ID: b.Sandbox.Name, Epoch: birth + "." + b.Session.ID}
}

// find returns the sandbox that a ref names, in whichever session, and the ref's session id. Code: not_found, it is gone or not of this
// installation.
func (p *Provider) find(ctx context.Context, ref schemas.Ref) (b box, id string, err error) {
	want, id, _ := strings.Cut(ref.Epoch, ".")
	if !idPattern.MatchString(ref.ID) {
		return b, "", gone(nil)
	}
	b, err = p.get(ctx, ref.ID, false)
	birth, _ := birthOf(b.Sandbox)
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusGone:
		return b, "", gone(err)
	case err != nil:
		return b, "", explain("run", err)
	case !strings.HasPrefix(ref.ID, p.nameOf(kindKept, "")) || b.Sandbox.Tags[tagInstallation] != p.opt.Installation || birth != want:
		return b, "", gone(nil)
	}
	return b, id, nil
}

// Release deletes a persistent sandbox with all its processes. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	b, _, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return explain("release", p.end(ctx, b.Sandbox.Name, b.Session.ID))
}

// Pause ends the session that ref names, which saves the sandbox's files. The next Reserve resumes the sandbox with another Epoch.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error {
	_, id, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) || err == nil && !idPattern.MatchString(id) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = session{p.api, id}.ask(ctx, http.MethodPost, "/stop", nil)
	if code := cloud.StatusOf(err); err != nil && !stopped(err) && code != http.StatusConflict {
		if code == http.StatusNotFound {
			return nil
		}
		return explain("pause", err)
	}
	within, cancel := context.WithTimeout(ctx, p.opt.Start)
	defer cancel()
	err = p.ended(within, id)
	if err == nil {
		p.room.Ended(ref.ID)
	}
	return explain("pause", err)
}

// ListKept lists the persistent sandboxes of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	var boxes []providers.KeptBox
	err := p.list(ctx, tagDeployment, deploymentTag(deployment), func(s sandbox, now time.Time) bool {
		if s.Tags[tagInstallation] != p.opt.Installation || !strings.HasPrefix(s.Name, p.nameOf(kindKept, "")) {
			return true
		}
		b := providers.KeptBox{
			Ref: refOf(box{Sandbox: s, Session: run{ID: s.Session}}), Key: fromTag(s.Tags[tagKey]),
			Account: schemas.AccountID(fromTag(s.Tags[tagAccount])), State: providers.BoxPaused,
			Age: max(now.Sub(time.UnixMilli(s.Created)), 0),
		}
		if alive(s.Status) {
			b.State = providers.BoxRunning
		}
		boxes = append(boxes, b)
		return true
	})
	return boxes, explain("list", err)
}
