package workers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// outliving is a provider whose runs continue when their worker has died, until another process ends them.
type outliving struct {
	fake

	start time.Duration // that a run may take until it starts

	mu    sync.Mutex
	left  map[string]bool // runs that continue, by id
	away  func() bool     // whether the engine cannot be reached; nil: never
	ended []string        // what was asked for
}

func (p *outliving) StartLimit() time.Duration { return p.start }

func (p *outliving) EndRun(_ context.Context, key string, account schemas.AccountID, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = append(p.ended, key+" "+string(account)+" "+id)
	if p.away != nil && p.away() {
		return schemas.OpErrorf(schemas.Unavailable, "end run", "the engine is away")
	}
	delete(p.left, id)
	return nil
}

// goesOn leaves every run behind.
func (p *outliving) goesOn(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	p.mu.Lock()
	p.left[cmd.ID] = true
	p.mu.Unlock()
	return hello(ctx, cmd)
}

func (p *outliving) leftover() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left)
}

func newOutliving() *outliving {
	p := &outliving{left: map[string]bool{}}
	p.run = p.goesOn
	return p
}

// TestAnInterruptedRunIsEndedFirst: a worker dies while a command runs; who takes the call over ends the command before it says that
// it was interrupted, and may die before and after that.
//
//guarantee:side-effects-are-started-at-most-once
func TestAnInterruptedRunIsEndedFirst(t *testing.T) {
	for name, deaths := range map[string][]stage{
		"the next worker lives":                    {atRan},
		"the next one dies before it ends the run": {atRan, atEnding},
		"and after it":                             {atRan, atEnded},
		"two more die":                             {atRan, atEnding, atEnded},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := newOutliving()
				c := w.publish(w.call("call_1", schemas.ToolBash))
				for _, at := range deaths {
					died := make(chan *employed, 1)
					w.employ(p, w.dieAt(at, died))
					<-died
					if slices.Contains(w.types(c), schemas.CallFinished) {
						t.Errorf("the call has its end when a worker has died at %q", at)
					}
				}
				w.employ(p)
				w.want(c, schemas.StatusInterrupted)
				if n := p.leftover(); n != 0 {
					t.Errorf("%d runs go on behind the result", n)
				}
				w.once(c)
				if p.count() != 1 {
					t.Errorf("%d runs, want one", p.count())
				}
				want := "acct_1.sb_1.ws_1 acct_1 " + c.EventID()
				for _, got := range p.ended {
					if got != want {
						t.Errorf("the end of %q was asked for, want %q", got, want)
					}
				}
			})
		})
	}
}

// TestARunThatCannotBeEndedIsWaitedFor: its engine is unavailable. The call ends when the run has ended, or cannot exist any more.
//
//guarantee:side-effects-are-started-at-most-once
func TestARunThatCannotBeEndedIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		away   time.Duration
		start  time.Duration // that it may take until the command starts
		within time.Duration // of the start of the call
	}{
		"for a while":              {5 * time.Minute, 0, 6 * time.Minute},
		"for good":                 {1000 * time.Hour, 0, providers.RunLimit + 2*time.Minute},
		"for good, a slow service": {1000 * time.Hour, 10 * time.Minute, 10*time.Minute + providers.RunLimit + 2*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := newOutliving()
				p.start = c.start
				begun := time.Now()
				p.away = func() bool { return time.Since(begun) < c.away }
				call := w.call("call_1", schemas.ToolBash)
				w.startedBy("worker_dead", call, 1)
				w.publish(call)
				w.employ(p)
				r := w.want(call, schemas.StatusInterrupted)
				took := r.Finished.Sub(begun)
				if least := min(c.away, c.start+providers.RunLimit); took < least || took > c.within {
					t.Errorf("the result came after %v, want %v to %v", took, least, c.within)
				}
				w.once(call)
			})
		})
	}
}

// TestARunWhoseEngineIsLostIsEndedFirst: the provider does not know how a run ended. Nothing of the run may continue when its call has
// ended.
//
//guarantee:side-effects-are-started-at-most-once
func TestARunWhoseEngineIsLostIsEndedFirst(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := newOutliving()
		begun := time.Now()
		p.away = func() bool { return time.Since(begun) < time.Minute }
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			r, _ := p.goesOn(ctx, cmd)
			return r, schemas.OpErrorf(schemas.Interrupted, "run", "the connection was lost")
		}
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		if r := w.want(c, schemas.StatusInterrupted); r.Finished.Sub(begun) < time.Minute || p.leftover() != 0 {
			t.Errorf("the result came after %v, %d runs go on", r.Finished.Sub(begun), p.leftover())
		}
		w.once(c)
		if p.count() != 1 {
			t.Errorf("%d runs, want one", p.count())
		}
	})
}

// TestOnlyWhatIsStartedOnceIsNamed: reading calls may be run by two workers at a time, which must not end each other's.
func TestOnlyWhatIsStartedOnceIsNamed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		p := newOutliving()
		p.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.ID != "" {
				t.Errorf("a reading call's run is named %q", cmd.ID)
			}
			return answer(schemas.ToolRead)(ctx, cmd)
		}
		w.employ(p)
		w.want(w.publish(w.call("call_1", schemas.ToolRead)), schemas.StatusCompleted)
		if len(p.ended) > 0 {
			t.Errorf("ended: %v", p.ended)
		}
	})
}
