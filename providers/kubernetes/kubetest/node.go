package kubetest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Node is the part of a node that the scheduler considers.
type Node struct {
	Labels map[string]string
	// Taint keeps pods away that do not tolerate it; the zero value does not.
	Taint struct{ Key, Value, Effect string }
	// Extended are resources that devices add to it, such as nvidia.com/gpu. Each pod may have all of them.
	Extended map[string]int64
}

// refuses returns why a pod cannot run on the node; empty if it can.
func (n Node) refuses(pod object) string {
	selector, _ := at(pod, "spec", "nodeSelector").(object)
	for name, value := range selector {
		if n.Labels[name] != value {
			return "node(s) didn't match Pod's node affinity/selector"
		}
	}
	if n.Taint.Key != "" && !slices.ContainsFunc(list(pod, "spec", "tolerations"), n.tolerated) {
		return "node(s) had untolerated taint {" + n.Taint.Key + ": " + n.Taint.Value + "}"
	}
	for _, c := range list(pod, "spec", "containers") {
		limits, _ := at(c, "resources", "limits").(object)
		for name, value := range limits {
			if isExtended(name) && quantity(value) > n.Extended[name] {
				return "Insufficient " + name
			}
		}
	}
	return ""
}

func (n Node) tolerated(t any) bool {
	value := text(t, "operator") == "Exists" || text(t, "value") == n.Taint.Value
	effect := text(t, "effect")
	return text(t, "key") == n.Taint.Key && value && (effect == "" || effect == n.Taint.Effect)
}

func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/")
}

func quantity(v any) int64 {
	s, _ := v.(string)
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0
	}
	return q.Value()
}

// checkExtended validates a container's extended resources as the API server does: whole numbers, with equal requests and limits.
func checkExtended(c any, bad complain) {
	limits, _ := at(c, "resources", "limits").(object)
	requests, _ := at(c, "resources", "requests").(object)
	for name, value := range limits {
		if !isExtended(name) {
			continue
		}
		s, _ := value.(string)
		if q, err := resource.ParseQuantity(s); err != nil || q.MilliValue()%1000 != 0 {
			bad(s, "must be an integer", "spec", "containers", "resources", "limits", name)
		}
		if asked, there := requests[name]; there && quantity(asked) != quantity(value) {
			bad(s, "must be equal to "+name+" limit", "spec", "containers", "resources", "requests", name)
		}
	}
	for name := range requests {
		if isExtended(name) && limits[name] == nil {
			bad("", "Limit must be set for non overcommitable resources", "spec", "containers", "resources", "limits", name)
		}
	}
}
