package kubernetes

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sandjet/sandjet/schemas"
)

const defaultGPU = "nvidia.com/gpu"

// Toleration lets boxes run on nodes with a taint.
type Toleration struct {
	Key    string
	Value  string // empty: any
	Effect string // NoSchedule, PreferNoSchedule or NoExecute; empty: all
}

// ParseToleration parses a toleration in kubectl's notation for taints: KEY[=VALUE][:EFFECT]. Code: invalid.
func ParseToleration(s string) (t Toleration, err error) {
	rest, effect, _ := strings.Cut(s, ":")
	t.Key, t.Value, _ = strings.Cut(rest, "=")
	t.Effect = effect
	return t, t.check()
}

// check returns an error unless it can match a taint. Code: invalid.
func (t Toleration) check() error {
	effects := []string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}
	if len(validation.IsQualifiedName(t.Key)) > 0 || len(validation.IsValidLabelValue(t.Value)) > 0 || !slices.Contains(effects, t.Effect) {
		return schemas.Invalidf("tolerations", "%q is not a taint: write KEY=VALUE:EFFECT, where EFFECT is one of "+
			"NoSchedule, PreferNoSchedule, NoExecute",
			schemas.Quotable(t.Key+"="+t.Value+":"+t.Effect))
	}
	return nil
}

// object returns the toleration for a pod's spec.
func (t Toleration) object() object {
	o := object{"key": t.Key, "operator": "Exists"}
	if t.Value != "" {
		o["operator"], o["value"] = "Equal", t.Value
	}
	if t.Effect != "" {
		o["effect"] = t.Effect
	}
	return o
}

// ParseSelector parses labels of nodes, each as KEY=VALUE. Code: invalid.
func ParseSelector(labels []string) (map[string]string, error) {
	all := map[string]string{}
	for _, s := range labels {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, schemas.Invalidf("node-selector", "%q is not a label: write KEY=VALUE", schemas.Quotable(s))
		}
		all[key] = value
	}
	return all, checkSelector(all)
}

// checkSelector returns an error for an invalid node label. Code: invalid.
func checkSelector(labels map[string]string) error {
	for key, value := range labels {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return schemas.Invalidf("node-selector", "%q is not a label of a node: write KEY=VALUE", schemas.Quotable(key+"="+value))
		}
	}
	return nil
}

// checkNodes returns an error for the first invalid setting of nodes and GPUs.
func (o Options) checkNodes() error {
	for _, t := range o.Tolerations {
		if err := t.check(); err != nil {
			return err
		}
	}
	switch {
	case o.GPUs < 0:
		return schemas.Invalidf("gpus", "%d is out of range: 0 or more", o.GPUs)
	case len(validation.IsQualifiedName(o.GPUResource)) > 0 || !strings.Contains(o.GPUResource, "/"):
		return schemas.Invalidf("gpu-resource", "%q is not an extended resource: write it as nodes name it, such as nvidia.com/gpu",
			schemas.Quotable(o.GPUResource))
	}
	return checkSelector(o.NodeSelector)
}
