package kubetest

import (
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	extensionGroup = "extensions.agents.x-k8s.io"
	idLabel        = "agents.x-k8s.io/claim-uid"
)

// checkClaim validates a SandboxClaim, and converts one of the older version to the stored version.
func checkClaim(o object, version string, bad complain) {
	spec, _ := o["spec"].(object)
	if version == "v1alpha1" {
		if text(spec, "sandboxTemplateRef", "name") == "" {
			bad("", "Required value", "spec", "sandboxTemplateRef")
		}
		if pool := text(spec, "warmpool"); spec != nil && pool != "" {
			spec["warmPoolRef"] = object{"name": pool}
		}
	}
	if text(spec, "warmPoolRef", "name") == "" {
		bad("", "Required value", "spec", "warmPoolRef")
	}
	if p := text(spec, "lifecycle", "shutdownPolicy"); p != "" && !slices.Contains([]string{"Delete", "DeleteForeground", "Retain"}, p) {
		bad(p, "supported values: Delete, DeleteForeground, Retain", "spec", "lifecycle", "shutdownPolicy")
	}
	checkLabels(at(spec, "additionalPodMetadata", "labels"), bad)
}

// ownerOf returns an owner reference to an object, as the controller.
func ownerOf(o object, kind string) []any {
	return []any{object{
		"apiVersion": extensionGroup + "/v1beta1", "kind": kind, "name": text(o, "metadata", "name"), "uid": text(o, "metadata", "uid"),
		"controller": true,
	}}
}

// ownedSandboxes returns the Sandboxes of a pool or a claim, by name.
func (c *Cluster) ownedSandboxes(uid string) (keys []key) {
	owned := func(r any) bool { return text(r, "uid") == uid }
	for k, o := range c.objects {
		if k.resource == "sandboxes" && slices.ContainsFunc(list(o, "metadata", "ownerReferences"), owned) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.name, b.name) })
	return keys
}

// sandboxOf creates a Sandbox from a template.
func (c *Cluster) sandboxOf(template object, name string, labels object, owner []any) error {
	made := object{
		"apiVersion": sandboxGroup + "/v1beta1", "kind": "Sandbox",
		"metadata": object{"name": name, "ownerReferences": owner},
		"spec":     object{"podTemplate": clone(object{"t": at(template, "spec", "podTemplate")})["t"]},
	}
	normalize(made, "v1beta1")
	set(made, merge(asObject(at(template, "spec", "podTemplate", "metadata", "labels")), labels), "spec", "podTemplate", "metadata", "labels")
	return c.create(key{sandboxGroup, "sandboxes", name}, made)
}

func asObject(v any) object {
	o, _ := v.(object)
	return o
}

// reconcilePool fills a pool with Sandboxes of its template.
func (c *Cluster) reconcilePool(k key, o object) {
	want, ok := at(o, "spec", "replicas").(int64)
	if !ok {
		want = 1
	}
	template := c.objects[key{extensionGroup, "sandboxtemplates", text(o, "spec", "sandboxTemplateRef", "name")}]
	if template == nil {
		return
	}
	for n := int64(len(c.ownedSandboxes(text(o, "metadata", "uid")))); n < want; n++ {
		if c.sandboxOf(template, k.name+"-"+c.number(), object{}, ownerOf(o, "SandboxWarmPool")) != nil {
			return
		}
	}
}

// reconcileClaim binds a claim to a ready Sandbox of its pool, or to a new one if there is none, and removes it at its shutdown time.
func (c *Cluster) reconcileClaim(k key, o object) {
	if at, err := time.Parse(time.RFC3339, text(o, "spec", "lifecycle", "shutdownTime")); err == nil && !at.After(time.Now()) {
		c.remove(k)
		return
	}
	if text(o, "status", "sandbox", "name") != "" {
		return
	}
	pool := c.objects[key{extensionGroup, "sandboxwarmpools", text(o, "spec", "warmPoolRef", "name")}]
	template := c.objects[key{extensionGroup, "sandboxtemplates", text(pool, "spec", "sandboxTemplateRef", "name")}]
	if template == nil {
		c.condition(k, o, "False", "TemplateNotFound", "the template of the warm pool is not there")
		return
	}
	labels := object{idLabel: text(o, "metadata", "uid")}
	maps.Copy(labels, asObject(at(o, "spec", "additionalPodMetadata", "labels")))
	for name := range labels {
		if at(template, "spec", "podTemplate", "metadata", "labels", name) != nil {
			c.condition(k, o, "False", "InvalidMetadata", name+" overrides a label of the template")
			return
		}
	}
	name := c.adopt(o, pool, template, labels)
	if name == "" {
		name = k.name
		if err := c.sandboxOf(template, name, labels, ownerOf(o, "SandboxClaim")); err != nil {
			c.condition(k, o, "False", "ReconcilerError", err.Error())
			return
		}
	}
	bound := clone(c.objects[k])
	set(bound, name, "status", "sandbox", "name")
	_ = c.update(k, bound) // it is there: the lock is held
}

// adopt makes the claim the owner of a ready Sandbox of a pool, and returns its name; empty if there is none.
func (c *Cluster) adopt(claim, pool, template, labels object) string {
	for _, k := range c.ownedSandboxes(text(pool, "metadata", "uid")) {
		o := c.objects[k]
		conditions := list(o, "status", "conditions")
		if len(conditions) == 0 || text(conditions[0], "status") != "True" {
			continue
		}
		adopted := clone(o)
		set(adopted, ownerOf(claim, "SandboxClaim"), "metadata", "ownerReferences")
		set(adopted, k.name, "metadata", "annotations", sandboxGroup+"/pod-name")
		all := merge(asObject(at(template, "spec", "podTemplate", "metadata", "labels")), labels)
		set(adopted, all, "spec", "podTemplate", "metadata", "labels")
		if c.update(k, adopted) == nil {
			return k.name
		}
	}
	return ""
}

// relabel sets a pod's labels to those in its Sandbox, and reports whether they changed.
func (c *Cluster) relabel(k key, pod, sandbox object) bool {
	changed := clone(pod)
	for name, value := range asObject(at(sandbox, "spec", "podTemplate", "metadata", "labels")) {
		set(changed, value, "metadata", "labels", name)
	}
	if sameJSON(changed, pod) {
		return false
	}
	return c.update(k, changed) == nil
}
