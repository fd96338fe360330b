package sandboxes

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// of returns a request of an account for its nth sandbox.
func of(account schemas.AccountID, n int) Request {
	q := request()
	q.Call.Account, q.Call.Sandbox = account, schemas.SandboxID(fmt.Sprint("sb_", n))
	q.Sandbox.ID, q.Sandbox.Account = q.Call.Sandbox, account
	return q
}

// An account has at most the maximal number of live instances, over all workers, also new ones. Existing instances can be entered, paused
// and ended ones do not count, and other accounts are not affected.
//
//guarantee:bounds
func TestAnAccountHasSoManyInstances(t *testing.T) {
	natstest.Run(t, func(t *testing.T, bus *streams.Bus) {
		e := &engine{boxes: map[string]*box{}}
		one := member(bus, e, "worker_1", schemas.Sandbox{})
		one.AccountMost = 2
		enter := func(in *Instances, q Request) error {
			stay, err := in.Acquire(t.Context(), q)
			stay.Leave()
			return err
		}
		if err := enter(one, of("acct_1", 1)); schemas.CodeOf(err) != schemas.Unavailable {
			t.Errorf("before anything was read: %v", err)
		}
		defer run(t, one)()
		time.Sleep(5 * time.Second)
		for n := range 2 {
			if err := enter(one, of("acct_1", n)); err != nil {
				t.Fatal(err)
			}
		}
		two := member(bus, e, "worker_2", schemas.Sandbox{})
		two.AccountMost = 2
		defer run(t, two)()
		time.Sleep(5 * time.Second)
		for name, in := range map[string]*Instances{"the worker": one, "another worker": two} {
			err := enter(in, of("acct_1", 2))
			if !errors.Is(err, schemas.ErrExhausted) || !strings.Contains(err.Error(), "--account-sandboxes") {
				t.Errorf("%s: a third one: %v", name, err)
			}
			if err := errors.Join(enter(in, of("acct_1", 0)), enter(in, of("acct_1", 1)), enter(in, of("acct_11", 0))); err != nil {
				t.Errorf("%s: those that are there, and of another account: %v", name, err)
			}
		}
		time.Sleep(schemas.DefaultIdleTimeout + time.Hour) // idle instances are paused
		if paused, there, _ := e.look(); paused != there {
			t.Fatalf("%d of %d are paused", paused, there)
		}
		if err := enter(one, of("acct_1", 2)); err != nil {
			t.Errorf("others are paused: %v", err)
		}
	})
}

// Many calls for different instances of one account arrive at one worker at once: it creates no more than the limit.
//
//guarantee:bounds
func TestInstancesAreNotMadeBesideTheLimit(t *testing.T) {
	natstest.Run(t, func(t *testing.T, bus *streams.Bus) {
		in := member(bus, &engine{boxes: map[string]*box{}}, "worker_1", schemas.Sandbox{})
		in.AccountMost = 3
		defer run(t, in)()
		time.Sleep(5 * time.Second)
		var mu sync.Mutex
		entered, refused := 0, 0
		var all sync.WaitGroup
		for n := range 30 {
			all.Go(func() {
				stay, err := in.Acquire(t.Context(), of("acct_1", n))
				defer stay.Leave()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					entered++
				case errors.Is(err, schemas.ErrExhausted):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if entered != in.AccountMost || refused != 30-in.AccountMost {
			t.Errorf("%d entered, %d were refused", entered, refused)
		}
	})
}
