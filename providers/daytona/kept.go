package daytona

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/providers/internal/spool"
	"github.com/sandjet/sandjet/schemas"
)

// Reserve returns the sandbox kept under key, and makes or starts it if necessary. A sandbox that was made with other rules is deleted and
// made again. Its name is unique in the organization: if several workers make it at once one succeeds, and the others find it.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	box := cloud.BoxDigest(spec.Account, key)
	return carry.Reserving{
		Key: key, Work: &p.work, Lock: p.making.Of(box),
		Refuse:  func() error { return p.refuse(spec, spec.Network, spec.Mounts) },
		Attempt: func(ctx context.Context) (schemas.Ref, error) { return p.reserve(ctx, box, key, spec) },
	}.Run(ctx)
}

// nameOf returns the name of the persistent sandbox of a key.
func (p *sandboxes) nameOf(box string) string { return p.opt.Installation + "-" + box }

// reserve is one attempt of Reserve. Codes not_found and conflict: the sandbox was changed meanwhile, try again.
func (p *Provider) reserve(ctx context.Context, box, key string, spec providers.Spec) (schemas.Ref, error) {
	rules := p.rulesOf(spec)
	s, err := p.get(ctx, p.nameOf(box))
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound || err == nil && s.State == stateDestroyed:
		s, err = p.make(ctx, order{name: p.nameOf(box), kind: kindKept, spec: spec, labels: map[string]string{
			labelBox: box, labelKey: key, labelRules: rules, labelDeployment: cloud.Digest(spec.Deployment),
		}})
		if err != nil {
			return schemas.Ref{}, err
		}
	case err != nil:
		return schemas.Ref{}, explain("reserve", err)
	case s.Labels[labelInstallation] != p.opt.Installation || s.Labels[labelBox] != box:
		return schemas.Ref{}, schemas.OpErrorf(schemas.Unavailable, "reserve",
			"another's sandbox has the name %s: delete it, or choose another --daytona-installation", p.nameOf(box))
	case s.Labels[labelRules] != rules || (s.State == stateError || s.State == stateBuild) && !s.Recoverable:
		p.log.Info("persistent sandbox replaced: its rules have changed or it has failed",
			"sandbox", s.ID, "account", spec.Account, "state", s.State)
		if err := p.end(ctx, s.ID); err != nil {
			return schemas.Ref{}, explain("reserve", err)
		}
		return schemas.Ref{}, gone(nil) // and made again with the next attempt
	default:
		if s, err = p.wake(ctx, s); err != nil {
			return schemas.Ref{}, err
		}
	}
	epoch, err := p.stamp(ctx, s)
	if err != nil {
		return schemas.Ref{}, err
	}
	ref := refOf(s, epoch)
	return ref, p.workspaces.furnishOnce(ctx, s, ref.Epoch, spec.Mounts)
}

// wake is [sandboxes.awake] for a persistent sandbox; waking a paused one is counted against the limit.
func (p *Provider) wake(ctx context.Context, s sandbox) (sandbox, error) {
	within, cancel := context.WithTimeout(ctx, p.opt.Start)
	defer cancel()
	if running, _ := count([]sandbox{s}); running > 0 {
		return p.awake(within, s)
	}
	slot, err := p.room.Enter(within, s.ID)
	if err != nil {
		return s, err
	}
	defer slot.Leave()
	if s, err = p.awake(within, s); err == nil {
		slot.Started(s.ID)
	}
	return s, err
}

// epochOf reads the current epoch of a sandbox, which changes with each of its starts.
func (p *Provider) epochOf(ctx context.Context, s sandbox) (string, error) {
	t, err := p.toolboxOf(s)
	if err != nil {
		return "", err
	}
	text, err := spool.Epoch(ctx, t)
	return text, explain("reserve", err)
}

