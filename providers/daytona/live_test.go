package daytona_test

import (
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/daytona"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite on Daytona, with the key of DAYTONA_API_KEY")

// TestLive runs the suite on the service. What it makes is ended, but for the volume of workspaces.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: DAYTONA_API_KEY=… go test ./providers/daytona -run TestLive -live")
	}
	p, err := daytona.Open(daytona.Options{
		Key: os.Getenv("DAYTONA_API_KEY"), APIURL: os.Getenv("DAYTONA_API_URL"), Organization: os.Getenv("DAYTONA_ORGANIZATION_ID"),
		Target: os.Getenv("DAYTONA_TARGET"), Snapshot: os.Getenv("SANDJET_DAYTONA_SNAPSHOT"), Installation: "sandjet-live",
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
	providertest.Test(t, wrapped, providertest.Declares(daytona.Declared()))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
