package workers

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/leases"
)

// newLate is a provider whose sandboxes take a time to start, of the longest that it says, and whose commands run for as long as they may.
func newLate(longest, takes time.Duration) *outliving {
	p := newOutliving()
	p.start = longest
	p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		if !wait.Sleep(ctx, takes) {
			return providers.Result{}, ctx.Err()
		}
		return sleeper(cmd.Timeout)(ctx, cmd)
	}
	return p
}

// TestTheTimeOfACommandCountsFromItsStart: what a sandbox takes to start is beside the time of its command, as long as the provider says
// that it may, and both end by the call's deadline.
//
//guarantee:bounds
func TestTheTimeOfACommandCountsFromItsStart(t *testing.T) {
	for name, c := range map[string]struct {
		limit, takes, deadline time.Duration
		status                 schemas.Status
		most                   time.Duration // until its result
	}{
		"a start within the limit": {limit: 2 * time.Minute, takes: 110 * time.Second, status: schemas.StatusCompleted, most: 3 * time.Minute},
		"one that is longer":       {limit: 2 * time.Minute, takes: time.Hour, status: schemas.StatusFailed, most: 3 * time.Minute},
		"a provider without one":   {takes: time.Minute, status: schemas.StatusFailed, most: time.Minute},
		"a deadline before its end": {
			limit: 10 * time.Minute, takes: 5 * time.Minute, deadline: time.Minute, status: schemas.StatusFailed, most: 90 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.employ(newLate(c.limit, c.takes))
				call := w.publish(w.call("call_1", schemas.ToolBash, func(call *schemas.Call) {
					call.Timeout = schemas.Duration(10 * time.Second)
					if c.deadline > 0 {
						call.Deadline = call.Accepted.Add(c.deadline)
					}
				}))
				begun := time.Now()
				r := w.want(call, c.status)
				if c.status == schemas.StatusFailed && (r.Error == nil || r.Error.Code != schemas.Timeout) {
					t.Errorf("the error is %+v, want timeout", r.Error)
				}
				if d := time.Since(begun); d > c.most {
					t.Errorf("the result came after %s, want %s at most", d, c.most)
				}
			})
		})
	}
}

// TestWhatOthersHaveEndedIsNotStarted: while a sandbox starts its worker is taken for dead, and another one ends the call, after it has
// looked for what runs. The command must not start behind that.
//
//guarantee:side-effects-are-started-at-most-once
func TestWhatOthersHaveEndedIsNotStarted(t *testing.T) {
	for name, c := range map[string]struct {
		away  time.Duration
		ended bool
	}{
		"the call is ended":      {leases.TTL + time.Second, true},
		"the worker was away":    {leases.TTL + time.Second, false},
		"it stays away for long": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var away atomic.Bool
				var started atomic.Int32
				over := make(chan error, 100)
				p := newLate(time.Hour, 0)
				p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if !wait.Sleep(ctx, time.Minute) {
						return providers.Result{}, ctx.Err()
					}
					err := cmd.MayBegin()
					over <- err
					if err != nil {
						return providers.Result{}, err
					}
					started.Add(1)
					return hello(ctx, cmd)
				}
				w.employ(p, func(wk *Worker) {
					wk.at = func(s stage, _ schemas.Call) error {
						if s == atRenewal && away.Load() {
							return errCrash
						}
						return nil
					}
				})
				call := w.publish(w.call("call_1", schemas.ToolBash))
				w.untilStarted(call)
				time.Sleep(5 * time.Second)
				away.Store(true)
				time.AfterFunc(c.away, func() { away.Store(false) })
				if c.ended {
					time.Sleep(leases.TTL + time.Second)
					w.endedElsewhere(call, unrunResult(call, toInterrupt, ""))
				}
				err := <-over
				switch {
				case c.ended || c.away > time.Minute:
					if err == nil || started.Load() > 0 {
						t.Errorf("the command started, %d times", started.Load())
					}
				case err != nil:
					t.Errorf("the command did not start: %v", err)
				}
				if !c.ended && c.away < time.Minute {
					w.want(call, schemas.StatusCompleted)
				}
			})
		})
	}
}
