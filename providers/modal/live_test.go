package modal_test

import (
	"flag"
	"os"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/schemas"
)

// live asks for the tests that use the service itself, and cost money.
var live = flag.Bool("live", false, "run the suite on Modal, with MODAL_TOKEN_ID and MODAL_TOKEN_SECRET")

// TestLive runs the suite on the service. What it makes is ended, but for the app and the volumes of workspaces.
func TestLive(t *testing.T) {
	if !*live {
		t.Skip("it costs money: MODAL_TOKEN_ID=… MODAL_TOKEN_SECRET=… go test ./providers/modal -run TestLive -live")
	}
	o := modal.Options{
		TokenID: os.Getenv("MODAL_TOKEN_ID"), TokenSecret: os.Getenv("MODAL_TOKEN_SECRET"), ServerURL: os.Getenv("MODAL_SERVER_URL"),
		Environment: os.Getenv("MODAL_ENVIRONMENT"), Image: os.Getenv("SANDJET_MODAL_IMAGE"), App: "sandjet-live",
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll, schemas.Restricted},
	}
	p, err := modal.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := func(testing.TB) providers.Provider { return supervisor.Wrap(p, supervisor.Options{}) }
	providertest.Test(t, wrapped, providertest.Declares(modal.Declared()))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
