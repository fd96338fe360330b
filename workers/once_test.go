package workers

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// meanwhile makes a worker do something at the first time that it comes to a stage.
func meanwhile(at stage, do func(schemas.Call)) func(*Worker) {
	return func(wk *Worker) {
		var once sync.Once
		wk.at = func(s stage, c schemas.Call) error {
			if s == at {
				once.Do(func() { do(c) })
			}
			return nil
		}
	}
}

// TestAPauseBeforeTheProofStartsNothing: what another worker did while this one was suspended is found, also when duplicate detection no
// longer covers its proof.
//
//guarantee:pauses-cuts-and-full-disks
//guarantee:side-effects-are-started-at-most-once
func TestAPauseBeforeTheProofStartsNothing(t *testing.T) {
	const pause = 11 * time.Minute
	for _, ended := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			p := &fake{}
			w.employ(p, meanwhile(atPrepared, func(c schemas.Call) {
				w.announce(c) // as every worker does first
				w.startedBy("worker_other", c, 2)
				if ended {
					w.endedElsewhere(c, lifecycle.Result(c, schemas.StatusCompleted, "done"))
				}
				time.Sleep(pause)
			}))
			c := w.publish(w.call("call_1", schemas.ToolBash))
			want := schemas.StatusInterrupted
			if ended {
				want = schemas.StatusCompleted
			}
			w.want(c, want)
			w.once(c)
			if got := w.types(c); p.count() != 0 ||
				!slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished}) {
				t.Errorf("%d runs of what another worker has started, events %v", p.count(), got)
			}
		})
	}
}

// TestAPauseBeforeTheProofCostsNoCall: no other worker had the call, so it is run.
//
//guarantee:side-effects-are-started-at-most-once
func TestAPauseBeforeTheProofCostsNoCall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		w.employ(p, meanwhile(atPrepared, func(schemas.Call) { time.Sleep(6 * time.Minute) }))
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCompleted)
		w.once(c)
		if p.count() != 1 {
			t.Errorf("%d runs, want one", p.count())
		}
	})
}

// TestWhoEndsAnUnstartedCallTakesItsStart: a worker that still prepares a call cannot start it once another process has ended it, whether
// the worker has been notified or not.
//
//guarantee:side-effects-are-started-at-most-once
func TestWhoEndsAnUnstartedCallTakesItsStart(t *testing.T) {
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		t.Run(string(tool), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := &fake{run: answer(tool)}
				w.employ(p, meanwhile(atPrepared, func(c schemas.Call) {
					now := w.bus.Certainty()
					if written, err := lifecycle.FinishUnheld(t.Context(), w.bus, unrunResult(c, toCancel, ""), callstate.State{Call: c},
						now); err != nil || !written {
						t.Errorf("the call is not ended: %v, %v", written, err)
					}
					time.Sleep(settleDelay)
				}))
				c := w.publish(w.call("call_1", tool))
				w.want(c, schemas.StatusCancelled)
				w.once(c)
				if got := w.types(c); p.count() != 0 || !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallFinished}) {
					t.Errorf("%d runs, events %v: want a result and nothing behind it", p.count(), got)
				}
			})
		})
	}
}

// TestAStartedCallIsNotEndedAsUnstarted is the other way round: the start was first.
//
//guarantee:side-effects-are-started-at-most-once
func TestAStartedCallIsNotEndedAsUnstarted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		w.employ(p, meanwhile(atStarted, func(c schemas.Call) {
			written, err := lifecycle.FinishUnheld(t.Context(), w.bus, unrunResult(c, toCancel, ""),
				callstate.State{Call: c, Accepted: true}, w.bus.Certainty())
			if err != nil || written {
				t.Errorf("a call that was started is ended as one that was not: %v, %v", written, err)
			}
		}))
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCompleted)
		w.once(c)
	})
}

