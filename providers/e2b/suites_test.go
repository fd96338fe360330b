package e2b_test

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/e2b"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/tools/boxtest"
)

// TestConformance is the whole suite in the long form. The short one has kept sandboxes and some runs; jobs are those of package
// supervisor.
func TestConformance(t *testing.T) {
	with := []providertest.Option{providertest.Declares(e2b.Declared())}
	if !longtest.Asked() {
		with = append(with, providertest.Groups("Reserver", "Pauser", "Lister", "Isolation", "Run/an exit code is a result",
			"Run/what must not begin is not started",
			"Run/standard input arrives whole", "Run/the environment is cleared", "Run/files of a workspace stay",
			"End/a timeout kills the whole tree", "End/cancelling kills the whole tree before Run returns"))
	}
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		p, _ := start(tb, e2btest.Options{MaxRunning: 100}, func(o *e2b.Options) { o.Sandboxes = 100 })
		return supervisor.Wrap(p, supervisor.Options{})
	}, with...)
}

// TestTools runs the suite of compiled tools in one kept sandbox, with the volume of its workspace.
func TestTools(t *testing.T) {
	longtest.Only(t, "the suite of compiled tools once more, in sandboxes of E2B")
	p, s := start(t, e2btest.Options{}, nil)
	boxtest.Run(t, p, func(providers.Mount) string {
		for _, name := range s.Volumes() {
			if strings.HasPrefix(name, "sandjet-ws-") {
				return s.Volume(name)
			}
		}
		t.Fatal("there is no volume of the workspace")
		return ""
	}, nil)
}
