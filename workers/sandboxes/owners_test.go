package sandboxes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// owner returns a worker of the provider fake whose instances end with it. Its lease is held until end is called.
func owner(t *testing.T, b *streams.Bus, name string) (in *Instances, end func()) {
	t.Helper()
	lease := leases.New(b, leases.Record{Worker: name}, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	held, done := make(chan struct{}), make(chan struct{})
	in = New(Options{
		Bus: b, Provider: keeps{tied: true}, Name: "fake", Records: records{}, Every: 15 * time.Second, Lease: lease,
		WithJobs: func() map[schemas.Ref]bool { return nil },
	})
	go func() { defer close(done); lease.Keep(ctx, func() { close(held) }) }()
	looked := make(chan struct{})
	go func() { defer close(looked); in.Run(ctx) }()
	<-held
	return in, func() { cancel(); <-done; <-looked }
}

func request() Request {
	return Request{
		Call: call(), Interruptible: func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
		Hooked: func() error { return nil },
	}
}

// An owner's call in an existing instance causes no I/O. Its use is recorded half a minute later.
func TestAnOwnersCallsCostNothing(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in, end := owner(t, b, "worker_1")
		defer end()
		first, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		first.Leave()
		row := func() streams.BucketEntry[schemas.Instance] {
			t.Helper()
			p, err := lifecycle.OpenInstances(b).Get(t.Context(), in.rowKey(Key(call())))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		made := row()
		if v := made.Value; v.Worker != "worker_1" || v.State != schemas.InstanceReady || v.Ref.IsZero() || v.Provider != "fake" {
			t.Errorf("on record: %+v", v)
		}
		for range 100 {
			s, err := in.Acquire(t.Context(), request())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			s.Leave()
		}
		if got := row().Revision; got != made.Revision {
			t.Errorf("the record was written %d times", got-made.Revision)
		}
		stay, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		stay.Leave()
		got := row()
		if wrote := got.Revision - made.Revision; wrote < 5 || wrote > 11 {
			t.Errorf("the record was written %d times in five minutes", wrote)
		}
		if late := b.Now().Sub(got.Value.Used); late > time.Minute {
			t.Errorf("on record it was last used %s ago", late)
		}
	})
}

// The rows of a worker that has ended are removed, and its instances get another owner with the next call.
func TestRecordsOfEndedWorkersGo(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		one, end := owner(t, b, "worker_1")
		two, endTwo := owner(t, b, "worker_2")
		defer endTwo()
		if _, err := one.Acquire(t.Context(), request()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := two.Acquire(t.Context(), request()); !errors.Is(err, ErrElsewhere) {
			t.Fatalf("beside a living owner: %v", err)
		}
		end()
		time.Sleep(time.Minute)
		if p, err := lifecycle.OpenInstances(b).Get(t.Context(), two.rowKey(Key(call()))); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("on record: %+v, %v", p.Value, err)
		}
		if s, err := two.Acquire(t.Context(), request()); err != nil {
			t.Error(err)
		} else {
			s.Leave()
		}
	})
}

// A worker reads a row just before its owner's last write, and stores the row just after the watch reported that write: the worker then
// knows an older row than the bucket has.
func TestTheRowOfAnEndedWorkerGoesThoughItIsKnownByAnOlderRevision(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		one, end := owner(t, b, "worker_1")
		two, endTwo := owner(t, b, "worker_2")
		defer endTwo()
		stay, err := one.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		stay.Leave()
		time.Sleep(time.Minute)
		key := Key(call())
		two.mu.Lock()
		two.held[key].rev--
		two.mu.Unlock()
		end()
		time.Sleep(time.Minute)
		if p, err := lifecycle.OpenInstances(b).Get(t.Context(), two.rowKey(key)); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("on record: %+v, %v", p.Value, err)
		}
	})
}

// The previous version had separate rows of owners. One of a living worker counts, one of a dead worker does not.
func TestOwnersOfTheVersionBeforeCount(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		_, end := owner(t, b, "worker_1")
		two, endTwo := owner(t, b, "worker_2")
		defer endTwo()
		time.Sleep(10 * time.Second)
		type ownerRow struct {
			Worker string `json:"worker"`
		}
		former := streams.OpenBucket[ownerRow](b, streams.Boxes)
		if _, err := former.Put(t.Context(), "owner.fake."+Key(call()), ownerRow{"worker_1"}); err != nil {
			t.Fatal(err)
		}
		if _, err := two.Acquire(t.Context(), request()); !errors.Is(err, ErrElsewhere) {
			t.Errorf("beside a living owner: %v", err)
		}
		end()
		time.Sleep(10 * time.Second)
		if _, err := two.Acquire(t.Context(), request()); !errors.Is(err, ErrElsewhere) {
			t.Errorf("at the first read without its lease: %v", err)
		}
		time.Sleep(leases.Settle)
		if s, err := two.Acquire(t.Context(), request()); err != nil {
			t.Error(err)
		} else {
			s.Leave()
		}
	})
}

