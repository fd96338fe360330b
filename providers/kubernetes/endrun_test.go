package kubernetes_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/providers/kubernetes/kubetest"
	"github.com/sandjet/sandjet/schemas"
)

// TestAnEndIsTriedAgain: a run in a kept box is ended though the cluster loses requests on the way, and its box stays.
func TestAnEndIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, kubetest.Options{})
	p, other := open(t, c, nil), open(t, c, nil)
	ref := reserve(t, p)
	for name, lost := range map[string]func(*http.Request) bool{
		"execs": isExec,
		"lists": func(r *http.Request) bool { return r.Method == http.MethodGet && !isExec(r) },
	} {
		cmd := in(ref, loop)
		cmd.ID = name
		one := background(t, p, cmd)
		var asked atomic.Int32
		refuse(c, -1, func(r *http.Request) bool { return lost(r) && asked.Add(1) <= 2 })
		if err := other.EndRun(t.Context(), "key", account, name); err != nil || asked.Load() <= 2 {
			t.Errorf("%s: %v, asked %d times", name, err, asked.Load())
		}
		c.Fault(func(x *kubetest.Faults) { x.Answer = nil })
		silent(t, other, ref) // and it is the same box
		ended(t, one)
	}
}

// TestARunIsEndedByAnotherWorker: one worker runs commands, another ends them, each alone, and nothing of them is left when it says so.
//
//guarantee:side-effects-are-started-at-most-once
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
