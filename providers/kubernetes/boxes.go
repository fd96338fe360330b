package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/schemas"
)

// boxes makes, wakes, lists and removes boxes.
type boxes struct {
	api        *api
	served     served
	manifests  manifests
	pods       *pods
	policies   *policies
	workspaces *workspaces
	lifetime   time.Duration // of a kept box that is not used
}

// anchor returns the object whose UID identifies the box; nil if there is no box.
func (bs *boxes) anchor(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if bs.served.sandbox == "" {
		return bs.api.get(ctx, policyResource, name)
	}
	return bs.api.get(ctx, bs.served.boxResource(), name)
}

// make creates the missing objects of a box: the claims of its files, its policy, and then the box itself. It returns the object whose UID
// identifies the box: the Sandbox or, where pods are replaced under one policy, the policy.
func (bs *boxes) make(ctx context.Context, b box) (*unstructured.Unstructured, error) {
	if err := bs.workspaces.make(ctx, b.spec.Mounts); err != nil {
		return nil, err
	}
	policy, err := bs.policies.make(ctx, b)
	if err != nil {
		return nil, err
	}
	if bs.served.sandbox == "" {
		return policy, bs.makePod(ctx, b, policy)
	}
	if b.kept() {
		if there, err := bs.api.get(ctx, bs.served.boxResource(), b.name); err != nil || there != nil {
			return bs.wake(ctx, b, there, err)
		}
		if err := bs.homeFree(ctx, b, ""); err != nil {
			return nil, err
		}
	}
	made, existed, err := bs.api.create(ctx, bs.served.boxResource(), bs.manifests.sandbox(b))
	if err != nil {
		return nil, err
	}
	if existed {
		there, err := bs.api.get(ctx, bs.served.boxResource(), b.name)
		return bs.wake(ctx, b, there, err)
	}
	if !b.kept() { // its policy belongs to the pod, once there is one
		return made, nil
	}
	return made, bs.policies.own(ctx, b.name, made)
}

// homeFree returns an error if the home belongs to another box than uid. The cluster removes the home of a former box some time after the
// box; a pod that is made meanwhile would get the former box's files, and lose its own with them. Code: conflict.
func (bs *boxes) homeFree(ctx context.Context, b box, uid string) error {
	if !b.hasHome() {
		return nil
	}
	home, err := bs.api.get(ctx, claimResource, homeName(b.name))
	switch {
	case err != nil || home == nil:
		return err
	case home.GetDeletionTimestamp() != nil, len(home.GetOwnerReferences()) > 0 && !ownedBy(*home, uid):
		return schemas.OpErrorf(schemas.Conflict, "reserve", "the home of the former sandbox is being removed")
	}
	return nil
}

// wake gives the Sandbox a pod and a new shutdown time, and returns it. There and err are the result of reading it.
func (bs *boxes) wake(ctx context.Context, b box, there *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
	switch {
	case err != nil:
		return nil, err
	case there == nil || there.GetDeletionTimestamp() != nil:
		return nil, schemas.OpErrorf(schemas.Conflict, "reserve", "the sandbox is being released")
	}
	change := object{}
	if !bs.served.runs(there) {
		bs.served.setRunning(change, true)
	}
	if until, _, _ := unstructured.NestedString(there.Object, "spec", "shutdownTime"); mustRenew(until, b.until, bs.lifetime) {
		change["shutdownTime"] = b.until.UTC().Format(time.RFC3339)
	}
	if len(change) > 0 {
		there, err = bs.api.patch(ctx, bs.served.boxResource(), b.name, object{"spec": change})
	}
	if err == nil {
		err = bs.policies.own(ctx, b.name, there)
	}
	return there, err
}

// makePod creates the pod of a box in a cluster without Sandbox objects, and the claim of its home. Both are owned by the policy and are
// removed with it.
func (bs *boxes) makePod(ctx context.Context, b box, policy *unstructured.Unstructured) error {
	if b.hasHome() {
		claim := bs.manifests.claim(homeName(b.name), b.kind, b.name, "ReadWriteOnce", bs.manifests.disk(b.spec))
		_, existed, err := bs.api.create(ctx, claimResource, owned(claim, policy))
		if err == nil && existed {
			err = bs.homeFree(ctx, b, string(policy.GetUID()))
		}
		if err != nil {
			return err
		}
	}
	_, existed, err := bs.api.create(ctx, podResource, owned(bs.manifests.pod(b), policy))
	if err != nil || !existed {
		return err
	}
	there, err := bs.api.get(ctx, podResource, b.name)
	switch {
	case err != nil:
		return err
	case there == nil:
		return schemas.OpErrorf(schemas.Conflict, "reserve", "the pod was removed meanwhile")
	case there.GetDeletionTimestamp() != nil || !ownedBy(*there, string(policy.GetUID())): // of a box that is being ended
		err := bs.pods.podGone(ctx, b.name, string(there.GetUID()))
		return errors.Join(schemas.OpErrorf(schemas.Conflict, "reserve", "the former pod is being ended"), err)
	}
	if mustRenew(policy.GetAnnotations()[noteUntil], b.until, bs.lifetime) {
		notes := object{noteUntil: b.until.UTC().Format(time.RFC3339)}
		_, err = bs.api.patch(ctx, policyResource, b.name, object{"metadata": object{"annotations": notes}})
	}
	return err
}

