package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// attempts is how often a box is looked for or made while others change it, before its caller is asked to try later.
const attempts = 8

// Reserve returns the box kept under key, and makes or wakes it when it has no pod. It blocks until the pod is ready, StartTimeout at most.
// A box that is unused for Options.Lifetime ends by itself: each Reserve renews that.
func (p *Provider) Reserve(ctx context.Context, key string, spec providers.Spec) (schemas.Ref, error) {
	if err := ctx.Err(); err != nil {
		return schemas.Ref{}, err
	}
	if err := p.refuse(spec, spec.Network); err != nil {
		return schemas.Ref{}, err
	}
	b := box{name: boxName(spec.Account, key), kind: kindKept, key: key, spec: spec, until: time.Now().Add(p.opt.Lifetime)}
	again := wait.Backoff{First: 100 * time.Millisecond, Most: 2 * time.Second}
	for n := 1; ; n++ {
		id, err := p.reserve(ctx, b)
		switch code := schemas.CodeOf(err); {
		case err == nil:
			return p.refOf(b.name, id), nil
		case code != schemas.NotFound && code != schemas.Conflict:
			return schemas.Ref{}, err
		case n == attempts:
			return schemas.Ref{}, schemas.Wrap(schemas.Unavailable, "reserve", "the box is being changed by others", err)
		case !again.Sleep(ctx, n):
			return schemas.Ref{}, ctx.Err()
		}
	}
}

// reserve is one attempt. Codes not_found and conflict: the box was changed meanwhile, look again.
func (p *Provider) reserve(ctx context.Context, b box) (identity, error) {
	anchor, err := p.make(ctx, b)
	if err != nil {
		return identity{}, err
	}
	s, err := p.readyPod(ctx, b.name, string(anchor.GetUID()))
	if schemas.CodeOf(err) == schemas.NotFound && s.over { // evicted, out of memory, its node gone: a new pod takes over
		return identity{}, errors.Join(err, p.restart(ctx, b.name, string(anchor.GetUID()), s))
	}
	if err != nil {
		return identity{}, err
	}
	if now, err := p.anchor(ctx, b.name); err != nil {
		return identity{}, err
	} else if now == nil || now.GetUID() != anchor.GetUID() || now.GetAnnotations()[noteLeaving] != "" {
		return identity{}, schemas.Errorf(schemas.Conflict, "reserve", "the sandbox was released while it started")
	}
	return identity{box: string(anchor.GetUID()), pod: s.uid, container: s.container}, nil
}

// make makes what is not there of a box: the claims of its files, its policy, and then itself. It returns the object
// whose UID is the box's: the Sandbox, or the policy where pods come and go under one.
func (p *Provider) make(ctx context.Context, b box) (*unstructured.Unstructured, error) {
	if err := p.makeWorkspaces(ctx, b.spec.Mounts); err != nil {
		return nil, err
	}
	policy, err := p.makePolicy(ctx, b)
	if err != nil {
		return nil, err
	}
	if p.sandbox == "" {
		return policy, p.makePod(ctx, b, policy)
	}
	if b.kept() {
		if there, err := p.get(ctx, p.boxResource(), b.name); err != nil || there != nil {
			return p.wake(ctx, b, there, err)
		}
		if err := p.homeFree(ctx, b, ""); err != nil {
			return nil, err
		}
	}
	made, existed, err := p.create(ctx, p.boxResource(), p.sandboxObject(b))
	if err != nil {
		return nil, err
	}
	if existed {
		there, err := p.get(ctx, p.boxResource(), b.name)
		return p.wake(ctx, b, there, err)
	}
	if !b.kept() { // its policy belongs to the pod, once there is one
		return made, nil
	}
	return made, p.own(ctx, b.name, made)
}

// homeFree refuses a home that is another box's: the cluster removes what belonged to a former box some time after that box, and a pod
// that is made meanwhile gets the former one's files, and loses its own with them. Uid is whose the home may be. Code: conflict.
func (p *Provider) homeFree(ctx context.Context, b box, uid string) error {
	if !b.hasHome() {
		return nil
	}
	home, err := p.get(ctx, claimResource, homeName(b.name))
	switch {
	case err != nil || home == nil:
		return err
	case home.GetDeletionTimestamp() != nil, len(home.GetOwnerReferences()) > 0 && !ownedBy(*home, uid):
		return schemas.Errorf(schemas.Conflict, "reserve", "the home of the former sandbox is being removed")
	}
	return nil
}