// A request for an instance that a worker owns is carried out at once, not at the worker's next check.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestAnOwnerHearsOfAWish(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in, end := owner(t, b, "worker_1")
		defer end()
		stay, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		stay.Leave()
		rows, key := lifecycle.OpenInstances(b), in.rowKey(Key(call()))
		asked := time.Now()
		if _, err := lifecycle.WantInstance(t.Context(), b, key, schemas.WantRemoved); err != nil {
			t.Fatal(err)
		}
		for {
			_, err := rows.Get(t.Context(), key)
			if errors.Is(err, schemas.ErrNotFound) {
				break
			}
			if time.Since(asked) > time.Second { // in virtual time: the next check is up to 15 s later
				t.Fatal("it is still there")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// If several workers reach an instance, it is removed at once after the calls in it were cancelled, although the worker that removes it
// cannot know of another worker's call. Without a cancellation the removal waits until every worker has had time to record its use.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestARemovalAfterCancelledCallsDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		cancelled bool
		soon      bool
	}{"calls cancelled": {true, true}, "nothing is known of calls": {false, false}} {
		t.Run(name, func(t *testing.T) {
			natstest.Run(t, func(t *testing.T, b *streams.Bus) {
				e, s := &engine{}, schemas.Sandbox{}
				one, two := member(b, e, "worker_1", s), member(b, e, "worker_2", s)
				defer run(t, one)()
				defer run(t, two)()
				time.Sleep(time.Minute) // one of them gets the duty
				use(t, one, s)
				key, asked := one.rowKey(Key(call())), time.Now()
				row, err := lifecycle.WantInstance(t.Context(), b, key, schemas.WantRemoved)
				if err == nil && c.cancelled {
					err = lifecycle.RemoveInstanceNow(t.Context(), b, row)
				}
				if err != nil {
					t.Fatal(err)
				}
				for there := 1; there > 0; _, there, _ = e.look() {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(asked); (took < time.Second) != c.soon { // in virtual time
					t.Errorf("removed after %s", took)
				}
				if err := lifecycle.RemoveInstanceNow(t.Context(), b, row); err != nil {
					t.Errorf("an instance that has ended: %v", err)
				}
			})
		})
	}
}

// A request changes the row of an instance while its owner releases it, and the owner knows the change only later: the row is removed
// nevertheless, since its owner would not return to it.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestTheRowOfAReleasedInstanceGoesThoughItWasChangedMeanwhile(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in := idleOwner(t, b, keeps{tied: true})
		stay, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		stay.Leave()
		key := in.rowKey(Key(call()))
		row, err := lifecycle.WantInstance(t.Context(), b, key, schemas.WantRemoved)
		if err != nil {
			t.Fatal(err)
		}
		if h := in.held[Key(call())]; in.reload(t.Context(), Key(call()), h, h.rev) != nil {
			t.Fatal("the request is not known")
		}
		in.reaper.between = func() {
			if err := lifecycle.RemoveInstanceNow(t.Context(), b, row); err != nil {
				t.Error(err)
			}
		}
		if err := in.reaper.end(t.Context(), Key(call()), stay.Ref(), endWanted, nil); err != nil {
			t.Fatal(err)
		}
		if p, err := lifecycle.OpenInstances(b).Get(t.Context(), key); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("on record: %+v, %v", p.Value, err)
		}
	})
}

// idleOwner returns a worker as owner does, but it does not run: no change by others reaches it.
func idleOwner(t *testing.T, b *streams.Bus, p providers.Provider) *Instances {
	t.Helper()
	lease := leases.New(b, leases.Record{Worker: "worker_1"}, nil, nil)
	held, done := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); <-done })
	go func() { defer close(done); lease.Keep(ctx, func() { close(held) }) }()
	<-held
	return New(Options{
		Bus: b, Provider: p, Name: "fake", Records: records{}, Every: 15 * time.Second, Lease: lease,
		WithJobs: func() map[schemas.Ref]bool { return nil },
	})
}

// full is a provider that has no room for a box.
type full struct{ keeps }

func (full) Reserve(context.Context, string, providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{}, schemas.OpErrorf(schemas.Exhausted, "reserve", "no room")
}

// A request changes the row of an instance that could not be created, and its owner does not know the change when it removes the row: the
// next check removes it.
//
//guarantee:a-box-ends-when-nothing-is-in-it-and-at-its-time
func TestTheRowOfAnUnmadeInstanceGoesThoughItWasChangedMeanwhile(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in := idleOwner(t, b, full{keeps{tied: true}})
		if _, err := in.Acquire(t.Context(), request()); !errors.Is(err, schemas.ErrExhausted) {
			t.Fatal(err)
		}
		key := in.rowKey(Key(call()))
		if _, err := lifecycle.WantInstance(t.Context(), b, key, schemas.WantRemoved); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			in.owners.disownUnmade(t.Context())
		}
		if p, err := lifecycle.OpenInstances(b).Get(t.Context(), key); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("on record: %+v, %v", p.Value, err)
		}
	})
}