// stamp stores the epoch in the sandbox's labels, for lists. Concurrent calls store the same value.
func (p *Provider) stamp(ctx context.Context, s sandbox) (string, error) {
	epoch, err := p.epochOf(ctx, s)
	if err != nil || s.Labels[labelEpoch] == epoch {
		return epoch, err
	}
	all := maps.Clone(s.Labels)
	all[labelEpoch] = epoch
	return epoch, explain("reserve", p.ask(ctx, http.MethodPut, s.ID, "/labels", labels{all}, nil))
}

// refOf returns the ref of a persistent sandbox. Stopping ends its processes, so its epoch consists of its birth and its last start.
func refOf(s sandbox, epoch string) schemas.Ref {
	return schemas.Ref{ID: s.ID, Epoch: s.Labels[labelBirth] + "." + epoch}
}

// find returns the sandbox that a ref names, after whichever start, and the ref's start epoch. Code: not_found, it is gone or not of this
// installation.
func (p *Provider) find(ctx context.Context, ref schemas.Ref) (s sandbox, epoch string, err error) {
	s, err = p.get(ctx, ref.ID)
	birth, epoch, _ := strings.Cut(ref.Epoch, ".")
	switch {
	case cloud.StatusOf(err) == http.StatusNotFound || cloud.StatusOf(err) == http.StatusBadRequest:
		return s, "", gone(err)
	case err != nil:
		return s, "", explain("run", err)
	case s.ID != ref.ID || s.State == stateDestroyed || s.State == stateDestroying || s.Labels[labelInstallation] != p.opt.Installation ||
		s.Labels[labelKind] != kindKept || s.Labels[labelBirth] != birth:
		return s, "", gone(nil)
	}
	return s, epoch, nil
}

// Release deletes a persistent sandbox with all its processes. Workspaces stay.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	s, _, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return explain("release", p.end(ctx, s.ID))
}

// Pause stops a persistent sandbox; its files stay on the service's disks. The next Reserve starts it with another Epoch.
func (p *Provider) Pause(ctx context.Context, ref schemas.Ref) error {
	s, want, err := p.find(ctx, ref)
	if errors.Is(err, schemas.ErrNotFound) || err == nil && s.State != stateStarted {
		return nil
	}
	if err != nil {
		return err
	}
	if epoch, err := p.epochOf(ctx, s); err != nil || epoch != want {
		return err // another worker has started it since
	}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	err = p.ask(ctx, http.MethodPost, s.ID, "/stop", nil, nil)
	for n := 1; ; n++ {
		if code := cloud.StatusOf(err); err != nil && code != http.StatusBadRequest && code != http.StatusConflict { // others change it
			if code == http.StatusNotFound {
				return nil
			}
			return explain("pause", err)
		}
		if !again.Sleep(ctx, n) {
			return ctx.Err()
		}
		if s, err = p.get(ctx, s.ID); err == nil && s.State != stateStarted && s.State != "stopping" {
			p.room.Ended(ref.ID)
			return nil
		}
		if n == 60 {
			return schemas.OpErrorf(schemas.Unavailable, "pause", "the sandbox does not stop: it is %q", schemas.Quotable(s.State))
		}
	}
}

// ListKept lists the persistent sandboxes of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	found, err := p.list(ctx, map[string]string{
		labelInstallation: p.opt.Installation, labelKind: kindKept, labelDeployment: cloud.Digest(deployment),
	})
	if err != nil {
		return nil, explain("list", err)
	}
	var boxes []providers.KeptBox
	for _, s := range found {
		b := providers.KeptBox{
			Ref: refOf(s, s.Labels[labelEpoch]), Key: s.Labels[labelKey], Account: schemas.AccountID(s.Labels[labelAccount]),
			State: providers.BoxRunning, Age: cloud.Age(s.Created, s.now),
		}
		switch s.State {
		case stateDestroying:
			b.State = providers.BoxEnding
		case stateStopped, statePaused, stateArchived, stateError, stateBuild:
			b.State = providers.BoxPaused
		}
		boxes = append(boxes, b)
	}
	return boxes, nil
}
