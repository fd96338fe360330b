package kubetest

import (
	"bytes"
	"encoding/json"
	"fmt"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sandboxSpec is the part of agent-sandbox's specs, of Sandboxes and templates, that the provider writes.
type sandboxSpec struct {
	PodTemplate struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec core.PodSpec `json:"spec"`
	} `json:"podTemplate"`
	VolumeClaimTemplates []struct {
		Metadata meta.ObjectMeta                `json:"metadata"`
		Spec     core.PersistentVolumeClaimSpec `json:"spec"`
	} `json:"volumeClaimTemplates"`
	OperatingMode           string     `json:"operatingMode"`
	Replicas                *int32     `json:"replicas"`
	ShutdownTime            *meta.Time `json:"shutdownTime"`
	ShutdownPolicy          string     `json:"shutdownPolicy"`
	NetworkPolicyManagement string     `json:"networkPolicyManagement"`
}

type claimSpec struct {
	WarmPoolRef        *named `json:"warmPoolRef"`
	SandboxTemplateRef *named `json:"sandboxTemplateRef"`
	WarmPool           string `json:"warmpool"`
	Lifecycle          struct {
		ShutdownTime   *meta.Time `json:"shutdownTime"`
		ShutdownPolicy string     `json:"shutdownPolicy"`
	} `json:"lifecycle"`
	AdditionalPodMetadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"additionalPodMetadata"`
}

type poolSpec struct {
	Replicas           *int32 `json:"replicas"`
	SandboxTemplateRef named  `json:"sandboxTemplateRef"`
	UpdateStrategy     struct {
		Type string `json:"type"`
	} `json:"updateStrategy"`
}

type named struct {
	Name string `json:"name"`
}

// custom is an object of agent-sandbox.
type custom[Spec any] struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`

	Spec   Spec           `json:"spec"`
	Status map[string]any `json:"status"`
}

// Misspelt returns an error for a field that the API's types do not have, which an API server would drop, or for a value of the wrong
// type, which it would refuse. An unknown kind is an error too.
func Misspelt(o map[string]any) error {
	kinds := map[string]func() any{
		"Namespace":                        func() any { return new(core.Namespace) },
		"ServiceAccount":                   func() any { return new(core.ServiceAccount) },
		"ConfigMap":                        func() any { return new(core.ConfigMap) },
		"Deployment":                       func() any { return new(apps.Deployment) },
		"Pod":                              func() any { return new(core.Pod) },
		"PersistentVolume":                 func() any { return new(core.PersistentVolume) },
		"PersistentVolumeClaim":            func() any { return new(core.PersistentVolumeClaim) },
		"Service":                          func() any { return new(core.Service) },
		"NetworkPolicy":                    func() any { return new(networking.NetworkPolicy) },
		"Role":                             func() any { return new(rbac.Role) },
		"RoleBinding":                      func() any { return new(rbac.RoleBinding) },
		"ClusterRole":                      func() any { return new(rbac.ClusterRole) },
		"ClusterRoleBinding":               func() any { return new(rbac.ClusterRoleBinding) },
		"ValidatingAdmissionPolicy":        func() any { return new(admission.ValidatingAdmissionPolicy) },
		"ValidatingAdmissionPolicyBinding": func() any { return new(admission.ValidatingAdmissionPolicyBinding) },
		"Sandbox":                          func() any { return new(custom[sandboxSpec]) },
		"SandboxTemplate":                  func() any { return new(custom[sandboxSpec]) },
		"SandboxClaim":                     func() any { return new(custom[claimSpec]) },
		"SandboxWarmPool":                  func() any { return new(custom[poolSpec]) },
	}
	kind := text(o, "kind")
	typed := kinds[kind]
	if typed == nil {
		return fmt.Errorf("the kind %q is not known here", kind)
	}
	b, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("write the object: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(typed()); err != nil {
		return fmt.Errorf("%s %s: %w", kind, text(o, "metadata", "name"), err)
	}
	return nil
}
