package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// engine is a provider whose sandboxes outlive workers. It pauses them as a container engine does: a resumed sandbox is the same as
// before.
type engine struct {
	mu       sync.Mutex
	made     int
	boxes    map[string]*box // by key
	released []schemas.Ref
	scripts  []string
}

type box struct {
	ref    schemas.Ref
	paused bool
	inside int
	hurt   int // how often it was paused or ended with a call in it
}

func (*engine) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, Pause: schemas.PauseKeepsProcesses}
}

func (e *engine) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[key]
	if b == nil {
		e.made++
		b = &box{ref: schemas.Ref{ID: fmt.Sprint(key, e.made), Epoch: fmt.Sprint(e.made)}}
		if e.boxes == nil {
			e.boxes = map[string]*box{}
		}
		e.boxes[key] = b
	}
	b.paused = false
	return b.ref, nil
}

func (e *engine) Release(_ context.Context, ref schemas.Ref) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, b := range e.boxes {
		if b.ref == ref {
			delete(e.boxes, key)
			e.released = append(e.released, ref)
			b.hurt += b.inside
		}
	}
	return nil
}

func (e *engine) Pause(_ context.Context, ref schemas.Ref) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.ref == ref {
			b.paused = true
			b.hurt += b.inside
		}
	}
	return nil
}

func (e *engine) Run(_ context.Context, cmd providers.Command) (providers.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.ref == cmd.Sandbox && !b.paused {
			e.scripts = append(e.scripts, cmd.Script)
			return providers.Result{Started: true}, nil
		}
	}
	return providers.Result{}, schemas.OpErrorf(schemas.NotFound, "run", "gone")
}

// enter begins a run in a sandbox; false: it does not exist. Leave ends the run and returns how often the sandbox was paused or ended
// during it.
func (e *engine) enter(ref schemas.Ref) (b *box, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.ref == ref && !b.paused {
			b.inside++
			return b, true
		}
	}
	return nil, false
}

func (e *engine) leave(b *box) (hurt int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.inside--
	return b.hurt
}

func (e *engine) look() (paused, there, released int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.paused {
			paused++
		}
	}
	return paused, len(e.boxes), len(e.released)
}

// someRecords returns the records of one sandbox.
type someRecords struct {
	records

	sandbox schemas.Sandbox
}

func (r someRecords) Sandbox(context.Context, schemas.AccountID, schemas.SandboxID) (schemas.Sandbox, error) {
	return r.sandbox, nil
}

// member returns a worker of the provider fake whose instances any worker can reach.
func member(b *streams.Bus, e providers.Provider, name string, s schemas.Sandbox) *Instances {
	return New(Options{
		Bus: b, Provider: e, Name: "fake", Records: someRecords{sandbox: s}, Every: 15 * time.Second,
		Lease:    leases.New(b, leases.Record{Worker: name}, nil, nil),
		WithJobs: func() map[schemas.Ref]bool { return nil },
		Spec:     func(schemas.Sandbox, schemas.Workspace) providers.Spec { return providers.Spec{} },
	})
}

func run(t *testing.T, in *Instances) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); in.Run(ctx) }()
	return func() { cancel(); <-done }
}

