package workers

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// trim has so much happen on the conversation of a call that retention, which runs for an hour, removes all it may of the call.
func (w *world) trim(c schemas.Call) {
	w.t.Helper()
	const kept = 5
	for range 2 * kept {
		e := schemas.NewEvent(c, schemas.Message, schemas.NewID("e_"), time.Now(), struct{}{})
		e.Subject = "m"
		if err := streams.Events.Publish(w.t.Context(), w.bus, e); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	r := &streams.Retention{Bus: w.open(), Count: kept, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	go func() { done <- r.Run(ctx) }()
	time.Sleep(time.Hour)
	stop()
	if err := <-done; err != nil {
		w.t.Error(err)
	}
}

// TestACallThatEndedIsNotRunAgainAfterRetention: its worker dies before it can acknowledge the call. No worker takes the call until its
// conversation has long had too many events.
//
//guarantee:side-effects-are-started-at-most-once
func TestACallThatEndedIsNotRunAgainAfterRetention(t *testing.T) {
	natstest.Hours(t)
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		t.Run(string(tool), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				died := make(chan *employed, 1)
				p := &fake{run: answer(tool)}
				w.employ(p, w.dieAt(atFinished, died))
				c := w.publish(w.call("call_1", tool, func(c *schemas.Call) { c.Deadline = time.Now().Add(5 * time.Hour) }))
				<-died
				w.trim(c)
				w.employ(p)
				w.want(c, schemas.StatusCompleted)
				w.once(c)
				if p.count() != 1 {
					t.Errorf("%d runs, want one", p.count())
				}
				w.trim(c) // it is acknowledged by now
				if got := w.types(c); slices.Contains(got, schemas.CallAccepted) {
					t.Errorf("the conversation has %v", got)
				}
			})
		})
	}
}

// TestACallThatIsForgottenMayHaveBeenRun: a call comes to a worker again, as from a dead letter that is sent again, when retention has
// removed what its conversation said of it.
//
//guarantee:side-effects-are-started-at-most-once
func TestACallThatIsForgottenMayHaveBeenRun(t *testing.T) {
	natstest.Hours(t)
	for name, c := range map[string]struct {
		tool schemas.Tool
		left time.Duration
		want schemas.Status
		runs int
	}{
		"in time":                {schemas.ToolBash, 5 * time.Hour, schemas.StatusInterrupted, 0},
		"past its deadline":      {schemas.ToolBash, time.Minute, schemas.StatusInterrupted, 0},
		"read":                   {schemas.ToolRead, 5 * time.Hour, schemas.StatusCompleted, 1},
		"read past its deadline": {schemas.ToolRead, time.Minute, schemas.StatusExpired, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				call := w.call("call_1", c.tool, func(call *schemas.Call) {
					call.Deadline, call.Approval = time.Now().Add(c.left), "ap_1" // its deadline alone counts: it was on the log before
				})
				w.announce(call)
				w.startedBy("worker_dead", call, 1)
				w.endedElsewhere(call, lifecycle.Result(call, schemas.StatusCompleted, "done"))
				w.trim(call)
				if got := w.types(call); slices.Contains(got, schemas.CallFinished) {
					t.Fatalf("the conversation still has %v", got)
				}
				w.publishOnly(call)
				p := &fake{run: answer(c.tool)}
				w.employ(p)
				w.want(call, c.want)
				w.once(call)
				if p.count() != c.runs {
					t.Errorf("%d runs, want %d", p.count(), c.runs)
				}
			})
		})
	}
}
