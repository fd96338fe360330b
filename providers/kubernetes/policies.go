package kubernetes

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/schemas"
)

// policies makes the network policies of boxes.
type policies struct {
	api       *api
	manifests manifests
	proxies   *proxies
}

// make creates the box's policy, or updates the rules of an existing one.
func (s *policies) make(ctx context.Context, b box) (*unstructured.Unstructured, error) {
	by, err := s.proxies.of(ctx, b.spec.Network)
	if err != nil {
		return nil, err
	}
	wanted := identified(b, s.manifests.policy(b.name, b.kind, b.spec.Network, by))
	made, existed, err := s.api.create(ctx, policyResource, wanted)
	if err != nil || !existed {
		return made, err
	}
	there, err := s.api.get(ctx, policyResource, b.name)
	switch {
	case err != nil:
		return nil, err
	case there == nil || there.GetDeletionTimestamp() != nil || there.GetAnnotations()[noteLeaving] != "":
		return nil, schemas.OpErrorf(schemas.Conflict, "reserve", "the sandbox is being released")
	case sameJSON(there.Object["spec"], wanted["spec"]):
		return there, nil
	}
	change, _ := wanted["spec"].(object) // a merge keeps what is not named: name what has to go
	if change["egress"] == nil {
		change["egress"] = nil
	}
	return s.api.patch(ctx, policyResource, b.name, object{"spec": change})
}

// own sets the box's object as the owner of its policy: the cluster removes the policy after the box, however that ends.
func (s *policies) own(ctx context.Context, name string, owner *unstructured.Unstructured) error {
	policy, err := s.api.get(ctx, policyResource, name)
	if err != nil {
		return err
	}
	if policy == nil {
		return schemas.OpErrorf(schemas.Conflict, "reserve", "the sandbox's policy was removed while the sandbox was made")
	}
	if ownedBy(*policy, string(owner.GetUID())) {
		return nil
	}
	_, err = s.api.patch(ctx, policyResource, name, object{"metadata": object{"ownerReferences": references(owner)}})
	return err
}
