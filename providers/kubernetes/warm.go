package kubernetes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sandjet/sandjet/schemas"
)

const (
	extensionGroup = "extensions.agents.x-k8s.io"
	kindOfClaims   = "SandboxClaim"
	labelPool      = "sandjet/pool" // on the pods of a warm pool: its name
)

// extension is a resource beside Sandboxes, in the version that the cluster serves.
func (p *Provider) extension(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: extensionGroup, Version: p.claims, Resource: resource}
}

func (p *Provider) claimedResource() schema.GroupVersionResource { return p.extension("sandboxclaims") }

// findPool finds out whether the cluster serves claims, and keeps the pool's unclaimed pods from every network.
func (p *Provider) findPool(ctx context.Context) error {
	if p.opt.WarmPool == "" || p.sandbox == "" {
		return nil
	}
	var err error
	if p.claims, err = servedVersion(ctx, p.config, extensionGroup); err != nil || p.claims == "" {
		return err
	}
	name := "pool-" + p.opt.WarmPool
	deny := p.policy(name, kindPool, schemas.Network{Mode: schemas.DenyAll}, nil)
	if spec, ok := deny["spec"].(object); ok {
		spec["podSelector"] = object{"matchLabels": object{labelPool: p.opt.WarmPool}}
	}
	if meta, ok := deny["metadata"].(object); ok { // it is no box's: none of those sweeps it
		meta["labels"] = object{labelKind: kindPool, labelPool: p.opt.WarmPool}
	}
	_, _, err = p.create(ctx, policyResource, deny)
	return err
}

// warm returns the name of the template if boxes like b can be claimed from the pool, else why not.
func (p *Provider) warm(ctx context.Context, b box) (template, why string, err error) {
	pool, err := p.get(ctx, p.extension("sandboxwarmpools"), p.opt.WarmPool)
	if err != nil || pool == nil {
		return "", "there is no such pool", err
	}
	template, _, _ = unstructured.NestedString(pool.Object, "spec", "sandboxTemplateRef", "name")
	t, err := p.get(ctx, p.extension("sandboxtemplates"), template)
	if err != nil || t == nil {
		return "", "the pool's template is not there", err
	}
	label, _, _ := unstructured.NestedString(t.Object, "spec", "podTemplate", "metadata", "labels", labelPool)
	management, _, _ := unstructured.NestedString(t.Object, "spec", "networkPolicyManagement")
	switch {
	case label != p.opt.WarmPool:
		return "", "the template's pods lack the label " + labelPool + ", by which they are kept from the network", nil
	case management != "Unmanaged":
		return "", "networkPolicyManagement of the template is not Unmanaged: its policy would open the network", nil
	case !p.isPodOf(t, b):
		return "", "the template's pod is another than the sandbox's", nil
	}
	return template, "", nil
}

// isPodOf reports whether a template, or a Sandbox, has the pod that a box of ours would have.
func (p *Provider) isPodOf(o *unstructured.Unstructured, b box) bool {
	spec, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "podTemplate", "spec")
	return sameJSON(spec, p.podSpec(b))
}

// claimObjectOf is a claim on a box of the pool, which ends as boxes of our own do.
func (p *Provider) claimObjectOf(b box, template string) object {
	spec := object{
		"lifecycle":             object{"shutdownTime": b.until.UTC().Format(time.RFC3339), "shutdownPolicy": "Delete"},
		"additionalPodMetadata": object{"labels": object{labelBox: b.name, labelKind: b.kind}},
	}
	if p.claims == "v1alpha1" {
		spec["sandboxTemplateRef"], spec["warmpool"] = object{"name": template}, p.opt.WarmPool
	} else {
		spec["warmPoolRef"] = object{"name": p.opt.WarmPool}
	}
	return p.annotated(b, object{
		"apiVersion": extensionGroup + "/" + p.claims, "kind": kindOfClaims,
		"metadata": p.metadata(b.name, b.kind, b.name), "spec": spec,
	})
}

