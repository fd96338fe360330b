package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// TestStartAndStop stops workers before, at and after their start, more than once, with work about.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestStartAndStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bus := w.open()
		var calls []schemas.Call
		p := &fake{}
		for round := range 30 {
			calls = append(calls, w.publish(w.call(fmt.Sprint("call_", round), schemas.ToolBash)))
			for _, after := range []time.Duration{-1, 0, time.Millisecond, 50 * time.Millisecond, time.Second} {
				startAndStop(t, &Worker{Bus: bus, Provider: p, Specs: w.specs, Grace: time.Second}, after)
			}
		}
		w.employ(p)
		for _, c := range calls {
			w.result(c)
		}
		w.once(calls[0])
		if p.count() > len(calls) {
			t.Errorf("%d runs of %d calls", p.count(), len(calls))
		}
	})
}

// startAndStop runs a worker for so long; below 0 it is stopped before it is started.
func startAndStop(t *testing.T, wk *Worker, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after < 0 {
		cancel()
	}
	done := make(chan error, 1)
	go func() { done <- wk.Run(ctx) }()
	time.Sleep(max(after, 0))
	for range 10 {
		go cancel()
	}
	if err := <-done; err != nil {
		t.Fatalf("stop after %v: %v; want nil", after, err)
	}
}

//guarantee:cancelling-kills-and-stopping-finishes
func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		tool schemas.Tool
		nap  time.Duration
		want schemas.Status
		runs int
	}{
		"finishes what is in hand":               {schemas.ToolBash, 5 * time.Second, schemas.StatusCompleted, 1},
		"interrupts what takes longer":           {schemas.ToolBash, time.Hour, schemas.StatusInterrupted, 1},
		"hands back what has no side effects":    {schemas.ToolRead, time.Hour, schemas.StatusCompleted, 2},
		"finishes what has no side effects also": {schemas.ToolRead, 5 * time.Second, schemas.StatusCompleted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var runs atomic.Int32
				p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if runs.Add(1) > 1 {
						return providers.Result{Started: true, Stdout: []byte(readAnswer)}, nil
					}
					r, err := sleeper(c.nap)(ctx, cmd)
					if c.tool == schemas.ToolRead {
						r.Stdout = []byte(readAnswer)
					}
					return r, err
				}}
				e := w.employ(p, func(wk *Worker) { wk.Grace = 10 * time.Second })
				call := w.publish(w.call("call_1", c.tool))
				w.untilStarted(call)
				later := time.Now()
				e.retire()
				if d := time.Since(later); d > 20*time.Second {
					t.Errorf("the stop took %v, with a grace of 10 s", d)
				}
				if c.want == schemas.StatusInterrupted { // reported by the worker itself, with what was printed
					if r := w.want(call, c.want); r.Output == nil || r.Output.Stdout != "begun\n" || !strings.Contains(r.Text, "shut down") {
						t.Errorf("result %+v", r)
					}
				}
				w.employ(p)
				w.want(call, c.want)
				w.once(call)
				if n := int(runs.Load()); n != c.runs {
					t.Errorf("%d runs, want %d", n, c.runs)
				}
			})
		})
	}
}

// TestARunThatDoesNotEndGivesItsSlotBack: whatever a tool or a provider does, the call has its result, the next one
// is run, and the worker can stop.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestARunThatDoesNotEndGivesItsSlotBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release, ended := make(chan struct{}), make(chan struct{}, 4)
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if !strings.Contains(cmd.Script, "stuck") {
				return hello(ctx, cmd)
			}
			<-release // it ignores its context
			cmd.Output(providers.Chunk{Data: []byte("too late\n")})
			ended <- struct{}{}
			return providers.Result{Started: true}, nil
		}}
		var stuck atomic.Int32
		e := w.employ(p, func(wk *Worker) {
			wk.Slots, wk.Grace = 1, 5*time.Second
			wk.Metrics.Stuck = func(_ string, n int) { stuck.Store(int32(n)) }
		})
		hangs := func(c *schemas.Call) {
			c.Input, c.Timeout = []byte(`{"command":"stuck"}`), schemas.Duration(10*time.Second)
		}
		c := w.publish(w.call("call_stuck", schemas.ToolBash, hangs))
		begun := time.Now()
		if r := w.want(c, schemas.StatusFailed); r.Error == nil || r.Error.Code != schemas.Timeout {
			t.Errorf("result %+v", r)
		}
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("the result came after %v, with a timeout of 10 s", d)
		}
		if stuck.Load() != 1 {
			t.Errorf("%d runs are told to be stuck, want one", stuck.Load())
		}
		next := w.publish(w.call("call_next", schemas.ToolBash)) // as many do not end as there are slots: not here
		time.Sleep(time.Minute)
		if got := w.types(next); len(got) != 1 {
			t.Errorf("a worker full of runs that do not end took a call: %v", got)
		}
		close(release)
		<-ended
		w.want(next, schemas.StatusCompleted)
		if stuck.Load() != 0 {
			t.Errorf("%d runs are told to be stuck, want none any more", stuck.Load())
		}
		w.once(c)
		if got := w.types(c); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished}) {
			t.Errorf("events %v: want nothing behind the result", got)
		}
		e.retire()
	})
}

// TestAWorkerStopsWithoutARunThatDoesNotEnd: the result of a call whose run cannot be ended is interrupted.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestAWorkerStopsWithoutARunThatDoesNotEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release, ended := make(chan struct{}), make(chan struct{})
		p := &fake{run: func(context.Context, providers.Command) (providers.Result, error) {
			defer close(ended)
			<-release
			return providers.Result{Started: true}, nil
		}}
		e := w.employ(p, func(wk *Worker) { wk.Grace = 5 * time.Second })
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }))
		w.untilStarted(c)
		begun := time.Now()
		e.retire()
		if d := time.Since(begun); d > 30*time.Second {
			t.Errorf("the stop took %v, with a grace of 5 s", d)
		}
		w.want(c, schemas.StatusInterrupted)
		close(release)
		<-ended
		w.once(c)
	})
}
