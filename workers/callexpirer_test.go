package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/served"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// closing runs a CallExpirer until the returned function is called.
func closing(w *world, providers ...string) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	c := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)), Providers: providers}
	go func() { done <- c.Run(ctx) }()
	return func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("closer: %v", err)
		}
	}
}

// begin puts the start of a call by a worker that is not there on its conversation.
func (w *world) begin(c schemas.Call) {
	w.t.Helper()
	e := schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, 1), time.Now(),
		schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "worker_dead", Attempt: 1})
	if err := streams.Events.Publish(w.t.Context(), w.bus, e); err != nil {
		w.t.Fatal(err)
	}
}

// accept has the conversation say that a call was accepted, as admission does.
func (w *world) accept(c schemas.Call) schemas.Call {
	w.t.Helper()
	e := schemas.NewEvent(c, schemas.CallAccepted, schemas.AcceptedID(c.Account, c.ID), time.Now(),
		schemas.AcceptedData{Call: c.ID, Tool: c.Tool})
	if err := streams.Events.Publish(w.t.Context(), w.bus, e); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// TestCallsThatWereLeftForDaysEnd: all processes are off for longer than the log keeps message ids. Each accepted call ends soon after a
// process is back. Its result states what happened, and the call is forgotten then.
//
//guarantee:one-result-for-every-accepted-call
func TestCallsThatWereLeftForDaysEnd(t *testing.T) {
	natstest.Hours(t)
	away := map[string]time.Duration{"a day": 25 * time.Hour}
	if longtest.Asked() {
		away["five days"] = 5 * 24 * time.Hour
	}
	for name, d := range away {
		for _, back := range []string{"a gateway alone", "a worker too"} {
			t.Run(name+", "+back, func(t *testing.T) { leftFor(t, d, back == "a worker too") })
		}
	}
}

func leftFor(t *testing.T, away time.Duration, withWorker bool) {
	inWorld(t, func(t *testing.T, w *world) {
		large := strings.Repeat("#", 2<<20) // its payload ages out before it
		never, begun, big := w.accept(w.publish(w.call("call_never", schemas.ToolBash))),
			w.accept(w.publish(w.call("call_begun", schemas.ToolBash))),
			w.accept(w.publish(w.call("call_big", schemas.ToolBash, func(c *schemas.Call) { c.Input = fmt.Appendf(nil, `{"command":%q}`, large) })))
		reads := w.accept(w.publish(w.call("call_reads", schemas.ToolRead)))
		w.begin(begun)
		w.begin(reads)
		time.Sleep(away)
		p := &fake{}
		if withWorker {
			w.employ(p)
		}
		defer closing(w, never.Provider)()
		back := time.Now()
		w.want(never, schemas.StatusExpired)
		w.want(big, schemas.StatusExpired)
		w.want(begun, schemas.StatusInterrupted)
		w.want(reads, schemas.StatusExpired)
		if took := time.Since(back); took > 15*time.Minute {
			t.Errorf("they had their ends after %s", took)
		}
		w.once(never)
		w.once(begun)
		if p.count() > 0 {
			t.Errorf("%d of them were run days later", p.count())
		}
		time.Sleep(30 * time.Minute)
		for _, c := range []schemas.Call{never, begun, big, reads} {
			if _, err := w.bus.Calls().Find(t.Context(), c.Account, c.ID); !errors.Is(err, schemas.ErrNotFound) {
				t.Errorf("%s is still the record of its id: %v", c.ID, err)
			}
		}
	})
}

// TestCallsAreForgottenAfterADay: calls that have ended leave the log. Younger calls, and calls that wait for a person, stay.
func TestCallsAreForgottenAfterADay(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		old := w.publish(w.call("call_old", schemas.ToolBash))
		e := w.employ(&fake{})
		w.want(old, schemas.StatusCompleted)
		parked := w.call("call_parked", schemas.ToolBash, func(c *schemas.Call) { c.Approval = schemas.NewApprovalID() })
		if err := streams.Parked.Publish(t.Context(), w.bus, parked); err != nil {
			t.Fatal(err)
		}
		if _, err := lifecycle.EnsureApproval(t.Context(), w.bus, parked); err != nil {
			t.Fatal(err)
		}
		behind := w.publish(w.call("call_behind", schemas.ToolBash))
		w.want(behind, schemas.StatusCompleted)
		e.retire()
		time.Sleep(24*time.Hour + 10*time.Minute)
		defer closing(w)()
		time.Sleep(10 * time.Minute)
		known := func(c schemas.Call) bool {
			_, err := w.bus.Calls().Find(t.Context(), c.Account, c.ID)
			return err == nil
		}
		if known(old) || !known(parked) || !known(behind) {
			t.Errorf("known: %v, %v, %v; want only what is before the one that waits forgotten", known(old), known(parked), known(behind))
		}
	})
}

