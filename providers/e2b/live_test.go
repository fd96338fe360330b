package e2b_test

import (
	"cmp"
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite on E2B, with the key of E2B_API_KEY")

// TestLive runs the suite on the service. What it makes is ended, but for the volumes of workspaces.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: E2B_API_KEY=… go test ./providers/e2b -run TestLive -live")
	}
	p, err := e2b.Open(e2b.Options{
		Key: os.Getenv("E2B_API_KEY"), Domain: os.Getenv("E2B_DOMAIN"), APIURL: os.Getenv("E2B_API_URL"),
		SandboxURL: os.Getenv("E2B_SANDBOX_URL"),
		Template:   cmp.Or(os.Getenv("SANDJET_E2B_TEMPLATE"), e2b.DefaultTemplate), Installation: "sandjet-live",
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
	providertest.Test(t, wrapped, providertest.Declares(e2b.Declared()))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