// makeWorkspaces makes the claims of workspaces that have none.
func (p *Provider) makeWorkspaces(ctx context.Context, mounts []providers.Mount) error {
	for _, m := range mounts {
		if m.Storage == storageS3 {
			if err := p.makeS3(ctx, m.Namespace); err != nil {
				return err
			}
			continue
		}
		if p.opt.WorkspaceClaim != "" {
			continue
		}
		name := workspaceName(m.Namespace)
		if there, err := p.get(ctx, claimResource, name); err != nil {
			return err
		} else if there != nil {
			continue
		}
		claim := p.claimObject(name, kindWorkspace, "", p.opt.AccessMode, int64(p.opt.DiskGb)*gibi)
		if _, _, err := p.create(ctx, claimResource, workspaceLabels(claim, m.Namespace)); err != nil {
			return err
		}
	}
	return nil
}

// workspaceLabels says which workspace's files a claim has.
func workspaceLabels(claim object, namespace string) object {
	if meta, ok := claim["metadata"].(object); ok {
		meta["labels"] = object{labelKind: kindWorkspace, labelWorkspace: namespace}
	}
	return claim
}

// makePolicy makes the box's policy, or gives the one that is there today's rules.
func (p *Provider) makePolicy(ctx context.Context, b box) (*unstructured.Unstructured, error) {
	by, err := p.proxyOf(ctx, b.spec.Network)
	if err != nil {
		return nil, err
	}
	wanted := p.identified(b, p.policy(b.name, b.kind, b.spec.Network, by))
	made, existed, err := p.create(ctx, policyResource, wanted)
	if err != nil || !existed {
		return made, err
	}
	there, err := p.get(ctx, policyResource, b.name)
	switch {
	case err != nil:
		return nil, err
	case there == nil || there.GetDeletionTimestamp() != nil || there.GetAnnotations()[noteLeaving] != "":
		return nil, schemas.Errorf(schemas.Conflict, "reserve", "the sandbox is being released")
	case sameJSON(there.Object["spec"], wanted["spec"]):
		return there, nil
	}
	change, _ := wanted["spec"].(object) // a merge keeps what is not named: name what has to go
	if change["egress"] == nil {
		change["egress"] = nil
	}
	return p.patch(ctx, policyResource, b.name, object{"spec": change})
}

// wake returns the Sandbox that was read, with a pod and a new time to live.
func (p *Provider) wake(ctx context.Context, b box, there *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	switch {
	case err != nil:
		return nil, err
	case there == nil || there.GetDeletionTimestamp() != nil:
		return nil, schemas.Errorf(schemas.Conflict, "reserve", "the sandbox is being released")
	}
	change := object{}
	if !p.runs(there) {
		p.setRunning(change, true)
	}
	if until, _, _ := unstructured.NestedString(there.Object, "spec", "shutdownTime"); p.mustRenew(until, b.until) {
		change["shutdownTime"] = b.until.UTC().Format(time.RFC3339)
	}
	if len(change) > 0 {
		there, err = p.patch(ctx, p.boxResource(), b.name, object{"spec": change})
	}
	if err == nil {
		err = p.own(ctx, b.name, there)
	}
	return there, err
}

// runs reports whether a Sandbox is to have a pod.
func (p *Provider) runs(o *unstructured.Unstructured) bool {
	if p.sandbox == "v1alpha1" {
		n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		return !found || n > 0
	}
	mode, _, _ := unstructured.NestedString(o.Object, "spec", "operatingMode")
	return mode != "Suspended"
}

// mustRenew reports whether so much of a time to live is over that it is renewed: not at each use.
func (p *Provider) mustRenew(until string, wanted time.Time) bool {
	t, err := time.Parse(time.RFC3339, until)
	return err != nil || wanted.Sub(t) > p.opt.Lifetime/16
}

// makePod makes the pod of a box in a cluster without Sandbox objects, and the claim of its home. Both belong to the
// policy: when that goes, so do they.
func (p *Provider) makePod(ctx context.Context, b box, policy *unstructured.Unstructured) error {
	if b.hasHome() {
		claim := p.claimObject(homeName(b.name), b.kind, b.name, "ReadWriteOnce", p.diskOf(b.spec))
		_, existed, err := p.create(ctx, claimResource, owned(claim, policy))
		if err == nil && existed {
			err = p.homeFree(ctx, b, string(policy.GetUID()))
		}
		if err != nil {
			return err
		}
	}
	_, existed, err := p.create(ctx, podResource, owned(p.podObject(b), policy))
	if err != nil || !existed {
		return err
	}
	there, err := p.get(ctx, podResource, b.name)
	switch {
	case err != nil:
		return err
	case there == nil:
		return schemas.Errorf(schemas.Conflict, "reserve", "the pod was removed meanwhile")
	case there.GetDeletionTimestamp() != nil || !ownedBy(*there, string(policy.GetUID())): // of a box that is being ended
		err := p.podsGone(ctx, b.name, string(there.GetUID()))
		return errors.Join(schemas.Errorf(schemas.Conflict, "reserve", "the former pod is being ended"), err)
	}
	if p.mustRenew(policy.GetAnnotations()[noteUntil], b.until) {
		notes := object{noteUntil: b.until.UTC().Format(time.RFC3339)}
		_, err = p.patch(ctx, policyResource, b.name, object{"metadata": object{"annotations": notes}})
	}
	return err
}