// TestAParkedCallThatWasNeverAskedAboutHasItsEnd: the process that parked a call died before it created the record of its approval. The
// call is not taken for one that has ended: its question and its result are published before it is forgotten. A call that has ended needs
// neither.
//
//guarantee:what-a-person-must-allow-is-asked-once-and-nothing-of-it-runs-before-the-answer
func TestAParkedCallThatWasNeverAskedAboutHasItsEnd(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		park := func(id string) schemas.Call {
			c := w.call(id, schemas.ToolBash, func(c *schemas.Call) { c.Approval = schemas.NewApprovalID() })
			if err := streams.Parked.Publish(t.Context(), w.bus, c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		ended, unasked := park("call_ended"), park("call_unasked")
		w.endedElsewhere(ended, lifecycle.Result(ended, schemas.StatusDenied, "denied"))
		ctx, stop := context.WithCancel(t.Context())
		expired := make(chan error, 1)
		x := &maintenance.ApprovalExpirer{Bus: w.open()}
		go func() { expired <- x.Run(ctx) }()
		time.Sleep(24 * time.Hour)
		defer closing(w)()
		if r := w.want(unasked, schemas.StatusExpired); r.Error == nil || r.Error.Code != schemas.Timeout {
			t.Errorf("it ended with %+v", r)
		}
		time.Sleep(30 * time.Minute)
		for _, c := range []schemas.Call{ended, unasked} {
			w.once(c)
			if _, err := w.bus.Calls().Find(t.Context(), c.Account, c.ID); !errors.Is(err, schemas.ErrNotFound) {
				t.Errorf("%s is still the record of its id: %v", c.ID, err)
			}
		}
		stop()
		if err := <-expired; err != nil {
			t.Error(err)
		}
	})
}

// TestACallThatCannotBeReadIsNotForgottenWithoutItsEnd: it waits for a worker, which puts it to the dead letters.
//
//guarantee:one-result-for-every-accepted-call
func TestACallThatCannotBeReadIsNotForgottenWithoutItsEnd(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		bad := w.publishOnly(w.call("call_bad", "nonsense"))
		forgotten := func() bool {
			_, err := w.bus.Calls().Find(t.Context(), bad.Account, bad.ID)
			return errors.Is(err, schemas.ErrNotFound)
		}
		time.Sleep(24*time.Hour + 10*time.Minute)
		defer closing(w, bad.Provider)()
		time.Sleep(20 * time.Minute)
		if forgotten() {
			t.Error("it is no longer on the log, and has no result")
		}
		w.employ(&fake{})
		w.want(bad, schemas.StatusExpired)
		w.once(bad)
		time.Sleep(30 * time.Minute)
		if !forgotten() {
			t.Error("it has its result and is still on the log")
		}
	})
}

// TestADeadLetterOfAStartedCallWhoseWorkerLives: the handler breaks after the run, and its worker lives on.
//
//guarantee:one-result-for-every-accepted-call
func TestADeadLetterOfAStartedCallWhoseWorkerLives(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer closing(w)()
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.employ(&fake{}, func(wk *Worker) {
			wk.at = func(s stage, _ schemas.Call) error {
				if s == atRan {
					panic("a defect")
				}
				return nil
			}
		})
		w.want(c, schemas.StatusInterrupted)
		w.once(c)
	})
}

