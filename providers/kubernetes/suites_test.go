package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools/boxtest"
)

// TestTools runs the suite of compiled tools in one kept box, with the claim of its workspace.
func TestTools(t *testing.T) {
	longtest.Only(t, "the suite of compiled tools once more, in pods")
	c := kubetest.Start(t, kubetest.Options{})
	p := open(t, c, func(o *kubernetes.Options) { o.Networks = []schemas.NetworkMode{schemas.DenyAll} })
	boxtest.Run(t, p, func(providers.Mount) string {
		for _, claim := range c.Objects("persistentvolumeclaims") {
			if strings.HasPrefix(claim, "ws-") {
				return c.Volume(claim)
			}
		}
		t.Fatal("there is no claim of the workspace")
		return ""
	}, nil)
}

// TestKubectl drives the cluster of these tests with the vendor's own client: what it takes for a cluster may stand for
// one.
func TestKubectl(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		longtest.Missing(t, "kubectl is missing: install the package kubernetes-client")
	}
	c := kubetest.Start(t, kubetest.Options{Sandboxes: []string{"v1beta1"}})
	p := open(t, c, nil)
	ref := reserve(t, p)
	dir := t.TempDir()
	config := c.Kubeconfig(t, dir)
	kubectl := func(args ...string) (string, error) {
		args = append([]string{"--kubeconfig", config, "--cache-dir", filepath.Join(dir, "cache")}, args...)
		cmd := exec.CommandContext(t.Context(), "kubectl", args...)
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	name := strings.TrimPrefix(ref.ID, kubetest.Namespace+"/")
	for _, try := range []struct{ args, want string }{
		{"get pods -l sandjet/box -o name", "pod/" + name},
		{"get sandboxes.agents.x-k8s.io -o name", "sandbox.agents.x-k8s.io/" + name},
		{"get networkpolicies -o jsonpath={.items[0].spec.policyTypes}", `["Ingress","Egress"]`},
		{"exec " + name + " -c main -- bash -c id;exit$IFS$()3", "uid=1000"},
		{"wait --for=condition=Ready pod/" + name + " --timeout=20s", "condition met"},
		{"delete sandboxes.agents.x-k8s.io " + name, "deleted"},
	} {
		got, err := kubectl(strings.Fields(try.args)...)
		exits := strings.Contains(try.args, "exit") // with 3, which kubectl says
		if !strings.Contains(got, try.want) || (err != nil) != exits || exits && !strings.Contains(fmt.Sprint(err), "status 3") {
			t.Errorf("kubectl %s: %v\n%s\nwant %q", try.args, err, got, try.want)
		}
	}
	until(t, "the end of the pod", func() bool { return len(c.Objects("pods")) == 0 })
	manifest := filepath.Join(dir, "pod.yaml")
	const root = "apiVersion: v1\nkind: Pod\nmetadata: {name: root}\nspec: {containers: [{name: main, image: x, command: [sleep, '60']}]}\n"
	if err := os.WriteFile(manifest, []byte(root), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := kubectl("create", "--validate=false", "-f", manifest); err == nil || !strings.Contains(got, "violates PodSecurity") {
		t.Errorf("a pod that is not hardened: %v, %s", err, got)
	}
}
