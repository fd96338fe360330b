package kubernetes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNodesWithGPUs: a box that may not be on the node waits for another, with the cluster's words; one that has all it needs runs.
func TestNodesWithGPUs(t *testing.T) {
	t.Parallel()
	node := kubetest.Node{Labels: map[string]string{"pool": "gpu"}, Extended: map[string]int64{"amd.com/gpu": 2}}
	node.Taint.Key, node.Taint.Value, node.Taint.Effect = "amd.com/gpu", "present", "NoSchedule"
	c := kubetest.Start(t, kubetest.Options{Node: node})
	right := func(o *kubernetes.Options) {
		o.StartTimeout = 300 * time.Millisecond
		o.GPUs, o.GPUResource, o.NodeSelector = 2, "amd.com/gpu", map[string]string{"pool": "gpu"}
		o.Tolerations = []kubernetes.Toleration{{Key: "amd.com/gpu", Effect: "NoSchedule"}}
	}
	for want, change := range map[string]func(*kubernetes.Options){
		"untolerated taint {amd.com/gpu: present}": func(o *kubernetes.Options) { o.Tolerations = nil },
		"untolerated taint":                        func(o *kubernetes.Options) { o.Tolerations[0].Value = "another" },
		"had untolerated":                          func(o *kubernetes.Options) { o.Tolerations[0].Effect = "NoExecute" },
		"node affinity":                            func(o *kubernetes.Options) { o.NodeSelector["pool"] = "another" },
		"Insufficient amd":                         func(o *kubernetes.Options) { o.GPUs = 3 },
		"Insufficient nv":                          func(o *kubernetes.Options) { o.GPUResource = "" },
	} {
		p := open(t, c, func(o *kubernetes.Options) {
			right(o)
			change(o)
		})
		_, err := p.Run(t.Context(), command("true"))
		if wantCode(t, err, schemas.Unavailable); err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error says %v", want, err)
		}
	}
	p := open(t, c, func(o *kubernetes.Options) {
		right(o)
		o.StartTimeout = time.Minute
		o.Tolerations[0].Value = "present"
	})
	if got := sh(t, p, command("echo runs")); got != "runs\n" {
		t.Errorf("it says %q", got)
	}
}

func TestSettingsOfNodes(t *testing.T) {
	for s, want := range map[string]kubernetes.Toleration{
		"a": {Key: "a"}, "a:NoExecute": {Key: "a", Effect: "NoExecute"}, "x.io/a=b": {Key: "x.io/a", Value: "b"},
		"a=b:NoSchedule": {Key: "a", Value: "b", Effect: "NoSchedule"},
	} {
		if got, err := kubernetes.ParseToleration(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "=b", "a b", "a=b c", "a:Never", "a=b=c"} {
		_, err := kubernetes.ParseToleration(s)
		wantCode(t, err, schemas.Invalid)
	}
	if got, err := kubernetes.ParseSelector([]string{"a=b", "x.io/c="}); err != nil || len(got) != 2 || got["a"] != "b" {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "a", "=b", "a=b c"} {
		_, err := kubernetes.ParseSelector([]string{s})
		wantCode(t, err, schemas.Invalid)
	}
	for name, change := range map[string]func(*kubernetes.Options){
		"gpus":          func(o *kubernetes.Options) { o.GPUs = -1 },
		"gpu-resource":  func(o *kubernetes.Options) { o.GPUResource = "memory" },
		"tolerations":   func(o *kubernetes.Options) { o.Tolerations = []kubernetes.Toleration{{}} },
		"node-selector": func(o *kubernetes.Options) { o.NodeSelector = map[string]string{"a": "b c"} },
	} {
		o := kubernetes.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "n", Image: "i", Mode: kubernetes.ModePod}
		change(&o)
		_, err := kubernetes.New(t.Context(), o)
		if wantCode(t, err, schemas.Invalid); err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error says %v", name, err)
		}
	}
}

// TestBoxesSayWhatTheyNeed reads the objects of boxes: their disk, whether their home outlives the pod, and when they end by themselves.
func TestBoxesSayWhatTheyNeed(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p := open(t, c, func(o *kubernetes.Options) { o.UserNamespaces, o.Lifetime = true, time.Hour })
		const disk = "3221225472"
		spec := command("").Spec
		spec.Disk = 3 << 30
		kept, err := p.Reserve(t.Context(), "kept", spec)
		if err != nil {
			t.Fatal(err)
		}
		spec.EphemeralHome = true
		lost, err := p.Reserve(t.Context(), "lost", spec)
		if err != nil {
			t.Fatal(err)
		}
		name := func(ref schemas.Ref) string { return strings.TrimPrefix(ref.ID, kubetest.Namespace+"/") }
		field := func(resource, object string, path ...string) any {
			t.Helper()
			v, found, err := unstructured.NestedFieldNoCopy(c.Get(resource, object), path...)
			if !found || err != nil {
				t.Errorf("%s %s has no %v: %v", resource, object, path, err)
			}
			return v
		}
		if got := field("persistentvolumeclaims", "home-"+name(kept), "spec", "resources", "requests", "storage"); got != disk {
			t.Errorf("the home has %v", got)
		}
		if claim := c.Get("persistentvolumeclaims", "home-"+name(lost)); claim != nil {
			t.Errorf("an ephemeral home has the claim %v", claim)
		}
		for _, ref := range []schemas.Ref{kept, lost} {
			pod := fmt.Sprint(c.Get("pods", name(ref)))
			for _, want := range []string{"ephemeral-storage:" + disk, "sizeLimit:" + disk, "hostUsers:false"} {
				if !strings.Contains(pod, want) {
					t.Errorf("%s is not in %s", want, pod)
				}
			}
		}
		fresh := command("echo begun; sleep 600")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := p.Run(ctx, fresh)
			done <- err
		}()
		until(t, "the box of a run", func() bool { return len(c.Objects("pods")) == 3 })
		for _, pod := range c.Objects("pods") {
			ends, err := time.Parse(time.RFC3339, endOf(t, c, pod))
			if left := time.Until(ends); err != nil || left < time.Minute || left > time.Hour+time.Second {
				t.Errorf("%s ends in %v, %v", pod, left, err)
			}
		}
		cancel()
		<-done
	})
}

// endOf is when a box ends by itself, as the object says that stands for it.
func endOf(t *testing.T, c *kubetest.Cluster, box string) string {
	t.Helper()
	if sandbox := c.Get("sandboxes", box); sandbox != nil {
		policy, _, _ := unstructured.NestedString(sandbox, "spec", "shutdownPolicy")
		if policy != "Delete" {
			t.Errorf("%s has the shutdown policy %q", box, policy)
		}
		ends, _, _ := unstructured.NestedString(sandbox, "spec", "shutdownTime")
		return ends
	}
	if strings.HasPrefix(box, "run-") {
		life, _, _ := unstructured.NestedInt64(c.Get("pods", box), "spec", "activeDeadlineSeconds")
		return time.Now().Add(time.Duration(life) * time.Second).Format(time.RFC3339)
	}
	ends, _, _ := unstructured.NestedString(c.Get("networkpolicies", box), "metadata", "annotations", "sandjet/until")
	return ends
}
