package kubernetes

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sandjet/sandjet/schemas"
)

const (
	extensionGroup = "extensions.agents.x-k8s.io"
	kindOfClaims   = "SandboxClaim"
	labelPool      = "sandjet/pool" // on the pods of a warm pool: its name
)

// warmPool takes boxes for single runs from a SandboxWarmPool, if it has matching ones.
type warmPool struct {
	api       *api
	served    served
	manifests manifests
	policies  *policies
	pods      *pods
	name      string        // of the pool
	patience  time.Duration // for a claim to get its Sandbox
	log       *slog.Logger
	coldFor   atomic.Pointer[string] // why it was not used last
}

// isolate makes a policy that keeps the pool's unclaimed pods from every network.
func (wp *warmPool) isolate(ctx context.Context) error {
	name := "pool-" + wp.name
	deny := wp.manifests.policy(name, kindPool, schemas.Network{Mode: schemas.DenyAll}, nil)
	if spec, ok := deny["spec"].(object); ok {
		spec["podSelector"] = object{"matchLabels": object{labelPool: wp.name}}
	}
	if meta, ok := deny["metadata"].(object); ok { // it is no box's: none of those sweeps it
		meta["labels"] = object{labelKind: kindPool, labelPool: wp.name}
	}
	_, _, err := wp.api.create(ctx, policyResource, deny)
	return err
}

// template returns the name of the pool's template if boxes like b can be claimed from the pool, otherwise why not.
func (wp *warmPool) template(ctx context.Context, b box) (template, why string, err error) {
	pool, err := wp.api.get(ctx, wp.served.extension("sandboxwarmpools"), wp.name)
	if err != nil || pool == nil {
		return "", "there is no such pool", err
	}
	template, _, _ = unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	t, err := wp.api.get(ctx, wp.served.extension("sandboxtemplates"), template)
	if err != nil || t == nil {
		return "", "the pool's template is not there", err
	}
	label, _, _ := unstructured.NestedString(t.Object, "spec", "podTemplate", "metadata", "labels", labelPool)
	management, _, _ := unstructured.NestedString(t.Object, "spec", "networkPolicyManagement")
	switch {
	case label != wp.name:
		return "", "the template's pods lack the label " + labelPool + ", by which they are kept from the network", nil
	case management != "Unmanaged":
		return "", "networkPolicyManagement of the template is not Unmanaged: its policy would open the network", nil
	case !wp.manifests.isPodOf(t, b):
		return "", "the template's pod is another than the sandbox's", nil
	}
	return template, "", nil
}

// claim takes a box for one run from the pool. It returns false if the pool has no matching box; nothing is left of the attempt then.
func (wp *warmPool) claim(ctx context.Context, b box) (sandbox *unstructured.Unstructured, ok bool, err error) {
	if wp.served.claims == "" || b.kept() || len(b.spec.Mounts) > 0 {
		return nil, false, nil
	}
	template, why, err := wp.template(ctx, b)
	if err != nil {
		return nil, false, err
	}
	if why != "" {
		wp.cold(why)
		return nil, false, nil
	}
	if _, err = wp.policies.make(ctx, b); err != nil {
		return nil, false, err
	}
	if _, _, err = wp.api.create(ctx, wp.served.poolClaimResource(), wp.manifests.poolClaim(b, template)); err != nil {
		return nil, false, err
	}
	sandbox, err = wp.bound(ctx, b.name)
	if err != nil || wp.manifests.isPodOf(sandbox, b) {
		return sandbox, err == nil, err
	}
	wp.cold("a box of the pool was made by an older template")
	err = wp.api.remove(ctx, wp.served.poolClaimResource(), b.name, "")
	if err == nil {
		err = wp.pods.gone(ctx, b.name, anyPod)
	}
	return nil, false, err
}

// cold logs why boxes are made although there is a pool, once per reason in a row.
func (wp *warmPool) cold(why string) {
	if last := wp.coldFor.Swap(&why); last == nil || *last != why {
		wp.log.Warn("warm pool not used", "pool", wp.name, "reason", why)
	}
}

// bound waits until a claim has its Sandbox, at most StartTimeout.
func (wp *warmPool) bound(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	waiting, cancel := context.WithTimeout(ctx, wp.patience)
	defer cancel()
	sandbox, problem := "", "see whether the controller of agent-sandbox runs with its extensions"
	err := wp.api.await(waiting, wp.served.poolClaimResource(), labelBox+"="+name, func(all []unstructured.Unstructured) (bool, error) {
		if len(all) == 0 {
			return true, schemas.OpErrorf(schemas.Unavailable, "start box", "its claim was removed")
		}
		sandbox, _, _ = unstructured.NestedString(all[0].Object, "status", "sandbox", "name")
		if s := notReady(all[0]); s != "" {
			problem = s
		}
		return sandbox != "", nil
	})
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, schemas.OpErrorf(schemas.Unavailable, "start box", "no sandbox was bound to its claim within %s: %s",
			wp.patience, problem)
	}
	if err != nil {
		return nil, err
	}
	o, err := wp.api.get(ctx, wp.served.boxResource(), sandbox)
	if err == nil && o == nil {
		err = schemas.OpErrorf(schemas.Unavailable, "start box", "the sandbox that was bound to its claim is gone")
	}
	return o, err
}

// check checks whether boxes can be claimed.
func (wp *warmPool) check(ctx context.Context) Finding {
	const remedy = "deploy/kubernetes/warm-pool.yaml has one that fits the defaults; without it boxes are made when they are needed"
	if wp.served.claims == "" {
		return Finding{Says: "the cluster serves no SandboxClaim: the warm pool is not used", Remedy: "install the extensions of agent-sandbox"}
	}
	_, why, err := wp.template(ctx, box{name: "none", kind: kindRun})
	switch {
	case err != nil:
		return Finding{Says: "the warm pool cannot be looked at: " + err.Error(), Remedy: "apply deploy/kubernetes/rbac-warm-pool.yaml"}
	case why != "":
		return Finding{Says: "the warm pool " + wp.name + " is not used: " + why, Remedy: remedy}
	}
	return Finding{OK: true, Says: "runs without a workspace take boxes of the warm pool " + wp.name}
}

// notReady returns why a claim is not ready, by its condition.
func notReady(o unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Ready" && m["status"] != "True" {
			reason, _ := m["reason"].(string)
			message, _ := m["message"].(string)
			return reason + ": " + message
		}
	}
	return ""
}
