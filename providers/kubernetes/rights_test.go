package kubernetes_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// rulesOf reads the rules of the Role in a file of deploy/kubernetes.
func rulesOf(t *testing.T, name string) []kubetest.Rule {
	t.Helper()
	f, err := os.Open("../../deploy/kubernetes/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rules []kubetest.Rule
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var o struct {
			Kind  string
			Rules []struct {
				APIGroups []string `json:"apiGroups"`
				Resources []string
				Verbs     []string
			}
		}
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range o.Rules {
			rules = append(rules, kubetest.Rule{Groups: r.APIGroups, Resources: r.Resources, Verbs: r.Verbs})
		}
	}
	if len(rules) == 0 {
		t.Fatalf("%s has %d rules", name, len(rules))
	}
	return rules
}

// TestRightsAreWhatIsUsed does everything that a worker does with the rights of deploy/kubernetes: they suffice, and
// none is left unused.
func TestRightsAreWhatIsUsed(t *testing.T) {
	longtest.Only(t, "ten seconds with an API server and its pods")
	for file, served := range map[string][]string{"rbac-sandbox.yaml": {"v1beta1"}, "rbac-pod.yaml": nil} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			rules := append(rulesOf(t, file), rulesOf(t, "rbac-s3.yaml")...)
			if served != nil {
				rules = append(rules, rulesOf(t, "rbac-warm-pool.yaml")...)
			}
			used := map[kubetest.Use]bool{}
			for _, noWebSockets := range []bool{false, true} {
				c := kubetest.Start(t, kubetest.Options{
					Sandboxes: served, Rules: rules, NoWebSockets: noWebSockets, S3: true, WarmPools: served != nil,
				})
				if served != nil {
					addPool(t, c, served[0], nil)
				}
				everything(t, c)
				for _, u := range c.Used() {
					used[u] = true
				}
			}
			for _, r := range rules {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						u := kubetest.Use{Group: r.Groups[0], Resource: resource, Verb: verb}
						if !used[u] {
							t.Errorf("granted and never used: %+v", u)
						}
						delete(used, u)
					}
				}
			}
			for u := range used {
				t.Errorf("used and not granted: %+v", u)
			}
		})
	}
}

// slowlyClaimed is a run without a workspace. Where there is a pool its claim has to be waited for.
func slowlyClaimed(t *testing.T, c *kubetest.Cluster, p *kubernetes.Provider) {
	t.Helper()
	if len(c.Objects("sandboxwarmpools")) == 0 {
		sh(t, p, stateless("true"))
		return
	}
	c.Fault(func(x *kubetest.Faults) { x.NoController = true })
	got := make(chan error, 1)
	go func() {
		_, err := p.Run(t.Context(), stateless("true"))
		got <- err
	}()
	until(t, "a watch on claims", func() bool {
		return slices.ContainsFunc(c.Used(), func(u kubetest.Use) bool { return u.Resource == "sandboxclaims" && u.Verb == "watch" })
	})
	c.Fault(func(x *kubetest.Faults) { x.NoController = false })
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// everything is a life of boxes.
func everything(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	with := func(o *kubernetes.Options) {
		bucket(o)
		if len(c.Objects("sandboxwarmpools")) > 0 {
			pooled(o)
		}
	}
	p := open(t, c, with)
	slowlyClaimed(t, c, p)
	sh(t, p, command("true"))
	sh(t, p, onS3("true"))
	ref := reserve(t, p)
	sh(t, p, in(ref, "true"))
	if err := p.Pause(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if ref = reserve(t, p); ref.IsZero() {
		t.Error("no box")
	}
	if err := p.Release(t.Context(), ref); err != nil {
		t.Error(err)
	}
	ref = reserve(t, p)
	done := background(t, p, in(ref, "echo begun; sleep 600")) // why a stream ended is read from its pod
	c.Evict(strings.TrimPrefix(ref.ID, kubetest.Namespace+"/"), "the node is needed")
	wantCode(t, ended(t, done).err, schemas.Interrupted)
	refuse(c, http.StatusInternalServerError, func(r *http.Request) bool { // a policy without a box is removed
		return r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/pods") || strings.HasSuffix(r.URL.Path, "/sandboxes"))
	})
	_, err := p.Run(t.Context(), command("true"))
	wantCode(t, err, schemas.Unavailable)
	c.Fault(func(x *kubetest.Faults) { x.Answer = nil })
	if _, err := p.Sweep(t.Context(), time.Now(), false); err != nil {
		t.Error(err)
	}
	o := kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"}
	with(&o)
	for _, f := range kubernetes.Check(t.Context(), o) {
		if !f.OK {
			t.Errorf("%+v", f)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	rules := rulesOf(t, "rbac-pod.yaml")
	rules = slices.DeleteFunc(rules, func(r kubetest.Rule) bool {
		return slices.Contains(r.Resources, "pods/exec") || slices.Contains(r.Resources, "namespaces")
	})
	c := kubetest.Start(t, kubetest.Options{Rules: rules})
	var says []string
	for _, f := range kubernetes.Check(t.Context(), kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"}) {
		says = append(says, f.Says)
	}
	all := strings.Join(says, "\n")
	for _, word := range []string{"get pods/exec, create pods/exec", "boxes are pods", "pod security level is not known"} {
		if !strings.Contains(all, word) {
			t.Errorf("nothing is said of %q:\n%s", word, all)
		}
	}
	refuse(c, 401, func(r *http.Request) bool { return true })
	found := kubernetes.Check(t.Context(), kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"})
	if len(found) != 1 || !found[0].Fatal {
		t.Errorf("%+v", found)
	}
	_, err := kubernetes.New(t.Context(), kubernetes.Options{Config: c.Config(), Namespace: kubetest.Namespace, Image: "x"})
	wantCode(t, err, schemas.Denied)
	c.Fault(func(x *kubetest.Faults) { x.Answer = nil })
	_, err = kubernetes.New(t.Context(), kubernetes.Options{
		Config: c.Config(), Namespace: kubetest.Namespace, Image: "x", Mode: kubernetes.ModeSandbox,
	})
	wantCode(t, err, schemas.Unsupported)
}
