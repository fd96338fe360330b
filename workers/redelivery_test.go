package workers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
)

//guarantee:side-effects-are-started-at-most-once
func TestAStartThatTheLogForgotToHaveDelivered(t *testing.T) {
	for _, attempt := range []int{1, 2, 7} { // of the start; what was delivered before it may be forgotten too
		t.Run(fmt.Sprint("at attempt ", attempt), func(t *testing.T) { forgottenStart(t, attempt) })
	}
}

func forgottenStart(t *testing.T, attempt int) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.call("call_1", schemas.ToolBash)
		// What a worker left that was killed together with the log: the proof of its start, while the
		// log still counts the next delivery as the first.
		w.startedBy("worker_dead", c, attempt)
		w.publish(c)
		w.employ(p)
		w.want(c, schemas.StatusInterrupted)
		w.once(c)
		if p.count() != 0 {
			t.Errorf("%d runs of a call that was started before, want none", p.count())
		}
	})
}

//guarantee:side-effects-are-started-at-most-once
func TestARedeliveryWaitsForALivingWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// The first worker's proof of the start and its lease, without its signs of life on the message.
		p := &fake{}
		c := w.call("call_1", schemas.ToolBash)
		all := leases.Open(w.bus)
		err := streams.Events.Publish(t.Context(), w.bus,
			schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, 1), time.Now(),
				schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "worker_slow", Attempt: 1}))
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(30 * time.Second)
		w.publish(c)
		var again atomic.Int32
		w.employ(p, func(wk *Worker) { wk.Metrics.Redelivered = func() { again.Add(1) } })
		for time.Now().Before(until) {
			if _, err := all.Put(t.Context(), "worker_slow", leases.Record{Worker: "worker_slow"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := w.types(c); slices.Contains(got, schemas.CallFinished) {
			t.Fatalf("given up while its worker lives: %v", got)
		}
		w.want(c, schemas.StatusInterrupted)
		w.once(c)
		if p.count() != 0 || again.Load() == 0 {
			t.Errorf("%d runs, %d redeliveries", p.count(), again.Load())
		}
	})
}

//guarantee:side-effects-are-started-at-most-once
func TestAWorkerThatWasTakenForDeadDropsItsResult(t *testing.T) {
	natstest.Hours(t)
	inWorld(t, func(t *testing.T, w *world) {
		// So long that the log alone would not recognise the second result any more.
		p := &fake{run: sleeper(30 * time.Minute)}
		var away atomic.Bool
		w.employ(p, func(wk *Worker) {
			wk.at = func(s stage, _ schemas.Call) error {
				if s == atRenewal && away.Load() {
					return errCrash
				}
				return nil
			}
		})
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }))
		w.untilStarted(c)
		away.Store(true)
		time.Sleep(2 * leases.TTL)
		now := time.Now()
		err := streams.Events.Publish(t.Context(), w.bus,
			schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), now, unrunResult(c, toInterrupt, "")))
		if err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		time.Sleep(time.Hour)
		w.once(c)
		w.want(c, schemas.StatusInterrupted)
	})
}

// TestASecondDeliveryLeavesTheSlotOfTheRunningCall: a call that runs is delivered again to the worker that has it. Its slot under
// the account's cap stays taken.
func TestASecondDeliveryLeavesTheSlotOfTheRunningCall(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var now, most atomic.Int32
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			n := now.Add(1)
			defer now.Add(-1)
			if n > most.Load() {
				most.Store(n)
			}
			time.Sleep(10 * time.Second)
			return hello(ctx, cmd)
		}}
		w.employ(p, func(wk *Worker) { wk.Limiter, wk.AccountCap = new(limits.Memory), 1 })
		first := w.publish(w.call("call_1", schemas.ToolBash))
		w.untilStarted(first)
		k, err := streams.Calls.Last(t.Context(), w.bus, first)
		if err == nil {
			err = streams.Calls.Replace(t.Context(), w.bus, first, k.Seq())
		}
		if err != nil {
			t.Fatal(err)
		}
		second := w.publish(w.call("call_2", schemas.ToolBash))
		w.want(first, schemas.StatusCompleted)
		w.want(second, schemas.StatusCompleted)
		if most.Load() != 1 {
			t.Errorf("%d calls of the account ran at the same time, its cap is 1", most.Load())
		}
	})
}

// TestTheLogIsRestartedWhileACallRuns is in the time of the wall, because the log must have files.
func TestTheLogIsRestartedWhileACallRuns(t *testing.T) {
	l := natstest.Start(t, natstest.OnDisk())
	running, finish := make(chan struct{}), make(chan struct{})
	p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		close(running)
		<-finish
		return hello(ctx, cmd)
	}}
	ctx, stop := context.WithCancel(t.Context())
	var both sync.WaitGroup
	for range 2 {
		wk := &Worker{Bus: l.Bus, Provider: p, Specs: new(specs), Slots: 2}
		both.Go(func() {
			if err := wk.Run(ctx); err != nil {
				t.Errorf("worker: %v", err)
			}
		})
	}
	defer both.Wait()
	defer stop()
	w := &world{t: t, bus: l.Bus}
	c := w.publish(w.call("call_1", schemas.ToolBash))
	<-running
	l.Restart()
	close(finish)
	w.want(c, schemas.StatusCompleted)
	if p.count() != 1 {
		t.Errorf("%d runs, want one", p.count())
	}
}
