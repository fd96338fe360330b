package modal_test

import (
	"flag"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/modal"
	"github.com/sandjet/sandjet/providers/modal/modaltest"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/supervisor"
	"github.com/sandjet/sandjet/tools/boxtest"
)

// TestConformance has the parts of the suite where a way of Modal's own is between a command and what comes of it, most of them in the
// long form only. -whole runs all of it.
func TestConformance(t *testing.T) {
	groups := []string{"Lister", "Isolation/a read-only mount cannot be written", "Run/standard input arrives whole",
		"Run/what must not begin is not started",
		"End/cancelling kills the whole tree before Run returns", "Reserver/racing for a key makes one box",
		"Reserver/an old ref does not touch the new box", "Reserver/a process left in the background does not hold up the run"}
	if longtest.Asked() {
		groups = append(groups, "Isolation", "Run/death by a signal is 128+n", "Run/the environment is cleared", "Run/files of a workspace stay",
			"Run/only three files are open", "Run/there is no terminal", "Run/a missing box is not found", "Output/every byte comes through",
			"Output/the order is kept", "Output/a slow callback slows the command", "Output/a closed output is no failure",
			"End/a timeout kills the whole tree", "Reserver/many runs at once in one box do not mix", "Reserver/releasing ends what runs",
			"Jobs/output is kept byte for byte", "Jobs/logs come while it runs")
	}
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		p, _ := start(tb, modaltest.Options{MaxRunning: 100}, func(o *modal.Options) { o.Sandboxes = 100 })
		return supervisor.Wrap(p, supervisor.Options{})
	}, providertest.Declares(modal.Declared()), providertest.Groups(groups...))
}

// whole asks for the suites in full, which take minutes.
var whole = flag.Bool("whole", false, "run all of the suites of providers, jobs and tools")

// TestWhole runs the suites in full. What the gate has of them is in TestConformance; the rest goes the same ways once more.
func TestWhole(t *testing.T) {
	if !*whole {
		t.Skip("it takes minutes: go test ./providers/modal -run TestWhole -whole -timeout 30m")
	}
	t.Run("provider and jobs", func(t *testing.T) {
		providertest.Test(t, func(tb testing.TB) providers.Provider {
			p, _ := start(tb, modaltest.Options{MaxRunning: 100}, func(o *modal.Options) { o.Sandboxes = 100 })
			return supervisor.Wrap(p, supervisor.Options{})
		}, providertest.Declares(modal.Declared()))
	})
	t.Run("tools", func(t *testing.T) { // compiled, in one kept sandbox, with the folder of its workspace
		p, s := start(t, modaltest.Options{}, nil)
		boxtest.Run(t, p, func(providers.Mount) string {
			found := s.Folders()
			if len(found) != 1 {
				t.Fatalf("the folders of workspaces are %v, want one", found)
			}
			return found[0]
		}, nil)
	})
}
