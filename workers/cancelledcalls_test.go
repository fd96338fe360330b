package workers

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:cancelling-kills-and-stopping-finishes
func TestCancelBeforeTheStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.cancel(c)
		w.employ(p)
		r := w.want(c, schemas.StatusCancelled)
		if !strings.Contains(r.Text, "enough") {
			t.Errorf("the reason is not told: %q", r.Text)
		}
		w.once(c)
		if p.count() != 0 {
			t.Errorf("%d runs of a cancelled call", p.count())
		}
	})
}

//guarantee:one-result-for-every-accepted-call
func TestCancelInTheQueueIsAnsweredAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{run: sleeper(20 * time.Second)}
		w.employ(p, func(wk *Worker) { wk.Slots = 1 })
		long := w.publish(w.call("call_long", schemas.ToolBash))
		w.untilStarted(long)
		queued := w.publish(w.call("call_queued", schemas.ToolBash))
		begun := time.Now()
		w.cancel(queued)
		w.want(queued, schemas.StatusCancelled)
		if d := time.Since(begun); d > 3*time.Second {
			t.Errorf("answered after %v, while the worker was busy; want at once", d)
		}
		w.want(long, schemas.StatusCompleted)
		w.once(queued)
		if p.count() != 1 {
			t.Errorf("%d runs, want only that of the other call", p.count())
		}
	})
}

//guarantee:cancelling-kills-and-stopping-finishes
func TestCancelWhileItRuns(t *testing.T) {
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		t.Run(string(tool), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var killed atomic.Bool
				p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					r, err := sleeper(time.Hour)(ctx, cmd)
					killed.Store(err != nil)
					return r, err
				}}
				w.employ(p)
				w.employ(p) // another worker is notified of it too, and does not touch it
				c := w.publish(w.call("call_1", tool))
				w.untilStarted(c)
				w.cancel(c)
				r := w.want(c, schemas.StatusCancelled)
				if tool == schemas.ToolBash && (r.Output == nil || r.Output.Stdout != "begun\n" || !strings.Contains(r.Text, "enough")) {
					t.Errorf("what was printed or the reason is missing: %+v", r)
				}
				w.once(c)
				if !killed.Load() || p.count() != 1 {
					t.Errorf("killed: %v, runs: %d", killed.Load(), p.count())
				}
			})
		})
	}
}

//guarantee:cancelling-kills-and-stopping-finishes
func TestCancelAfterTheEndChangesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{})
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCompleted)
		w.cancel(c)
		w.once(c)
		w.want(c, schemas.StatusCompleted)
	})
}
