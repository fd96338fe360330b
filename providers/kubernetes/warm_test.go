package kubernetes_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// objectsOf reads the objects of a file of deploy/kubernetes.
func objectsOf(t *testing.T, name string) []map[string]any {
	t.Helper()
	f, err := os.Open("../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []map[string]any
	for d := utilyaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o unstructured.Unstructured
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, o.Object)
	}
}

const poolImage = "registry.example.com/sandbox:1"

// withPool is a cluster of the served versions with the pool of deploy/kubernetes, changed where change is given, and a provider that
// has to use it.
func withPool(t *testing.T, served []string, change func(template map[string]any)) (*kubetest.Cluster, *kubernetes.Provider) {
	t.Helper()
	c := kubetest.Start(t, kubetest.Options{Sandboxes: served, WarmPools: true})
	addPool(t, c, served[0], change)
	p := open(t, c, pooled)
	return c, p
}

func pooled(o *kubernetes.Options) { o.Image, o.WarmPool = poolImage, "runs" }

func addPool(t *testing.T, c *kubetest.Cluster, version string, change func(template map[string]any)) {
	t.Helper()
	for _, o := range objectsOf(t, "warm-pool.yaml") {
		o["apiVersion"] = "extensions.agents.x-k8s.io/" + version
		if change != nil && o["kind"] == "SandboxTemplate" {
			change(o)
		}
		if err := c.Add(o); err != nil {
			t.Fatal(err)
		}
	}
}

// filled waits until two boxes of the pool are ready.
func filled(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	until(t, "the pool's boxes", func() bool {
		ready := 0
		for _, name := range c.Objects("sandboxes") {
			conditions, _, _ := unstructured.NestedSlice(c.Get("sandboxes", name), "status", "conditions")
			if m, ok := append(conditions, nil)[0].(map[string]any); ok && m["status"] == "True" && strings.HasPrefix(name, "runs-") {
				ready++
			}
		}
		return ready == 2
	})
}

// stateless is script in a fresh box without a workspace.
func stateless(script string) providers.Command {
	return providers.Command{Script: script, Timeout: time.Minute, Spec: providers.Spec{Account: account}}
}

// TestWarmPool: a run like the template takes a box of the pool, has its own policy and name, and leaves nothing of it; the pool is
// filled again, and what is unlike the template is made as always.
func TestWarmPool(t *testing.T) {
	for _, m := range modes()[:2] {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			c, p := withPool(t, m.served, nil)
			filled(t, c)
			before := c.Objects("pods")
			done := background(t, p, stateless("echo begun; until [ -e /tmp/go ]; do sleep 0.02; done; exit 3"))
			claims := c.Objects("sandboxclaims")
			if len(claims) != 1 || !strings.HasPrefix(claims[0], "run-") {
				t.Fatalf("claims %v", claims)
			}
			claim := c.Get("sandboxclaims", claims[0])
			bound, _, _ := unstructured.NestedString(claim, "status", "sandbox", "name")
			if !strings.Contains(strings.Join(before, " "), bound) || bound == "" {
				t.Errorf("the claim has %q, the pool had %v", bound, before)
			}
			ends, _, _ := unstructured.NestedString(claim, "spec", "lifecycle", "shutdownTime")
			policy, _, _ := unstructured.NestedString(claim, "spec", "lifecycle", "shutdownPolicy")
			if at, err := time.Parse(time.RFC3339, ends); err != nil || time.Until(at) > time.Hour || policy != "Delete" {
				t.Errorf("the claim ends at %q (%v) with the policy %q", ends, err, policy)
			}
			if c.Get("networkpolicies", claims[0]) == nil || c.Get("networkpolicies", "pool-runs") == nil {
				t.Errorf("policies %v", c.Objects("networkpolicies"))
			}
			pod := c.Get("pods", bound)
			if label, _, _ := unstructured.NestedString(pod, "metadata", "labels", "sandjet/box"); label != claims[0] {
				t.Errorf("its pod has the label %q", label)
			}
			if err := os.WriteFile(filepath.Join(c.Scratch(bound, "tmp"), "go"), nil, 0o644); err != nil {
				t.Error(err)
			}
			if o := ended(t, done); o.err != nil || o.res.ExitCode != 3 {
				t.Errorf("%+v, %v", o.res, o.err)
			}
			until(t, "the end of claim, box and policy", func() bool {
				return len(c.Objects("sandboxclaims")) == 0 && c.Get("sandboxes", bound) == nil && len(c.Objects("networkpolicies")) == 1
			})
			filled(t, c)
			sh(t, p, command("true")) // with a workspace
			if n := len(c.Objects("sandboxclaims")); n != 0 {
				t.Errorf("%d claims are there for a run with a workspace", n)
			}
		})
	}
}

