package workers

import (
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
)

// gone lists the boxes that were released.
func (h *jobHost) gone() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.released)
}

// eachJobKind runs a test with jobs that end with their worker, and with jobs that do not.
func eachJobKind(t *testing.T, f func(*testing.T, *world, *jobHost)) {
	for name, tied := range map[string]bool{"jobs that end with their worker": true, "jobs that outlive their worker": false} {
		t.Run(name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				h.tied = tied
				w.specs.persistent = true
				w.settleJobs()
				w.employ(h)
				f(t, w, h)
			})
		})
	}
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestAJobKeepsItsBox(t *testing.T) {
	natstest.Hours(t)
	eachJobKind(t, func(t *testing.T, w *world, h *jobHost) {
		const runs = 3 * schemas.DefaultIdleTimeout
		call := w.publish(w.background("one", "sleep "+runs.String()))
		w.want(call, schemas.StatusCompleted)
		time.Sleep(runs - time.Minute)
		if got := h.gone(); len(got) != 0 {
			t.Fatalf("released %v while a job is in it", got)
		}
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Fatalf("the job is %s: %s", done.State, done.Reason)
		}
		time.Sleep(schemas.DefaultIdleTimeout - time.Minute)
		if got := h.gone(); len(got) != 0 {
			t.Errorf("released %v before it was idle for long enough", got)
		}
		time.Sleep(5 * time.Minute)
		if got := h.gone(); !slices.Equal(got, []string{"acct_1.sb_1.ws_1"}) {
			t.Errorf("released %v, want the box once it is idle", got)
		}
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestAJobEndsWithItsBox(t *testing.T) {
	natstest.Hours(t)
	eachJobKind(t, func(t *testing.T, w *world, h *jobHost) {
		const life, late = time.Hour, 10 * time.Minute
		w.specs.change = func(s *schemas.Sandbox) { s.MaxLifetime = schemas.Duration(life) }
		made := time.Now()
		w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusCompleted)
		time.Sleep(late)
		call := w.publish(w.background("one", "sleep 10h"))
		w.want(call, schemas.StatusCompleted)
		if j := w.recordOf(call); j.Deadline.Sub(made) < life-time.Minute || j.Deadline.Sub(made) > life+time.Minute {
			t.Errorf("its deadline is %s after the box was made, want the box's", j.Deadline.Sub(made))
		}
		if done := w.ended(call); done.State != schemas.JobExpired || done.Finished.Sub(made) > life+time.Minute {
			t.Errorf("it is %s after %s, want it expired with its box", done.State, done.Finished.Sub(made))
		}
		time.Sleep(5 * time.Minute)
		if got := h.gone(); !slices.Equal(got, []string{"acct_1.sb_1.ws_1"}) {
			t.Errorf("released %v, want the box at its deadline", got)
		}
	})
}