func use(t *testing.T, in *Instances, s schemas.Sandbox) schemas.Ref {
	t.Helper()
	q := request()
	q.Sandbox = s
	stay, err := in.Acquire(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	defer stay.Leave()
	return stay.Ref()
}

func onRecord(t *testing.T, in *Instances) schemas.Instance {
	t.Helper()
	p, err := in.rows.Get(t.Context(), in.rowKey(Key(call())))
	if err != nil {
		t.Fatal(err)
	}
	return p.Value
}

// An idle instance is paused; the next call resumes it and runs onResume; at its deadline, which neither use nor pause has moved, it is
// released.
func TestAnIdleBoxIsPausedUntilItsDeadline(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		e := &engine{}
		s := schemas.Sandbox{
			IdleTimeout: schemas.Duration(5 * time.Minute), MaxLifetime: schemas.Duration(time.Hour), OnCreate: []string{"make"},
			OnResume: []string{"resume"},
		}
		in := member(b, e, "worker_1", s)
		defer run(t, in)()
		ref := use(t, in, s)
		deadline := onRecord(t, in).Deadline
		time.Sleep(10 * time.Minute)
		if paused, _, _ := e.look(); paused != 1 || onRecord(t, in).State != schemas.InstancePaused {
			t.Fatalf("%d are paused after it was idle, on record: %+v", paused, onRecord(t, in))
		}
		if again := use(t, in, s); again != ref {
			t.Errorf("woken as %+v, want %+v", again, ref)
		}
		if row := onRecord(t, in); row.State != schemas.InstanceReady || !row.Deadline.Equal(deadline) || !row.Paused.IsZero() {
			t.Errorf("on record, awake: %+v", row)
		}
		if got := fmt.Sprint(e.scripts); got != "[make resume resume]" {
			t.Errorf("scripts %s", got)
		}
		time.Sleep(55 * time.Minute)
		if _, there, released := e.look(); there != 0 || released != 1 {
			t.Errorf("%d are there and %d were released after its deadline", there, released)
		}
	})
}

func TestWishesAreCarriedOut(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		e, s := &engine{}, schemas.Sandbox{}
		in := member(b, e, "worker_1", s)
		defer run(t, in)()
		use(t, in, s)
		want := func(w schemas.InstanceTarget) {
			t.Helper()
			if _, err := lifecycle.WantInstance(t.Context(), b, in.rowKey(Key(call())), w); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Minute)
		}
		want(schemas.WantPaused)
		if paused, _, _ := e.look(); paused != 1 || onRecord(t, in).Wanted.State != "" {
			t.Errorf("%d are paused, on record: %+v", paused, onRecord(t, in))
		}
		want(schemas.WantRunning)
		if paused, _, _ := e.look(); paused != 0 || onRecord(t, in).Wanted.State != "" || onRecord(t, in).State != schemas.InstanceReady {
			t.Errorf("%d are paused, on record: %+v", paused, onRecord(t, in))
		}
		want(schemas.WantRemoved)
		if _, there, released := e.look(); there != 0 || released != 1 {
			t.Errorf("%d are there and %d were released", there, released)
		}
	})
}

// A worker is suspended after it recorded a step and before it takes the step. It does not take it then: another worker has taken it, and
// the current instance is in use.
//
//guarantee:a-persistent-instance-is-one-box
func TestASuspendedWorkerPutsNothingAway(t *testing.T) {
	for _, do := range []string{"end", "pause"} {
		t.Run(do, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				e, s := &engine{}, schemas.Sandbox{}
				one, two := member(b, e, "worker_1", s), member(b, e, "worker_2", s)
				ref := use(t, one, s)
				standing, goOn := make(chan struct{}), make(chan struct{})
				one.reaper.between = func() { close(standing); <-goOn }
				done := make(chan error)
				row := onRecord(t, one)
				go func() {
					if do == "end" {
						done <- one.reaper.end(t.Context(), Key(call()), ref, endIdle, nil)
					} else {
						done <- one.reaper.pause(t.Context(), Key(call()), row, s, nil)
					}
				}()
				<-standing
				if _, err := two.Acquire(t.Context(), request()); schemas.CodeOf(err) != schemas.Unavailable {
					t.Errorf("a call entered a box that is being put away: %v", err)
				}
				end := run(t, two)
				time.Sleep(11 * time.Minute)
				end()
				stay, err := two.Acquire(t.Context(), request())
				if err != nil {
					t.Fatal(err)
				}
				in, ok := e.enter(stay.Ref())
				if !ok {
					t.Fatal("the box is not there")
				}
				close(goOn)
				if err := <-done; err == nil {
					t.Error("it went on as if nothing had happened")
				}
				if paused, there, _ := e.look(); paused != 0 || there != 1 || e.leave(in) != 0 {
					t.Errorf("%d are paused and %d there: a call was in it", paused, there)
				}
			})
		})
	}
}