// TestEmptyPool: a claim on a pool without a ready box gets a new one.
func TestEmptyPool(t *testing.T) {
	t.Parallel()
	c, p := withPool(t, []string{"v1beta1"}, nil)
	if err := c.Change("sandboxwarmpools", "runs", func(o map[string]any) {
		_ = unstructured.SetNestedField(o, int64(0), "spec", "replicas")
	}); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, p, stateless("echo runs")); got != "runs\n" {
		t.Errorf("it says %q", got)
	}
}

// TestPoolsThatDoNotFit: a pool whose boxes are others, or whose network others open, is not used, and the check says why.
func TestPoolsThatDoNotFit(t *testing.T) {
	set := func(value any, path ...string) func(map[string]any) {
		return func(o map[string]any) {
			if err := unstructured.SetNestedField(o, value, path...); err != nil {
				panic(err)
			}
		}
	}
	for why, change := range map[string]func(map[string]any){
		"another than the sandbox's":  set(true, "spec", "podTemplate", "spec", "automountServiceAccountToken"),
		"networkPolicyManagement":     set("Managed", "spec", "networkPolicyManagement"),
		"lack the label sandjet/pool": set("others", "spec", "podTemplate", "metadata", "labels", "sandjet/pool"),
		"the pool's template is not":  set("another", "metadata", "name"),
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			c, p := withPool(t, []string{"v1beta1"}, change)
			done := background(t, p, stateless("echo begun; sleep 0.1"))
			if n := len(c.Objects("sandboxclaims")); n != 0 {
				t.Errorf("%d claims", n)
			}
			if o := ended(t, done); o.err != nil {
				t.Error(o.err)
			}
			if says := findings(t, c, pooled); !strings.Contains(says, why) {
				t.Errorf("the check says:\n%s", says)
			}
		})
	}
}

// TestBoxesOfAnOlderTemplate: a box that the pool made before its template changed is released, and one of our own runs the command.
func TestBoxesOfAnOlderTemplate(t *testing.T) {
	t.Parallel()
	c, p := withPool(t, []string{"v1beta1"}, func(o map[string]any) {
		_ = unstructured.SetNestedField(o, int64(9), "spec", "podTemplate", "spec", "terminationGracePeriodSeconds")
	})
	filled(t, c)
	if err := c.Change("sandboxtemplates", "runs", func(o map[string]any) {
		_ = unstructured.SetNestedField(o, int64(2), "spec", "podTemplate", "spec", "terminationGracePeriodSeconds")
	}); err != nil {
		t.Fatal(err)
	}
	done := background(t, p, stateless("echo begun; sleep 0.1"))
	for _, name := range c.Objects("sandboxes") {
		if c.Get("sandboxclaims", name) != nil {
			t.Errorf("%s is claimed", name)
		}
	}
	if o := ended(t, done); o.err != nil {
		t.Error(o.err)
	}
}

// TestClaimsOfTheDead: the claim of a run whose worker died is found by others, ended by the run's id, and swept when its time is over.
func TestClaimsOfTheDead(t *testing.T) {
	t.Parallel()
	c, p := withPool(t, []string{"v1beta1"}, nil)
	other := open(t, c, pooled)
	cmd := stateless("echo begun; sleep 600")
	cmd.ID = "first"
	done := background(t, p, cmd)
	if err := other.EndRun(t.Context(), "key", account, "first"); err != nil {
		t.Fatal(err)
	}
	if o := ended(t, done); schemas.CodeOf(o.err) != schemas.Interrupted {
		t.Errorf("%+v, %v", o.res, o.err)
	}
	until(t, "the end of the claim", func() bool { return len(c.Objects("sandboxclaims")) == 0 })
	done = background(t, p, stateless("echo begun; sleep 600"))
	claims := c.Objects("sandboxclaims")
	if removed, err := other.Sweep(t.Context(), time.Now(), false); err != nil || len(removed) != 0 {
		t.Errorf("swept while it runs: %v, %v", removed, err)
	}
	if removed, err := other.Sweep(t.Context(), time.Now().Add(time.Hour), false); err != nil || len(removed) == 0 || removed[0] != claims[0] {
		t.Errorf("swept %v, %v, want %v", removed, err, claims)
	}
	ended(t, done)
}

// TestPoolWithoutClaims: a cluster that serves no claims makes boxes as ever, and so does one without agent-sandbox.
func TestPoolWithoutClaims(t *testing.T) {
	t.Parallel()
	for _, served := range [][]string{{"v1beta1"}, nil} {
		c := kubetest.Start(t, kubetest.Options{Sandboxes: served})
		p := open(t, c, pooled)
		if got := sh(t, p, stateless("echo runs")); got != "runs\n" {
			t.Errorf("it says %q", got)
		}
		if says := findings(t, c, pooled); !strings.Contains(says, "serves no SandboxClaim") {
			t.Errorf("the check says:\n%s", says)
		}
	}
}
