package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

// free reports whether a cap of most places has room.
func free(t *testing.T, l limits.Limiter, key string, most int) bool {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, "the test", most, time.Minute)
	if err != nil {
		return false
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return true
}

//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestTheCapOfJobsOfASandbox(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		memory := new(limits.Memory)
		w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
		for range 2 { // the cap is one over all workers
			w.employ(h, func(wk *Worker) { wk.Limiter, wk.Slots = memory, 16 })
		}
		var calls []schemas.Call
		for i := range schemas.DefaultJobs + 1 {
			calls = append(calls, w.publish(w.background(fmt.Sprint("n", i), "sleep 10m")))
		}
		refused := 0
		for _, c := range calls {
			r := w.result(c)
			if r.Status == schemas.StatusCompleted {
				continue
			}
			refused++
			if r.Error == nil || r.Error.Code != schemas.Exhausted || !strings.Contains(r.Text, "background job limit reached (10 concurrent)") {
				t.Errorf("the one above the cap says %+v", r)
			}
		}
		if refused != 1 || h.started() != schemas.DefaultJobs {
			t.Errorf("%d of %d were refused and %d run, want one and %d", refused, len(calls), h.started(), schemas.DefaultJobs)
		}
		for _, c := range calls {
			w.ended(c)
		}
		w.until("ten fit again", func() bool { return free(t, memory, "jobs."+sandboxes.Key(calls[0]), 1) })
		w.want(w.publish(w.background("later", "sleep 1s")), schemas.StatusCompleted)
	})
}

// TestTheOperatorBoundsTheJobsOfASandbox: whatever its record says, and the worker's own number.
func TestTheOperatorBoundsTheJobsOfASandbox(t *testing.T) {
	const most = 2
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		memory := new(limits.Memory)
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.Slots, wk.JobLimit, wk.MaxJobs = memory, 16, 5, most })
		refused := 0
		for i := range most + 2 {
			if r := w.result(w.publish(w.background(fmt.Sprint("n", i), "sleep 10m"))); r.Error != nil && r.Error.Code == schemas.Exhausted {
				refused++
			}
		}
		if refused != 2 || h.started() != most {
			t.Errorf("%d were refused and %d run, want two of each", refused, h.started())
		}
	})
}

// wayward is a limiter that is unavailable at times and may forget.
type wayward struct {
	limits.Limiter

	mu   sync.Mutex
	away bool
}

func (l *wayward) set(away bool, fresh limits.Limiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if fresh != nil {
		l.Limiter = fresh
	}
}

func (l *wayward) now() (limits.Limiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, schemas.OpErrorf(schemas.Unavailable, "limiter", "connection refused")
	}
	return l.Limiter, nil
}

func (l *wayward) Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (limits.Lease, error) {
	m, err := l.now()
	if err != nil {
		return limits.Lease{}, err
	}
	return m.Acquire(ctx, key, holder, most, ttl)
}

func (l *wayward) Renew(ctx context.Context, ttl time.Duration, leases ...limits.Lease) ([]limits.Lease, error) {
	m, err := l.now()
	if err != nil {
		return nil, err
	}
	return m.Renew(ctx, ttl, leases...)
}

func (l *wayward) Release(ctx context.Context, leases ...limits.Lease) error {
	m, err := l.now()
	if err != nil {
		return err
	}
	return m.Release(ctx, leases...)
}

//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestCallsWaitForALimiterThatIsAway(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		l := &wayward{Limiter: new(limits.Memory), away: true}
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.AccountCap = l, 5 })
		foreground, background := w.publish(w.call("fore", schemas.ToolBash)), w.publish(w.background("back", "sleep 1m"))
		time.Sleep(5 * time.Minute)
		if slices.Contains(w.types(foreground), schemas.CallStarted) || slices.Contains(w.types(background), schemas.CallStarted) {
			t.Error("a call was started while its cap could not be asked for")
		}
		l.set(false, nil)
		w.want(foreground, schemas.StatusCompleted)
		w.want(background, schemas.StatusCompleted)
	})
}

//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestPlacesThatALimiterForgotAreTakenAgain(t *testing.T) {
	natstest.Hours(t)
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		l := &wayward{Limiter: new(limits.Memory)}
		w.settleJobs(func(s *maintenance.Settler) { s.Limiter = l })
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.JobLimit = l, 1 })
		call := w.publish(w.background("one", "sleep 1h"))
		w.want(call, schemas.StatusCompleted)
		time.Sleep(10 * time.Minute)
		if free(t, l, "jobs."+sandboxes.Key(call), 1) {
			t.Fatal("the place of a job that runs was not kept")
		}
		l.set(true, nil)
		time.Sleep(10 * time.Minute)
		l.set(false, new(limits.Memory))
		w.until("the place is held again", func() bool { return !free(t, l, "jobs."+sandboxes.Key(call), 1) })
		if r := w.want(w.publish(w.background("two", "sleep 1s")), schemas.StatusFailed); r.Error.Code != schemas.Exhausted {
			t.Errorf("another job beside it: %+v, want the cap to be kept", r)
		}
		w.ended(call)
		w.until("the place is free", func() bool { return free(t, l, "jobs."+sandboxes.Key(call), 1) })
	})
}