// Many calls of many workers need an instance that does not exist yet: all of them use the same one, with one record.
//
//guarantee:a-persistent-instance-is-one-box
func TestFirstUsesAreInOneBox(t *testing.T) {
	l := natstest.Start(t)
	e := &engine{}
	const workers, calls = 4, 25
	refs := make(chan schemas.Ref, workers*calls)
	var all sync.WaitGroup
	for n := range workers {
		in := member(l.Bus, e, fmt.Sprint("worker_", n), schemas.Sandbox{})
		for range calls {
			all.Go(func() {
				for {
					stay, err := in.Acquire(t.Context(), request())
					if schemas.CodeOf(err) == schemas.Unavailable && t.Context().Err() == nil {
						continue // it is nak'ed, and redelivered
					}
					if err != nil {
						t.Error(err)
						return
					}
					refs <- stay.Ref()
					stay.Leave()
					return
				}
			})
		}
	}
	all.Wait()
	close(refs)
	in := member(l.Bus, e, "worker_9", schemas.Sandbox{})
	row, n := onRecord(t, in), 0
	for ref := range refs {
		n++
		if ref != row.Ref {
			t.Errorf("a call is in %+v, on record is %+v", ref, row.Ref)
		}
	}
	if _, there, _ := e.look(); n != workers*calls || there != 1 || row.State != schemas.InstanceReady {
		t.Errorf("%d calls were let in, %d boxes are there, on record: %+v", n, there, row)
	}
}

// A call that arrives at the very moment at which its instance is paused or ended enters it, resumes it, or gets another one. No instance
// is paused or ended with a call in it. The timing lets each step happen before and after each other step.
//
//guarantee:a-persistent-instance-is-one-box
func TestCallsAndTheReaperDoNotMeet(t *testing.T) {
	rounds := 300
	if longtest.Asked() {
		rounds = 10_000
	}
	l := natstest.Start(t)
	e := &engine{}
	s := schemas.Sandbox{IdleTimeout: schemas.Duration(time.Hour)}
	reaper, caller := member(l.Bus, e, "worker_1", s), member(l.Bus, e, "worker_2", s)
	entered, refused := 0, 0
	for round := range rounds {
		age(t, caller)
		reaper.unknown(Key(call()))
		if err := reaper.reload(t.Context(), Key(call()), reaper.claimed(Key(call())), 0); err != nil {
			t.Fatal(err)
		}
		reaper.mu.Lock()
		h := reaper.held[Key(call())]
		h.claims--
		row := h.row
		reaper.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() {
			if row.Ref.IsZero() {
				return
			}
			if round%2 == 0 {
				_ = reaper.reaper.end(t.Context(), Key(call()), row.Ref, endIdle, nil)
			} else {
				_ = reaper.reaper.pause(t.Context(), Key(call()), row, s, nil)
			}
		})
		both.Go(func() {
			for range round % 7 {
				_, _ = caller.rows.Get(t.Context(), "fake.nobody") // a short delay
			}
			stay, err := caller.Acquire(t.Context(), request())
			if err != nil {
				if schemas.CodeOf(err) != schemas.Unavailable {
					t.Error(err)
				}
				refused++
				return
			}
			defer stay.Leave()
			in, ok := e.enter(stay.Ref())
			if !ok {
				t.Errorf("round %d: the box of a call that was let in is not there", round)
				return
			}
			_, _ = caller.rows.Get(t.Context(), "fake.nobody") // a short delay
			if e.leave(in) != 0 {
				t.Errorf("round %d: the box was put away with a call in it", round)
			}
			entered++
		})
		both.Wait()
		if t.Failed() {
			return
		}
	}
	if entered == 0 || refused == 0 {
		t.Errorf("%d calls entered and %d were refused: the two have never met", entered, refused)
	}
	t.Logf("%d calls entered, %d were told to wait", entered, refused)
}

// unknown removes a worker's entry of an instance, as if the worker were new.
func (b *Instances) unknown(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, key)
}

// age moves the recorded last use of instances far into the past.
func age(t *testing.T, in *Instances) {
	t.Helper()
	key := in.rowKey(Key(call()))
	p, err := in.rows.Get(t.Context(), key)
	if errors.Is(err, schemas.ErrNotFound) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	p.Value.Used = p.Value.Used.Add(-2 * time.Hour)
	if _, err := in.rows.Update(t.Context(), key, p.Value, p.Revision); err != nil {
		t.Fatal(err)
	}
}
