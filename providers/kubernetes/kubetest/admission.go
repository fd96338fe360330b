package kubetest

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Use is an operation of a client: a verb on a resource such as pods/exec of a group.
type Use struct{ Group, Resource, Verb string }

// Rule is a rule of a Role.
type Rule struct{ Groups, Resources, Verbs []string }

// Used returns the operations that the client has used.
func (c *Cluster) Used() []Use {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []Use
	for u := range c.used {
		all = append(all, u)
	}
	return all
}

func verbOf(r *http.Request, req request) string {
	watching := r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"
	switch {
	case req.sub == "exec" && r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodGet && req.name == "" && watching:
		return "watch"
	case r.Method == http.MethodGet && req.name == "":
		return "list"
	case r.Method == http.MethodGet:
		return "get"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	}
	return strings.ToLower(r.Method)
}

// authorize records an operation, and refuses it if no rule grants it.
func (c *Cluster) authorize(verb string, req request) error {
	u := Use{req.group, req.resource, verb}
	if req.sub != "" {
		u.Resource += "/" + req.sub
	}
	c.mu.Lock()
	c.used[u] = true
	c.mu.Unlock()
	if c.allows(u) {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: req.group, Resource: u.Resource}, req.name,
		fmt.Errorf("the user cannot %s %s in the namespace %s", verb, u.Resource, Namespace))
}

func (c *Cluster) allows(u Use) bool {
	return c.opt.Rules == nil || slices.ContainsFunc(c.opt.Rules, func(r Rule) bool {
		return slices.Contains(r.Groups, u.Group) && slices.Contains(r.Resources, u.Resource) && slices.Contains(r.Verbs, u.Verb)
	})
}

// admit validates an object before it is stored; old is the object that it replaces, nil if it is new.
func (c *Cluster) admit(req request, o, old object) (object, error) {
	o = clone(o)
	if text(o, "apiVersion") != versionOf(req) || text(o, "kind") != req.kind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s of %s, the path says %s of %s",
			text(o, "kind"), text(o, "apiVersion"), req.kind, versionOf(req)))
	}
	if err := Misspelt(o); err != nil && req.resource != "csidrivers" {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var wrong field.ErrorList
	bad := func(value any, why string, path ...string) {
		wrong = append(wrong, field.Invalid(field.NewPath(path[0], path[1:]...), value, why))
	}
	name := text(o, "metadata", "name")
	for _, why := range validation.IsDNS1123Subdomain(name) {
		bad(name, why, "metadata", "name")
	}
	checkLabels(at(o, "metadata", "labels"), bad)
	switch req.resource {
	case "pods":
		if old != nil && !sameJSON(old["spec"], o["spec"]) {
			bad("", "pod updates may not change fields of the spec", "spec")
		}
		checkPod(at(o, "spec"), bad)
	case "networkpolicies":
		checkPolicy(o, bad)
	case "sandboxclaims":
		checkClaim(o, req.version, bad)
	case "persistentvolumes":
		c.checkVolume(o, old, bad)
	case "persistentvolumeclaims":
		checkQuantity(at(o, "spec", "resources", "requests", "storage"), bad, "spec", "resources", "requests", "storage")
	case "sandboxes":
		normalize(o, req.version)
		if at(o, "spec", "podTemplate", "spec") == nil {
			bad("", "Required value", "spec", "podTemplate")
		}
		if p := text(o, "spec", "shutdownPolicy"); p != "" && p != "Delete" && p != "Retain" {
			bad(p, "supported values: Delete, Retain", "spec", "shutdownPolicy")
		}
		if m := text(o, "spec", "operatingMode"); m != "Running" && m != "Suspended" {
			bad(m, "supported values: Running, Suspended", "spec", "operatingMode")
		}
		if old != nil && !sameJSON(at(old, "spec", "volumeClaimTemplates"), at(o, "spec", "volumeClaimTemplates")) {
			bad("", "is immutable", "spec", "volumeClaimTemplates")
		}
	}
	if len(wrong) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: req.group, Kind: req.kind}, name, wrong)
	}
	if req.resource == "pods" && old == nil {
		if why := restricted(at(o, "spec")); len(why) > 0 {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name,
				fmt.Errorf("violates PodSecurity %q: %s", "restricted:latest", strings.Join(why, ", ")))
		}
	}
	return o, nil
}

type complain = func(value any, why string, path ...string)

func checkLabels(labels any, bad complain) {
	all, _ := labels.(object)
	for k, v := range all {
		value, _ := v.(string)
		for _, why := range append(validation.IsQualifiedName(k), validation.IsValidLabelValue(value)...) {
			bad(k, why, "metadata", "labels")
		}
	}
}

