package kubernetes_test

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/kubernetes"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// TestLive runs the suite in a real cluster, in each mode that it serves. What it makes is removed again, but for the
// claims of workspaces.
func TestLive(t *testing.T) {
	if os.Getenv("SANDJET_K8S_LIVE") == "" {
		t.Skip("it needs a cluster: KUBECONFIG=… SANDJET_K8S_IMAGE=… make test-kubernetes")
	}
	config, err := kubernetes.LoadConfig("", "")
	if err != nil {
		t.Fatal(err)
	}
	o := kubernetes.Options{
		Config: config, Namespace: cmp.Or(os.Getenv("SANDJET_K8S_NAMESPACE"), "sandboxes"), Image: os.Getenv("SANDJET_K8S_IMAGE"),
		RuntimeClass: os.Getenv("SANDJET_K8S_RUNTIME_CLASS"), DiskGb: 1,
	}
	for _, mode := range []kubernetes.Mode{kubernetes.ModeSandbox, kubernetes.ModePod} {
		o.Mode = mode
		t.Run(string(mode), func(t *testing.T) {
			p, err := kubernetes.New(t.Context(), o)
			if schemas.CodeOf(err) == schemas.Unsupported {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range kubernetes.Check(t.Context(), o) {
				t.Logf("ok %v: %s %s", f.OK, f.Says, f.Remedy)
			}
			wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
			providertest.Test(t, wrapped, providertest.Declares(kubernetes.Declared()))
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if _, err := p.Sweep(context.WithoutCancel(t.Context()), time.Now().Add(30*24*time.Hour), false); err != nil {
				t.Error(err)
			}
		})
	}
}