// claim takes a box of one run from the pool, where it has one like it. Not ok: it has none, and nothing is left of the attempt.
func (p *Provider) claim(ctx context.Context, b box) (sandbox *unstructured.Unstructured, ok bool, err error) {
	if p.claims == "" || b.kept() || len(b.spec.Mounts) > 0 {
		return nil, false, nil
	}
	template, why, err := p.warm(ctx, b)
	if err != nil {
		return nil, false, err
	}
	if why != "" {
		p.cold(why)
		return nil, false, nil
	}
	if _, err = p.makePolicy(ctx, b); err != nil {
		return nil, false, err
	}
	if _, _, err = p.create(ctx, p.claimedResource(), p.claimObjectOf(b, template)); err != nil {
		return nil, false, err
	}
	sandbox, err = p.bound(ctx, b.name)
	if err != nil || p.isPodOf(sandbox, b) {
		return sandbox, err == nil, err
	}
	p.cold("a box of the pool was made by an older template")
	err = p.remove(ctx, p.claimedResource(), b.name, "")
	if err == nil {
		err = p.gone(ctx, b.name, anyPod)
	}
	return nil, false, err
}

// made lists what boxes are and the claims on boxes of the pool, by a label.
func (p *Provider) made(ctx context.Context, selector string) ([]unstructured.Unstructured, error) {
	all, err := p.list(ctx, p.boxResource(), selector)
	if err != nil {
		return nil, err
	}
	if p.claims == "" {
		return all.Items, nil
	}
	claims, err := p.list(ctx, p.claimedResource(), selector)
	if err != nil {
		return nil, err
	}
	return append(all.Items, claims.Items...), nil
}

// cold logs once why boxes are made though there is a pool.
func (p *Provider) cold(why string) {
	if last := p.coldFor.Swap(&why); last == nil || *last != why {
		p.opt.Log.Warn("warm pool not used", "pool", p.opt.WarmPool, "reason", why)
	}
}

// bound waits until a claim has its Sandbox, StartTimeout at most.
func (p *Provider) bound(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	waiting, cancel := context.WithTimeout(ctx, p.opt.StartTimeout)
	defer cancel()
	sandbox, problem := "", "see whether the controller of agent-sandbox runs with its extensions"
	err := p.await(waiting, p.claimedResource(), labelBox+"="+name, func(all []unstructured.Unstructured) (bool, error) {
		if len(all) == 0 {
			return true, schemas.Errorf(schemas.Unavailable, "start box", "its claim was removed")
		}
		sandbox, _, _ = unstructured.NestedString(all[0].Object, "status", "sandbox", "name")
		if s := notReady(all[0]); s != "" {
			problem = s
		}
		return sandbox != "", nil
	})
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, schemas.Errorf(schemas.Unavailable, "start box", "no sandbox was bound to its claim within %s: %s",
			p.opt.StartTimeout, problem)
	}
	if err != nil {
		return nil, err
	}
	o, err := p.get(ctx, p.boxResource(), sandbox)
	if err == nil && o == nil {
		err = schemas.Errorf(schemas.Unavailable, "start box", "the sandbox that was bound to its claim is gone")
	}
	return o, err
}

// notReady is what a claim's controller says.
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

// checkPool looks whether boxes can be claimed.
func (p *Provider) checkPool(ctx context.Context) Finding {
	const remedy = "deploy/kubernetes/warm-pool.yaml has one that fits the defaults; without it boxes are made when they are needed"
	if p.claims == "" {
		return Finding{Says: "the cluster serves no SandboxClaim: the warm pool is not used", Remedy: "install the extensions of agent-sandbox"}
	}
	_, why, err := p.warm(ctx, box{name: "none", kind: kindRun})
	switch {
	case err != nil:
		return Finding{Says: "the warm pool cannot be looked at: " + err.Error(), Remedy: "apply deploy/kubernetes/rbac-warm-pool.yaml"}
	case why != "":
		return Finding{Says: "the warm pool " + p.opt.WarmPool + " is not used: " + why, Remedy: remedy}
	}
	return Finding{OK: true, Says: "runs without a workspace take boxes of the warm pool " + p.opt.WarmPool}
}