// TestASlowPreparationIsCancelled: a call that is cancelled during its preparation shows no start.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestASlowPreparationIsCancelled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		slow := meanwhile(atPrepared, func(c schemas.Call) {
			w.cancel(c)
			time.Sleep(3 * time.Second)
		})
		w.employ(p, slow)
		w.employ(p, slow)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.StatusCancelled)
		w.once(c)
		if got := w.types(c); p.count() != 0 || !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallFinished}) {
			t.Errorf("%d runs, events %v", p.count(), got)
		}
	})
}

// TestACancelIsOfOneUseOfAnID: a call whose id was used and cancelled the day before is run.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestACancelIsOfOneUseOfAnID(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		w.cancel(w.call("nightly", schemas.ToolBash))
		time.Sleep(20 * time.Hour)
		p := &fake{}
		w.employ(p) // it reads the request of the day before
		w.want(w.publish(w.call("nightly", schemas.ToolBash)), schemas.StatusCompleted)
		if p.count() != 1 {
			t.Errorf("%d runs, want one", p.count())
		}
	})
}

// TestAnOverdueCallIsEndedOnce: the CallExpirer has ended a call that is delivered to a busy worker long after.
//
//guarantee:one-result-for-every-accepted-call
func TestAnOverdueCallIsEndedOnce(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		closer := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.DiscardHandler), Providers: []string{"fake"}}
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		p := &fake{run: sleeper(9 * time.Minute)}
		w.employ(p, func(wk *Worker) { wk.Slots = 1 })
		long := func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }
		var first []schemas.Call
		for _, id := range []string{"call_a", "call_b", "call_c"} {
			first = append(first, w.publish(w.call(id, schemas.ToolBash, long)))
		}
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(5 * time.Minute) }))
		w.want(c, schemas.StatusExpired)
		for _, f := range first {
			w.want(f, schemas.StatusCompleted)
		}
		w.once(c)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTheCallExpirerKnowsADeathFromAnOutage: after an outage of the log everybody's lease is gone for a moment.
//
//guarantee:one-result-for-every-accepted-call
func TestTheCallExpirerKnowsADeathFromAnOutage(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.startedBy("worker_slow", c, 1)
		payload, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		letter := schemas.DeadLetter{
			ID: "CALLS.1", Stream: "CALLS", Subject: "sandjet.calls.fake.acct_1.x", Account: c.Account, Payload: payload,
			Time: time.Now(), Reason: "too often",
		}
		if err := streams.Dead.Publish(t.Context(), w.bus, letter); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		closer := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.DiscardHandler)}
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		time.Sleep(2 * time.Second) // the log has just come back
		all := leases.Open(w.bus)
		for range 10 {
			if _, err := all.Put(t.Context(), "worker_slow", leases.Record{Worker: "worker_slow"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		w.endedElsewhere(c, lifecycle.Result(c, schemas.StatusCompleted, "done"))
		w.want(c, schemas.StatusCompleted)
		w.once(c)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPlacesOfCallsThatALimiterForgotAreTakenAgain: a limiter that has lost its store knows within seconds what runs.
//
//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestPlacesOfCallsThatALimiterForgotAreTakenAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := &wayward{Limiter: new(limits.Memory)}
		p := &fake{run: sleeper(5 * time.Minute)}
		for range 2 {
			w.employ(p, func(wk *Worker) { wk.Limiter, wk.AccountCap = l, 2 })
		}
		long := func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }
		first, second := w.publish(w.call("call_a", schemas.ToolBash, long)), w.publish(w.call("call_b", schemas.ToolBash, long))
		w.untilStarted(first)
		w.untilStarted(second)
		l.set(false, new(limits.Memory))
		time.Sleep(2 * capRenew)
		third := w.publish(w.call("call_c", schemas.ToolBash, long))
		time.Sleep(3 * time.Minute)
		if p.count() != 2 {
			t.Errorf("%d calls run at the same time under a cap of 2", p.count())
		}
		for _, c := range []schemas.Call{first, second, third} {
			w.want(c, schemas.StatusCompleted)
		}
		w.until("the places are given back", func() bool { return free(t, l, "calls."+string(testAccount), 2) })
	})
}
