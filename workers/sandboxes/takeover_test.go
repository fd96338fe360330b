package sandboxes

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// stubborn is an engine that refuses to release a sandbox for a while.
type stubborn struct {
	*engine

	refuses atomic.Int64 // how often it still refuses
	asked   atomic.Int64
}

func (s *stubborn) Release(ctx context.Context, ref schemas.Ref) error {
	s.asked.Add(1)
	if s.refuses.Add(-1) >= 0 {
		return schemas.OpErrorf(schemas.Unavailable, "release", "the engine is busy")
	}
	return s.engine.Release(ctx, ref)
}

// A removal ends only when the provider has confirmed it, however often the provider refuses and whichever worker crashes meanwhile.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestARemovalIsTriedUntilTheProviderConfirms(t *testing.T) {
	for name, tries := range map[string]int64{"its worker dies before the first try": 0, "its worker dies between two tries": 2} {
		t.Run(name, func(t *testing.T) {
			var log *streams.Options
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				e, s := &stubborn{engine: &engine{}}, schemas.Sandbox{}
				e.refuses.Store(tries + 3)
				first := member(testwait.Must(streams.Open(t.Context(), *log))(t), e, "worker_1", s)
				end := run(t, first)
				use(t, first, s)
				if _, err := lifecycle.WantInstance(t.Context(), b, first.rowKey(Key(call())), schemas.WantRemoved); err != nil {
					t.Fatal(err)
				}
				for e.asked.Load() < tries {
					time.Sleep(time.Second)
				}
				died, die := context.WithCancel(t.Context())
				die()
				_ = first.Bus.Close(died) // without waiting
				end()
				second := member(b, e, "worker_2", s)
				defer run(t, second)()
				for e.asked.Load() < tries+3 {
					time.Sleep(time.Second)
				}
				if row := onRecord(t, second); row.State != schemas.InstanceEnding {
					t.Errorf("on record while the provider refuses: %+v", row)
				}
				if _, err := second.Acquire(t.Context(), request()); schemas.CodeOf(err) != schemas.Unavailable {
					t.Errorf("a call meanwhile: %v, want it to wait", err)
				}
				time.Sleep(time.Minute)
				if _, there, released := e.look(); there != 0 || released != 1 || len(keysOf(t, b)) != 0 {
					t.Errorf("%d are there, %d were released, on record %v", there, released, keysOf(t, b))
				}
			}, func(s *natstest.Settings) { log = &s.Log })
		})
	}
}

// loseDuty removes the lease of a duty, whichever worker holds it, as when its holder's host is suspended.
func loseDuty(t *testing.T, b *streams.Bus, name string) {
	t.Helper()
	if err := streams.OpenBucket[map[string]string](b, streams.Leases).Delete(t.Context(), "duty."+name); err != nil {
		t.Fatal(err)
	}
}

// standing blocks the first caller until it may continue.
type standing struct {
	passed   atomic.Bool
	here, on chan struct{}
}

func newStanding() *standing { return &standing{here: make(chan struct{}), on: make(chan struct{})} }

func (s *standing) pass() {
	if !s.passed.Swap(true) {
		close(s.here)
		<-s.on
	}
}

// slowEngine is an engine that is suspended in the middle of a pause.
type slowEngine struct {
	*engine

	at *standing // nil: it is not suspended
}

func (s slowEngine) Pause(ctx context.Context, ref schemas.Ref) error {
	if s.at != nil {
		s.at.pass()
	}
	return s.engine.Pause(ctx, ref)
}

// The worker with the duty to pause idle instances is suspended. Another one takes over the duty, and a call resumes the instance and uses
// it. When the first worker continues, the instance is not paused.
//
//guarantee:a-persistent-instance-is-one-box
func TestAReaperThatStoodStillDoesNoHarm(t *testing.T) {
	for name, atProvider := range map[string]bool{"before it has asked the provider": false, "while the provider is at it": true} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				e, stop := slowEngine{engine: &engine{}}, newStanding()
				if atProvider {
					e.at = stop
				}
				s := schemas.Sandbox{IdleTimeout: schemas.Duration(5 * time.Minute)}
				for _, worker := range []string{"worker_1", "worker_2"} {
					in := member(b, e, worker, s)
					if !atProvider {
						in.reaper.between = stop.pass
					}
					defer run(t, in)()
				}
				caller := member(b, e, "worker_3", s) // not involved in the duty
				ref := use(t, caller, s)
				<-stop.here
				loseDuty(t, b, "instance-reaper.fake")
				time.Sleep(11 * time.Minute)
				if paused, _, _ := e.look(); paused != 1 || onRecord(t, caller).State != schemas.InstancePaused {
					t.Fatalf("nobody has taken over: %d are paused, on record: %+v", paused, onRecord(t, caller))
				}
				stay, err := caller.Acquire(t.Context(), request())
				if err != nil || stay.Ref() != ref {
					t.Fatalf("a call is in %+v, %v, want %+v", stay.Ref(), err, ref)
				}
				defer stay.Leave()
				close(stop.on)
				time.Sleep(10 * time.Second)
				if paused, there, _ := e.look(); paused != 0 || there != 1 || onRecord(t, caller).State != schemas.InstanceReady {
					t.Errorf("%d are paused and %d there, on record: %+v", paused, there, onRecord(t, caller))
				}
			})
		})
	}
}

// slowLists is a provider that is suspended between listing and returning the list.
type slowLists struct {
	*lists

	at *standing
}

func (s slowLists) ListKept(ctx context.Context, of string) ([]providers.KeptBox, error) {
	all, err := s.lists.ListKept(ctx, of)
	s.at.pass()
	return all, err
}

// The worker with the duty to sweep is suspended while it has a list, which is outdated when it continues: the worker takes no step.
//
//guarantee:a-persistent-instance-and-its-record-find-each-other
func TestASweeperThatStoodStillDoesNoHarm(t *testing.T) {
	inSweep(t, func(t *testing.T, b *streams.Bus, s *Reconciler, p *lists, of string) {
		stop := newStanding()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		for range 2 {
			running.Go(func() {
				(&Reconciler{
					Bus: b, Provider: slowLists{p, stop}, Name: "fake", Records: records{}, Lease: s.Lease, Log: slog.New(slog.DiscardHandler),
				}).Run(ctx)
			})
		}
		p.add(of, "acct_1.sb_1.ws_1", "one", time.Now().Add(-time.Hour))
		<-stop.here
		loseDuty(t, b, "orphan-sweep.fake")
		time.Sleep(11 * time.Minute)
		if len(keysOf(t, b)) != 1 {
			t.Fatalf("nobody has taken over: on record %v", keysOf(t, b))
		}
		if err := p.Release(t.Context(), schemas.Ref{ID: "one", Epoch: "a"}); err != nil { // it is removed, and its record with it
			t.Fatal(err)
		}
		if err := lifecycle.OpenInstances(b).Delete(t.Context(), keysOf(t, b)[0]); err != nil {
			t.Fatal(err)
		}
		close(stop.on)
		time.Sleep(10 * time.Second)
		if keys := keysOf(t, b); len(keys) != 0 {
			t.Errorf("it has adopted a box that is gone: %v", keys)
		}
	})
}