// TestCancellingWhatNoWorkerServes: a call of a provider that no worker serves ends within seconds of the request.
//
//guarantee:one-result-for-every-accepted-call
func TestCancellingWhatNoWorkerServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer closing(w)()
		time.Sleep(10 * time.Second)
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Provider = "absent" }))
		asked := time.Now()
		w.cancel(c)
		r := w.want(c, schemas.StatusCancelled)
		if took := time.Since(asked); took > 10*time.Second || !strings.Contains(r.Text, "enough") {
			t.Errorf("after %s: %s", took, r.Text)
		}
		// Where a worker lives, it is the worker's: this one has both places taken.
		p := &fake{run: sleeper(time.Minute)}
		w.employ(p, func(wk *Worker) { wk.Slots = 1 })
		first := w.publish(w.call("call_first", schemas.ToolBash))
		w.untilStarted(first)
		second := w.publish(w.call("call_second", schemas.ToolBash))
		w.cancel(second)
		w.want(second, schemas.StatusCancelled)
		w.once(second)
		if slices.Contains(w.types(second), schemas.CallStarted) {
			t.Error("it was started")
		}
	})
}

// TestAWorkerNotesThatItServes: gateways know it, also when its lease is gone.
//
//guarantee:one-result-for-every-accepted-call
func TestAWorkerNotesThatItServes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := &served.Providers{Bus: w.bus}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		e := w.employ(&fake{})
		time.Sleep(time.Minute)
		e.retire()
		time.Sleep(time.Minute)
		if is, err := s.Serves(t.Context(), "fake"); err != nil || !is {
			t.Errorf("served %v, %v; want a minute of grace", is, err)
		}
		time.Sleep(served.DefaultGrace)
		if is, err := s.Serves(t.Context(), "fake"); err != nil || is {
			t.Errorf("served %v, %v; its worker is gone for long", is, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOverdueCallsOfAProviderThatNoWorkerEverServed: the queue has no consumer at all.
//
//guarantee:one-result-for-every-accepted-call
func TestOverdueCallsOfAProviderThatNoWorkerEverServed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer closing(w, "absent")()
		c := w.publish(w.call("call_1", schemas.ToolBash,
			func(c *schemas.Call) { c.Provider, c.Deadline = "absent", time.Now().Add(time.Minute) }))
		w.want(c, schemas.StatusExpired)
		if late := time.Since(c.Deadline); late > 3*time.Minute {
			t.Errorf("it expired %s after its deadline", late)
		}
		w.once(c)
	})
}

//guarantee:one-result-for-every-accepted-call
func TestADeadLetterGetsItsResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		closer := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		bad := w.call("call_bad", schemas.ToolBash, func(c *schemas.Call) { c.Workspace = "" })
		w.publish(bad)
		w.employ(&fake{})
		if r := w.want(bad, schemas.StatusFailed); r.Error == nil || r.Error.Code != schemas.Invalid {
			t.Errorf("result %+v", r)
		}
		w.once(bad)
		stop()
		if err := <-done; err != nil {
			t.Errorf("closer: %v", err)
		}
	})
}

// TestOverdueCallsEndWithoutAWorker: a call that no worker takes gets its result soon after its deadline. If a worker died over it, the
// result is interrupted. A worker that comes later runs neither call.
//
//guarantee:one-result-for-every-accepted-call
func TestOverdueCallsEndWithoutAWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		soon := func(c *schemas.Call) { c.Deadline = time.Now().Add(10 * time.Minute) }
		never, begun, later := w.publish(w.call("call_never", schemas.ToolBash, soon)), w.publish(w.call("call_begun", schemas.ToolBash, soon)),
			w.publish(w.call("call_later", schemas.ToolBash))
		bus := w.open()
		dead := schemas.NewEvent(begun, schemas.CallStarted, schemas.StartedID(begun.Account, begun.ID, 1), time.Now(),
			schemas.StartedData{Call: begun.ID, Tool: begun.Tool, Worker: "worker_dead", Attempt: 1})
		if err := streams.Events.Publish(t.Context(), bus, dead); err != nil {
			t.Fatal(err)
		}
		closer := &maintenance.CallExpirer{Bus: bus, Log: slog.New(slog.DiscardHandler), Providers: []string{never.Provider, "absent"}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		w.want(never, schemas.StatusExpired)
		w.want(begun, schemas.StatusInterrupted)
		const overdue, looks = time.Minute, time.Minute // as the expirer leaves calls to workers, and looks
		if late := time.Since(never.Deadline); late < overdue || late > overdue+2*looks {
			t.Errorf("expired %s after its deadline, want about %s", late, overdue)
		}
		p := &fake{}
		w.employ(p)
		w.want(later, schemas.StatusCompleted)
		w.once(never)
		w.once(begun)
		if p.count() != 1 {
			t.Errorf("%d runs, want the one that is not overdue", p.count())
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("closer: %v", err)
		}
	})
}
