package sandboxes

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// Enter finds a live instance without a call, and prevents the instance's end as a call does.
func TestWhatEntersAnInstanceKeepsIt(t *testing.T) {
	natstest.Hours(t)
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in, end := owner(t, b, "worker_1")
		defer end()
		other, endOther := owner(t, b, "worker_2")
		defer endOther()
		c := call()
		enter := func(by *Instances, what string, want bool) *Stay {
			t.Helper()
			s, ok := by.Enter(t.Context(), c.Account, c.Workspace)
			if ok != want {
				t.Fatalf("%s: entered is %v", what, ok)
			}
			return s
		}
		enter(in, "before there is one", false)
		made, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		made.Leave()
		s := enter(in, "a live one", true)
		if s.Ref() != made.Ref() || s.Sandbox() != c.Sandbox {
			t.Errorf("entered %v of %s", s.Ref(), s.Sandbox())
		}
		if _, ok := in.Enter(t.Context(), "acct_another", c.Workspace); ok {
			t.Error("another account entered")
		}
		time.Sleep(2 * schemas.DefaultIdleTimeout)
		enter(other, "another worker's", false)
		if p, err := lifecycle.OpenInstances(b).Get(t.Context(), in.rowKey(Key(c))); err != nil || p.Value.Ref != made.Ref() {
			t.Errorf("it ended while something was in it: %+v, %v", p.Value, err)
		}
		s.Leave()
		time.Sleep(2 * schemas.DefaultIdleTimeout)
		enter(in, "once it has ended", false)
	})
}

// If any worker can reach an instance, Enter uses its current record, and the instance is in use for the other workers too.
func TestAnInstanceOfAllIsEnteredAsItIs(t *testing.T) {
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		in := New(Options{
			Bus: b, Provider: keeps{}, Name: "fake", Records: records{}, Every: time.Minute,
			Lease: leases.New(b, leases.Record{Worker: "worker_1"}, nil, nil), WithJobs: func() map[schemas.Ref]bool { return nil },
		})
		c, key := call(), in.rowKey(Key(call()))
		made, err := in.Acquire(t.Context(), request())
		if err != nil {
			t.Fatal(err)
		}
		made.Leave()
		time.Sleep(usedFresh)
		began := in.Bus.Now()
		s, ok := in.Enter(t.Context(), c.Account, c.Workspace)
		if !ok {
			t.Fatal("not entered")
		}
		p, err := lifecycle.OpenInstances(in.Bus).Get(t.Context(), key)
		if err != nil || p.Value.Used.Before(began) {
			t.Errorf("on record it was last used at %v, %v", p.Value.Used, err)
		}
		s.Leave()
		row := p.Value
		if err := lifecycle.PauseInstance(&row, in.Bus.Now()); err != nil { // by another worker
			t.Fatal(err)
		}
		if _, err := lifecycle.OpenInstances(in.Bus).Update(t.Context(), key, row, p.Revision); err != nil {
			t.Fatal(err)
		}
		if _, ok := in.Enter(t.Context(), c.Account, c.Workspace); ok {
			t.Error("entered while it is being paused")
		}
	})
}