func checkQuantity(v any, bad complain, path ...string) {
	s, _ := v.(string)
	if q, err := resource.ParseQuantity(s); err != nil || q.Sign() <= 0 {
		bad(s, "must be a positive quantity", path...)
	}
}

func checkPod(spec any, bad complain) {
	volumes := map[string]bool{}
	for _, v := range list(spec, "volumes") {
		volumes[text(v, "name")] = true
	}
	for _, c := range list(spec, "containers") {
		if text(c, "image") == "" {
			bad("", "Required value", "spec", "containers", "image")
		}
		for _, kind := range []string{"requests", "limits"} {
			all, _ := at(c, "resources", kind).(object)
			for name, v := range all {
				checkQuantity(v, bad, "spec", "containers", "resources", kind, name)
			}
		}
		checkExtended(c, bad)
		paths := map[string]bool{}
		for _, m := range list(c, "volumeMounts") {
			path := text(m, "mountPath")
			if !volumes[text(m, "name")] {
				bad(text(m, "name"), "no such volume", "spec", "containers", "volumeMounts")
			}
			if paths[path] || strings.Contains(path, ":") || path == "" {
				bad(path, "must be unique and without colons", "spec", "containers", "volumeMounts", "mountPath")
			}
			paths[path] = true
		}
	}
	if len(list(spec, "containers")) == 0 {
		bad("", "Required value", "spec", "containers")
	}
}

// checkPolicy validates a NetworkPolicy's peers as the API server does: each is either pods or a CIDR, and exceptions lie within their
// CIDR.
func checkPolicy(o object, bad complain) {
	for _, rule := range list(o, "spec", "egress") {
		for _, peer := range list(rule, "to") {
			pods := at(peer, "podSelector") != nil || at(peer, "namespaceSelector") != nil
			switch block := at(peer, "ipBlock") != nil; {
			case pods && block:
				bad("", "may not specify both ipBlock and another peer", "spec", "egress", "to")
				continue
			case pods:
				continue
			}
			outer, err := netip.ParsePrefix(text(peer, "ipBlock", "cidr"))
			if err != nil {
				bad(text(peer, "ipBlock", "cidr"), "must be a valid CIDR", "spec", "egress", "to", "ipBlock", "cidr")
				continue
			}
			for _, e := range list(peer, "ipBlock", "except") {
				s, _ := e.(string)
				inner, err := netip.ParsePrefix(s)
				if err != nil || inner.Bits() <= outer.Bits() || !outer.Contains(inner.Addr()) {
					bad(s, "must be a strict subset of cidr", "spec", "egress", "to", "ipBlock", "except")
				}
			}
		}
	}
}

// restricted lists the violations of the pod security standard "restricted" in a pod.
func restricted(spec any) (why []string) {
	for _, name := range []string{"hostNetwork", "hostPID", "hostIPC"} {
		if at(spec, name) == true {
			why = append(why, name)
		}
	}
	allowed := []string{
		"name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
	}
	for _, v := range list(spec, "volumes") {
		m, _ := v.(object)
		for kind := range m {
			if !slices.Contains(allowed, kind) {
				why = append(why, "restricted volume types: "+kind)
			}
		}
	}
	for _, c := range append(list(spec, "containers"), list(spec, "initContainers")...) {
		either := func(path ...string) any {
			if v := at(c, append([]string{"securityContext"}, path...)...); v != nil {
				return v
			}
			return at(spec, append([]string{"securityContext"}, path...)...)
		}
		if at(c, "securityContext", "privileged") == true {
			why = append(why, "privileged")
		}
		if at(c, "securityContext", "allowPrivilegeEscalation") != false {
			why = append(why, "allowPrivilegeEscalation != false")
		}
		if !slices.Contains(list(c, "securityContext", "capabilities", "drop"), any("ALL")) {
			why = append(why, "unrestricted capabilities")
		}
		for _, a := range list(c, "securityContext", "capabilities", "add") {
			if a != "NET_BIND_SERVICE" {
				why = append(why, "unrestricted capabilities")
			}
		}
		if either("runAsNonRoot") != true {
			why = append(why, "runAsNonRoot != true")
		}
		if either("runAsUser") == int64(0) {
			why = append(why, "runAsUser=0")
		}
		if p := either("seccompProfile", "type"); p != "RuntimeDefault" && p != "Localhost" {
			why = append(why, "seccompProfile")
		}
	}
	return why
}