// own makes a box's policy belong to the box: the cluster removes it behind the box, however that ends.
func (p *Provider) own(ctx context.Context, name string, owner *unstructured.Unstructured) error {
	policy, err := p.get(ctx, policyResource, name)
	if err != nil {
		return err
	}
	if policy == nil {
		return schemas.Errorf(schemas.Conflict, "reserve", "the sandbox's policy was removed while the sandbox was made")
	}
	if ownedBy(*policy, string(owner.GetUID())) {
		return nil
	}
	_, err = p.patch(ctx, policyResource, name, object{"metadata": object{"ownerReferences": references(owner)}})
	return err
}

// owned makes a new object belong to another: the cluster removes it behind that.
func owned(o object, owner *unstructured.Unstructured) object {
	if m, ok := o["metadata"].(object); ok {
		m["ownerReferences"] = references(owner)
	}
	return o
}

func references(owner *unstructured.Unstructured) []any {
	return []any{object{"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID())}}
}

// restart ends what is left of a box whose pod has ended, so that it gets a new one.
func (p *Provider) restart(ctx context.Context, name, box string, s podState) error {
	if p.sandbox == "" {
		if err := p.remove(ctx, podResource, s.name, s.uid); err != nil {
			return err
		}
		return p.podsGone(ctx, name, s.uid)
	}
	if err := p.suspend(ctx, name, box); err != nil {
		return err
	}
	return p.podsGone(ctx, name, s.uid) // the next attempt wakes it
}

// suspend takes the pod of the Sandbox with the UID away. Code conflict: it is another by now.
func (p *Provider) suspend(ctx context.Context, name, uid string) error {
	change := object{}
	p.setRunning(change, false)
	_, err := p.patch(ctx, p.boxResource(), name, object{"metadata": object{"uid": uid}, "spec": change})
	return err
}

// Release deletes the box and waits until its processes are gone. A box that is gone, and one that was recreated under the same name, are
// left alone. Codes: unavailable, also when the pod is not gone in time: release it again.
func (p *Provider) Release(ctx context.Context, ref schemas.Ref) error {
	name, id, ok := p.parseRef(ref)
	if !ok {
		return nil
	}
	anchor, err := p.anchor(ctx, name)
	if err != nil || anchor == nil || string(anchor.GetUID()) != id.box {
		return err
	}
	return p.release(ctx, name, id.box)
}

// anchor is the object whose UID is the box's; nil: there is no box.
func (p *Provider) anchor(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if p.sandbox == "" {
		return p.get(ctx, policyResource, name)
	}
	return p.get(ctx, p.boxResource(), name)
}

// release deletes a box: first what runs, and when that is gone its policy. One that another box has taken over
// meanwhile stays.
func (p *Provider) release(ctx context.Context, name, box string) error {
	if p.sandbox != "" { // first the pod, then what protects it
		err := p.suspend(ctx, name, box)
		if schemas.CodeOf(err) == schemas.NotFound || schemas.CodeOf(err) == schemas.Conflict {
			return nil
		}
		if err == nil {
			err = p.boxGone(ctx, name, box)
		}
		if err != nil {
			return err
		}
	} else { // a Reserve now waits until it is gone
		_, err := p.patch(ctx, policyResource, name, object{"metadata": object{"uid": box, "annotations": object{noteLeaving: "true"}}})
		switch schemas.CodeOf(err) {
		case schemas.NotFound, schemas.Conflict: // gone, or another box's
			return nil
		case "":
		default:
			return err
		}
	}
	uid := box
	if p.sandbox == "" {
		uid = ""
	}
	if err := p.remove(ctx, p.boxResource(), name, uid); err != nil {
		return err
	}
	if err := p.boxGone(ctx, name, box); err != nil {
		return err
	}
	if p.sandbox == "" {
		if err := p.remove(ctx, claimResource, homeName(name), ""); err != nil {
			return err
		}
		return p.remove(ctx, policyResource, name, box)
	}
	policy, err := p.get(ctx, policyResource, name)
	if err != nil || policy == nil || !ownedBy(*policy, box) {
		return err
	}
	return p.removeVersion(ctx, policyResource, policy)
}

// sameJSON compares what the API server holds with what we would write: it fills in nothing in a policy that we
// leave out.
func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
