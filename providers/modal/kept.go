package modal

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/boxrun"
	"github.com/sandjet/sandjet/providers/internal/carry"
	"github.com/sandjet/sandjet/providers/internal/cloud"
	"github.com/sandjet/sandjet/schemas"
)

// Reserve returns the sandbox kept under key, and makes it if none runs. A sandbox that was made with other rules, or whose maximal
// lifetime of a day could end during a call, is ended and made again. Its name is unique among running sandboxes: if several workers make
// it at once one succeeds, and the others find it.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	box := cloud.BoxDigest(spec.Account, key)
	return carry.Reserving{
		Key: key, Work: &p.work, Lock: p.making.Of(box),
		Refuse:  func() error { return p.refuse(spec, spec.Network, spec.Mounts) },
		Attempt: func(ctx context.Context) (schemas.Ref, error) { return p.reserve(ctx, box, key, spec) },
	}.Run(ctx)
}

// nameOf returns the name of the persistent sandbox of a key.
func nameOf(box string) string { return "kept-" + box }

// reserve is one attempt of Reserve. Codes not_found and conflict: the sandbox was changed meanwhile, try again.
func (p *Provider) reserve(ctx context.Context, digest, key string, spec providers.Spec) (schemas.Ref, error) {
	rules := p.rulesOf(spec)
	id, err := p.modal.byName(ctx, nameOf(digest))
	if cloud.StatusOf(err) == http.StatusNotFound {
		o := order{name: nameOf(digest), kind: kindKept, spec: spec, life: longest, tags: map[string]string{
			tagBox: digest, tagRules: rules, tagDeployment: cloud.Digest(spec.Deployment),
		}}
		setText(o.tags, tagKey, key)
		made, err := p.make(ctx, o)
		if err != nil {
			return schemas.Ref{}, err
		}
		return schemas.Ref{ID: made.id, Epoch: made.birth}, p.checkMarks(ctx, made.id)
	}
	if err != nil {
		return schemas.Ref{}, explain("reserve", err)
	}
	s, err := p.get(ctx, id)
	if err != nil {
		return schemas.Ref{}, err
	}
	switch {
	case s.Tags[tagBox] != digest:
		return schemas.Ref{}, schemas.OpErrorf(schemas.Unavailable, "reserve",
			"another's sandbox has the name %s: end it, or choose another --modal-app", nameOf(digest))
	case s.Tags[tagRules] != rules || time.Since(madeAt(s.Tags)) > longest-providers.RunLimit:
		p.log.Info("persistent sandbox replaced, it has other rules or its day is over", "sandbox", id, "account", spec.Account)
		if err := p.end(ctx, id); err != nil {
			return schemas.Ref{}, explain("reserve", err)
		}
		return schemas.Ref{}, gone(nil) // and made again with the next attempt
	}
	return refOf(s), p.checkMarks(ctx, id)
}

// get returns a running sandbox. Code: not_found, it is gone.
func (p *Provider) get(ctx context.Context, id string) (sandbox, error) {
	running, err := p.modal.running(ctx, id)
	if err == nil && !running {
		return sandbox{}, gone(nil)
	}
	s := sandbox{ID: id}
	if err == nil {
		s.Tags, err = p.modal.tags(ctx, id)
	}
	if code := cloud.StatusOf(err); code == http.StatusNotFound || code == http.StatusBadRequest {
		return s, gone(err)
	}
	return s, explain("run", err)
}

// markTest succeeds where a limit for file locks stays with a process and can be read by others, which is how those of a command
// are found.
const markTest = `ulimit -x 4503599627370497 && grep -q "^Max file locks *4503599627370497 " /proc/self/limits`

