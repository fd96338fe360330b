package deno_test

import (
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/deno"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite on Deno, with the token of DENO_DEPLOY_TOKEN")

// TestLive runs the suite on the service. What it makes is ended, but for the volumes of workspaces.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: DENO_DEPLOY_TOKEN=… go test ./providers/deno -run TestLive -live")
	}
	p, err := deno.Open(deno.Options{
		Token: os.Getenv("DENO_DEPLOY_TOKEN"), Organization: os.Getenv("DENO_DEPLOY_ORG"), APIURL: os.Getenv("DENO_DEPLOY_ENDPOINT"),
		SandboxURL: os.Getenv("DENO_SANDBOX_ENDPOINT"), Domain: os.Getenv("DENO_SANDBOX_BASE_DOMAIN"),
		Region: os.Getenv("SANDJET_DENO_REGION"), Root: os.Getenv("SANDJET_DENO_ROOT"), Installation: "sandjet-live",
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
	providertest.Test(t, wrapped, providertest.Declares(deno.Declared()))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