// restart removes the ended pod of a box, so that it gets a new one.
func (bs *boxes) restart(ctx context.Context, name, box string, s podState) error {
	if bs.served.sandbox == "" {
		if err := bs.api.remove(ctx, podResource, s.name, s.uid); err != nil {
			return err
		}
		return bs.pods.podGone(ctx, name, s.uid)
	}
	if err := bs.suspend(ctx, name, box); err != nil {
		return err
	}
	return bs.pods.podGone(ctx, name, s.uid) // the next attempt wakes it
}

// suspend removes the pod of the Sandbox with the UID. Code: conflict, the name belongs to another Sandbox by now.
func (bs *boxes) suspend(ctx context.Context, name, uid string) error {
	change := object{}
	bs.served.setRunning(change, false)
	_, err := bs.api.patch(ctx, bs.served.boxResource(), name, object{"metadata": object{"uid": uid}, "spec": change})
	return err
}

// remove deletes a box: first its pod and, when that is gone, its policy. A policy that another box uses by now stays.
func (bs *boxes) remove(ctx context.Context, name, box string) error {
	if bs.served.sandbox != "" { // first the pod, then what protects it
		err := bs.suspend(ctx, name, box)
		if schemas.CodeOf(err) == schemas.NotFound || schemas.CodeOf(err) == schemas.Conflict {
			return nil
		}
		if err == nil {
			err = bs.pods.boxGone(ctx, name, box)
		}
		if err != nil {
			return err
		}
	} else { // a Reserve now waits until it is gone
		_, err := bs.api.patch(ctx, policyResource, name, object{"metadata": object{"uid": box, "annotations": object{noteLeaving: "true"}}})
		switch schemas.CodeOf(err) {
		case schemas.NotFound, schemas.Conflict: // gone, or another box's
			return nil
		case "":
		default:
			return err
		}
	}
	uid := box
	if bs.served.sandbox == "" {
		uid = ""
	}
	if err := bs.api.remove(ctx, bs.served.boxResource(), name, uid); err != nil {
		return err
	}
	if err := bs.pods.boxGone(ctx, name, box); err != nil {
		return err
	}
	if bs.served.sandbox == "" {
		if err := bs.api.remove(ctx, claimResource, homeName(name), ""); err != nil {
			return err
		}
		return bs.api.remove(ctx, policyResource, name, box)
	}
	policy, err := bs.api.get(ctx, policyResource, name)
	if err != nil || policy == nil || !ownedBy(*policy, box) {
		return err
	}
	return bs.api.removeVersion(ctx, policyResource, policy)
}

// list lists the boxes and the claims on boxes of the pool, by a label.
func (bs *boxes) list(ctx context.Context, selector string) ([]unstructured.Unstructured, error) {
	all, err := bs.api.list(ctx, bs.served.boxResource(), selector)
	if err != nil {
		return nil, err
	}
	if bs.served.claims == "" {
		return all.Items, nil
	}
	claims, err := bs.api.list(ctx, bs.served.poolClaimResource(), selector)
	if err != nil {
		return nil, err
	}
	return append(all.Items, claims.Items...), nil
}

// find returns the pod of a kept box, if it is still the pod that the ref names. Code: not_found.
func (bs *boxes) find(ctx context.Context, ref schemas.Ref) (target, error) {
	gone := schemas.OpErrorf(schemas.NotFound, "run", "the sandbox is gone: reserve it again")
	name, id, ok := parseRef(bs.api.namespace, ref)
	if !ok {
		return target{}, gone
	}
	s, ok, err := bs.pods.of(ctx, name, id.box)
	if err != nil {
		return target{}, err
	}
	if !ok || s.uid != id.pod || s.container != id.container || !s.ready {
		return target{}, gone
	}
	return target{name: name, box: id.box, pod: s}, nil
}

// mustRenew reports whether enough of the lifetime has passed to renew it, which is not done at each use.
func mustRenew(until string, wanted time.Time, lifetime time.Duration) bool {
	t, err := time.Parse(time.RFC3339, until)
	return err != nil || wanted.Sub(t) > lifetime/16
}

// owned sets the owner of a new object: the cluster removes the object after its owner.
func owned(o object, owner *unstructured.Unstructured) object {
	if m, ok := o["metadata"].(object); ok {
		m["ownerReferences"] = references(owner)
	}
	return o
}

// references returns owner references to one owner.
func references(owner *unstructured.Unstructured) []any {
	return []any{object{"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID())}}
}

// sameJSON compares the API server's version of an object with ours. That suffices for policies, in which the server adds no defaults.
func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