// checkMarks returns an error for, and ends, a persistent sandbox in which a single command could not be ended. Positive results are
// cached.
func (p *Provider) checkMarks(ctx context.Context, id string) error {
	if p.marks.Has(id) {
		return nil
	}
	r, err := p.modal.enter(ctx, id)
	if err != nil {
		return explain("reserve", err)
	}
	defer r.close()
	code, said, err := r.shortly(ctx, "bash", "-c", markTest)
	switch {
	case err != nil:
		return explain("reserve", err)
	case code != 0:
		p.discard(id)
		return schemas.OpErrorf(schemas.Unsupported, "reserve",
			"in a sandbox of Modal with this image or runtime commands cannot be distinguished, so that none is kept: its operator chooses "+
				"--modal-runtime vm and an image with bash and grep: %s", excerpt(said))
	}
	p.marks.Add(id)
	return nil
}

// refOf returns the ref of a persistent sandbox. It is never paused, so its epoch is its birth.
func refOf(s sandbox) schemas.Ref { return schemas.Ref{ID: s.ID, Epoch: s.Tags[tagBirth]} }

// find returns the sandbox that a ref names. Code: not_found, it is gone or not of this installation.
func (p *Provider) find(ctx context.Context, ref schemas.Ref) (sandbox, error) {
	s, err := p.get(ctx, ref.ID)
	if err == nil && (s.Tags[tagKind] != kindKept || refOf(s) != ref) {
		err = gone(nil)
	}
	return s, err
}

// Release ends a persistent sandbox with all its processes. Workspaces stay.
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

// ListKept lists the persistent sandboxes of a deployment in this installation.
func (p *Provider) ListKept(ctx context.Context, deployment string) ([]providers.KeptBox, error) {
	if err := providers.CheckDeployment(deployment); err != nil {
		return nil, err
	}
	found, err := p.modal.list(ctx, map[string]string{tagKind: kindKept, tagDeployment: cloud.Digest(deployment)})
	if err != nil {
		return nil, explain("list", err)
	}
	var boxes []providers.KeptBox
	for _, s := range found {
		boxes = append(boxes, providers.KeptBox{
			Ref: refOf(s), Key: textOf(s.Tags, tagKey), Account: schemas.AccountID(s.Tags[tagAccount]), State: providers.BoxRunning,
			Age: ageOf(s, time.Now()),
		})
	}
	return boxes, nil
}

// EndRun ends all remains of a run: its own sandbox, and its processes in the persistent one, which are found by their mark.
func (p *Provider) EndRun(ctx context.Context, key string, account schemas.AccountID, id string) error {
	return carry.EndRun(ctx, &p.work, endTimeout,
		func(ctx context.Context) error { return p.endOwn(ctx, id) },
		func(ctx context.Context) error { return p.endInKept(ctx, cloud.BoxDigest(account, key), id) })
}

// endOwn ends the sandboxes that were made for one run.
func (p *Provider) endOwn(ctx context.Context, id string) error {
	found, err := p.modal.list(ctx, map[string]string{tagRun: cloud.Digest(id)})
	for _, s := range found {
		err = errors.Join(err, p.end(ctx, s.ID))
	}
	return err
}

// endInKept kills the processes of a run in a persistent sandbox.
func (p *Provider) endInKept(ctx context.Context, digest, id string) error {
	name := nameOf(digest)
	box, err := p.modal.byName(ctx, name)
	if cloud.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return carry.Swept(p.sweep(ctx, box, boxrun.MarkOf(id)))
}

// sweep kills the processes that a command has left in a persistent sandbox, after its program has ended. A sandbox that is gone has none.
func (p *Provider) sweep(ctx context.Context, id, mark string) error {
	return carry.Sweeping{
		Sandbox: id, Log: p.log,
		Sweep: func(ctx context.Context) error {
			r, err := p.modal.enter(ctx, id)
			if err != nil {
				return err
			}
			defer r.close()
			code, said, err := r.shortly(ctx, boxrun.TrySweepArguments("bash", carry.SearchPath, mark)...)
			if err != nil {
				return err
			}
			return boxrun.SweepResult(code, said)
		},
		Gone: func(ctx context.Context, _ error) (bool, error) {
			running, err := p.modal.running(ctx, id)
			if cloud.StatusOf(err) == http.StatusNotFound {
				return true, nil
			}
			return !running, err
		},
		End: func(ctx context.Context) error { return p.end(ctx, id) },
	}.Run(ctx)
}
