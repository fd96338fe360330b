package vercel_test

import (
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/providers/vercel"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite on Vercel, with the token of VERCEL_TOKEN")

// TestLive runs the suite on the service. What it makes is ended, but for the drives of workspaces.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: VERCEL_TOKEN=… VERCEL_TEAM_ID=… VERCEL_PROJECT_ID=… go test ./providers/vercel -run TestLive -live")
	}
	p, err := vercel.Open(vercel.Options{
		Token: os.Getenv("VERCEL_TOKEN"), Team: os.Getenv("VERCEL_TEAM_ID"), Project: os.Getenv("VERCEL_PROJECT_ID"),
		Image: os.Getenv("SANDJET_VERCEL_IMAGE"), Installation: "sandjet-live",
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
	providertest.Test(t, wrapped, providertest.Declares(vercel.Declared()))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
