package workers

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// withHooks gives the sandbox two scripts for a new box and one for each use.
func (w *world) withHooks() {
	w.specs.persistent = true
	w.specs.change = func(s *schemas.Sandbox) {
		s.OnCreate, s.OnResume = []string{"create 1", "create 2"}, []string{"resume"}
		s.Timeout = schemas.Duration(7 * time.Second)
	}
}

// primed runs scripts in silence and calls as hello does.
func primed(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	if cmd.Output == nil {
		return providers.Result{Started: true}, nil
	}
	return hello(ctx, cmd)
}

func TestScriptsRunBeforeTheCalls(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Output != nil {
				return hello(ctx, cmd)
			}
			if cmd.Env["SECRET"] != "s3cret" || cmd.Timeout != 7*time.Second || cmd.Sandbox.IsZero() {
				t.Errorf("a script got %+v", cmd)
			}
			return providers.Result{Started: true, Stdout: []byte("of a script\n")}, nil
		}
		w.employ(p)
		for _, id := range []string{"call_1", "call_2"} {
			r := w.want(w.publish(w.call(id, schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(time.Minute) })),
				schemas.StatusCompleted)
			if strings.Contains(r.Text+r.Output.Stdout, "of a script") {
				t.Errorf("the call shows what a script has printed: %q", r.Text)
			}
		}
		want := []string{"create 1", "create 2", "resume", "echo hello", "resume", "echo hello"}
		if got := p.scripts(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestOnlyOneCallMakesABoxReady(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Output == nil {
				time.Sleep(3 * time.Second)
			}
			return primed(ctx, cmd)
		}
		w.employ(p)
		if !p.tied {
			w.employ(p) // another one for the same boxes
		}
		var calls []schemas.Call
		for _, id := range []string{"call_1", "call_2", "call_3", "call_4", "call_5", "call_6"} {
			calls = append(calls, w.publish(w.call(id, schemas.ToolBash)))
		}
		for _, c := range calls {
			w.want(c, schemas.StatusCompleted)
		}
		count := map[string]int{}
		for _, s := range p.scripts() {
			count[s]++
		}
		if count["create 1"] != 1 || count["create 2"] != 1 || count["resume"] != len(calls) || count["echo hello"] != len(calls) {
			t.Errorf("%v: want onCreate once and onResume for each call", count)
		}
	})
}

//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestAFailedScriptEndsTheCallAndItsBox(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		var mended atomic.Bool
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Script == "create 2" && !mended.Load() {
				return providers.Result{Started: true, ExitCode: 7, Stdout: []byte("out"), Stderr: []byte("first\nno such package\n")}, nil
			}
			return primed(ctx, cmd)
		}
		w.employ(p)
		r := w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusFailed)
		if !strings.Contains(r.Text, "config.onCreate[1]: script 2 of 2 ended with exit code 7:\nfirst\nno such package") ||
			r.Error.Code != schemas.Invalid {
			t.Errorf("%q, %+v", r.Text, r.Error)
		}
		if got := p.list(); len(got) != 1 || got[0].Epoch != "a" {
			t.Errorf("released %v, want the box", got)
		}
		mended.Store(true)
		w.want(w.publish(w.call("call_2", schemas.ToolBash)), schemas.StatusCompleted)
		want := []string{"create 1", "create 2", "create 1", "create 2", "resume", "echo hello"}
		if got := p.scripts(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestAFailedResumeLeavesTheBox(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Script == "resume" {
				return providers.Result{Started: true, TimedOut: true, ExitCode: 124}, nil
			}
			return primed(ctx, cmd)
		}
		w.employ(p)
		r := w.want(w.publish(w.call("call_1", schemas.ToolBash)), schemas.StatusFailed)
		if !strings.Contains(r.Text, "config.onResume[0]: script 1 of 1 was stopped after 7s") {
			t.Errorf("%q", r.Text)
		}
		if got := p.list(); len(got) != 0 {
			t.Errorf("released %v", got)
		}
	})
}

// A worker dies after onCreate has run and before that is recorded. The script runs once more, in the same box if the box outlives its
// worker, and the call has one result.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestScriptsRunAgainWhenTheirWorkerDies(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		p.run = primed
		died := make(chan *employed, 1)
		w.employ(p, w.dieAt(atHooked, died))
		c := w.publish(w.call("call_1", schemas.ToolBash))
		<-died
		if p.tied {
			p.epoch.Add(1)
		}
		w.employ(p)
		w.want(c, schemas.StatusCompleted)
		w.once(c)
		want := []string{"create 1", "create 2", "create 1", "create 2", "resume", "echo hello"}
		if got := p.scripts(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got := p.list(); len(got) != 0 {
			t.Errorf("released %v", got)
		}
	})
}

func TestACallIsCancelledWhileItsBoxIsMadeReady(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, p *keeps) {
		w.withHooks()
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Script == "create 2" && len(p.list()) == 0 {
				<-ctx.Done()
				return providers.Result{Started: true}, ctx.Err()
			}
			return primed(ctx, cmd)
		}
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		time.Sleep(2 * time.Second)
		w.cancel(c)
		w.want(c, schemas.StatusCancelled)
		if slices.Contains(p.scripts(), "echo hello") || len(p.list()) != 1 {
			t.Errorf("%q was run, %v released: want no call in a box that may be half made", p.scripts(), p.list())
		}
		w.want(w.publish(w.call("call_2", schemas.ToolBash)), schemas.StatusCompleted)
	})
}
