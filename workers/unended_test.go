package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// unattended is a provider that cannot end a run: the run continues for some time after its context is done.
func unattended(away time.Duration) *outliving {
	p := newOutliving()
	begun := time.Now()
	p.away = func() bool { return time.Since(begun) < away }
	p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		p.mu.Lock()
		p.left[cmd.ID] = true
		p.mu.Unlock()
		<-ctx.Done()
		return providers.Result{Started: true}, schemas.Wrap(schemas.Interrupted, "run", "it may go on", ctx.Err())
	}
	return p
}

// TestACancelledRunThatContinuesIsReported: if a command could not be killed, its result does not say that it was.
func TestACancelledRunThatContinuesIsReported(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := unattended(0)
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.untilStarted(c)
		w.cancel(c)
		r := w.want(c, schemas.StatusCancelled)
		if !strings.Contains(r.Text, lifecycle.TextUnended) || strings.Contains(r.Text, "killed") || !strings.Contains(r.Text, "enough") {
			t.Errorf("it says %q", r.Text)
		}
		w.once(c)
	})
}

// TestAStoppedWorkersRunThatContinuesIsWaitedFor: the next worker ends the call when the run has ended.
func TestAStoppedWorkersRunThatContinuesIsWaitedFor(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := unattended(3 * time.Minute)
		begun := time.Now()
		e := w.employ(p, func(wk *Worker) { wk.Grace = time.Second })
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.untilStarted(c)
		e.retire()
		w.employ(p)
		if r := w.want(c, schemas.StatusInterrupted); r.Finished.Sub(begun) < 3*time.Minute || p.leftover() != 0 {
			t.Errorf("the result came after %v, %d runs go on", r.Finished.Sub(begun), p.leftover())
		}
		w.once(c)
		if p.count() != 1 {
			t.Errorf("%d runs, want one", p.count())
		}
	})
}
