package kubernetes_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// TestARunIsEndedByAnotherWorker: one worker runs commands, another ends them, each alone, and nothing of them is left when it says so.
func TestARunIsEndedByAnotherWorker(t *testing.T) {
	inEach(t, func(t *testing.T, c *kubetest.Cluster) {
		p, other := open(t, c, nil), open(t, c, nil)
		ref := reserve(t, p)
		first, second, fresh := in(ref, loop), in(ref, strings.ReplaceAll(loop, "beats", "others")), command("echo begun; sleep 600")
		first.ID, second.ID, fresh.ID = "first", "second", "third"
		one, two, three := background(t, p, first), background(t, p, second), background(t, p, fresh)
		end := func(id string) {
			t.Helper()
			if err := other.EndRun(t.Context(), "key", account, id); err != nil {
				t.Fatalf("end of %q: %v", id, err)
			}
		}
		end("nobody's")
		gone, cancel := context.WithCancel(t.Context()) // who ends it dies over it
		cancel()
		if err := other.EndRun(gone, "key", account, "first"); err == nil {
			t.Error("an end that was given up is reported as one")
		}
		end("first")
		silent(t, other, ref)
		if o := ended(t, one); o.err == nil && o.res.ExitCode != 137 {
			t.Errorf("the first run: %+v, %v", o.res, o.err)
		}
		if got := strings.Fields(sh(t, other, in(ref, "wc -c <others; sleep 0.3; wc -c <others"))); len(got) != 2 || got[0] == got[1] {
			t.Errorf("the second run has ended with the first: %v", got)
		}
		end("second")
		ended(t, two)
		end("third")
		if o := ended(t, three); schemas.CodeOf(o.err) != schemas.Interrupted {
			t.Errorf("the run in a box of its own: %+v, %v", o.res, o.err)
		}
		end("third")
	})
}
