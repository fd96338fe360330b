// Package limitstest is the test suite that every limits.Limiter must pass.
package limitstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
)

// Subject describes the implementation under test.
type Subject struct {
	// Open returns a fresh limiter without holders.
	Open func(tb testing.TB) limits.Limiter
	// Bubble runs f with a clock by which leases expire: synctest.Test for an implementation in memory. Nil: f runs with the real clock.
	Bubble func(t *testing.T, f func(t *testing.T))
	// Pass lets time pass. Nil: it sleeps.
	Pass func(tb testing.TB, d time.Duration)
	// TTL is the duration of the suite's leases. It must be long enough for a round of calls; tests of the expiry wait for it.
	TTL time.Duration
}

// Test runs the suite.
func Test(t *testing.T, s Subject) {
	t.Helper()
	if s.Bubble == nil {
		s.Bubble = func(t *testing.T, f func(*testing.T)) { t.Helper(); f(t) }
	}
	if s.Pass == nil {
		s.Pass = func(_ testing.TB, d time.Duration) { time.Sleep(d) } // virtual time in a bubble
	}
	for name, f := range map[string]func(*testing.T, limits.Limiter, time.Duration){
		"places are bounded":                       bounded,
		"keys are apart":                           apart,
		"release makes room":                       releaseMakesRoom,
		"a lease ends by itself":                   s.endsByItself,
		"renewal keeps a lease":                    s.renewalKeeps,
		"an ended lease is lost":                   s.endedIsLost,
		"the same holder takes its own place":      sameHolder,
		"an older token is void":                   olderTokenIsVoid,
		"releasing twice harms nobody":             releaseTwice,
		"a cap that shrank lets nobody in":         shrunkCap,
		"nonsense is refused":                      nonsense,
		"an ended context takes no place":          endedContext,
		"racing holders never exceed the cap":      racing,
		"tokens of a key rise":                     tokensRise,
		"renewing nothing and releasing nothing":   nothing,
		"a lost lease is told apart from the held": mixedRenewal,
	} {
		t.Run(name, func(t *testing.T) {
			s.Bubble(t, func(t *testing.T) {
				t.Helper()
				f(t, s.Open(t), s.TTL)
			})
		})
	}
}

func bounded(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	for i := range 3 {
		must(t)(l.Acquire(t.Context(), "a", fmt.Sprint(i), 3, ttl))
	}
	full(t, l, "fourth", 3, ttl)
}

func apart(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	must(t)(l.Acquire(t.Context(), "b", "x", 1, ttl))
	full(t, l, "y", 1, ttl)
}

func releaseMakesRoom(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	full(t, l, "y", 1, ttl)
	release(t, l, x)
	must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
}

func (s Subject) endsByItself(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	full(t, l, "y", 1, ttl)
	s.Pass(t, ttl+ttl/10)
	must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
}

func (s Subject) renewalKeeps(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	for range 4 {
		s.Pass(t, ttl/2)
		if lost := renew(t, l, ttl, x); len(lost) != 0 {
			t.Fatalf("lost %v: it was renewed in time", lost)
		}
	}
	full(t, l, "y", 1, ttl)
}

func (s Subject) endedIsLost(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	s.Pass(t, ttl+ttl/10)
	if lost := renew(t, l, ttl, x); len(lost) != 1 || lost[0] != x {
		t.Fatalf("lost %v, want the ended lease", lost)
	}
	must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
}

func sameHolder(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	first := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	second := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	if second.Token <= first.Token {
		t.Fatalf("token %d after %d, want a higher one", second.Token, first.Token)
	}
}

func olderTokenIsVoid(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	first := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	second := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	if lost := renew(t, l, ttl, first, second); len(lost) != 1 || lost[0] != first {
		t.Fatalf("lost %v, want the older lease only", lost)
	}
	release(t, l, first)
	full(t, l, "y", 1, ttl)
	release(t, l, second)
	must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
}

func releaseTwice(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 1, ttl))
	release(t, l, x)
	y := must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
	release(t, l, x)
	full(t, l, "z", 1, ttl)
	release(t, l, y, y)
	must(t)(l.Acquire(t.Context(), "a", "z", 1, ttl))
}

func shrunkCap(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 3, ttl))
	must(t)(l.Acquire(t.Context(), "a", "y", 3, ttl))
	must(t)(l.Acquire(t.Context(), "a", "z", 3, ttl))
	full(t, l, "w", 2, ttl)
	release(t, l, x)
	full(t, l, "w", 2, ttl)
}

func nonsense(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	for _, c := range []struct {
		most int
		ttl  time.Duration
	}{{0, ttl}, {-1, ttl}, {1, 0}, {1, -ttl}} {
		if _, err := l.Acquire(t.Context(), "a", "x", c.most, c.ttl); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("Acquire with %d places for %v: %v, want an invalid error", c.most, c.ttl, err)
		}
	}
}

func endedContext(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Acquire(ctx, "a", "x", 1, ttl); err == nil {
		t.Fatal("Acquire on an ended context succeeded")
	}
	must(t)(l.Acquire(t.Context(), "a", "y", 1, ttl))
}

func racing(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	const most, holders = 5, 50
	var (
		mu  sync.Mutex
		got []limits.Lease
		all sync.WaitGroup
	)
	for i := range holders {
		all.Go(func() {
			lease, err := l.Acquire(t.Context(), "a", fmt.Sprint(i), most, ttl)
			switch {
			case err == nil:
				mu.Lock()
				got = append(got, lease)
				mu.Unlock()
			case !errors.Is(err, schemas.ErrExhausted):
				t.Errorf("Acquire: %v", err)
			}
		})
	}
	all.Wait()
	if len(got) != most {
		t.Fatalf("%d of %d holders got a place, want exactly %d", len(got), holders, most)
	}
	release(t, l, got...)
	must(t)(l.Acquire(t.Context(), "a", "later", 1, ttl))
}

func tokensRise(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	var last uint64
	for i := range 5 {
		lease := must(t)(l.Acquire(t.Context(), "a", fmt.Sprint(i), 1, ttl))
		if lease.Token <= last {
			t.Fatalf("token %d after %d, want a higher one", lease.Token, last)
		}
		last = lease.Token
		release(t, l, lease)
	}
}

func nothing(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	if lost := renew(t, l, ttl); len(lost) != 0 {
		t.Fatalf("lost %v of no leases", lost)
	}
	release(t, l)
}

func mixedRenewal(t *testing.T, l limits.Limiter, ttl time.Duration) {
	t.Helper()
	x := must(t)(l.Acquire(t.Context(), "a", "x", 2, ttl))
	y := must(t)(l.Acquire(t.Context(), "b", "y", 2, ttl))
	release(t, l, x)
	if lost := renew(t, l, ttl, x, y); len(lost) != 1 || lost[0] != x {
		t.Fatalf("lost %v, want only what was released", lost)
	}
}

func must(t *testing.T) func(limits.Lease, error) limits.Lease {
	t.Helper()
	return func(l limits.Lease, err error) limits.Lease {
		t.Helper()
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		return l
	}
}

// full fails the test unless all slots of the key a are occupied.
func full(t *testing.T, l limits.Limiter, holder string, most int, ttl time.Duration) {
	t.Helper()
	if got, err := l.Acquire(t.Context(), "a", holder, most, ttl); !errors.Is(err, schemas.ErrExhausted) {
		t.Fatalf("Acquire(%s) = %v, %v; want an exhausted error", holder, got, err)
	}
}

func renew(t *testing.T, l limits.Limiter, ttl time.Duration, leases ...limits.Lease) []limits.Lease {
	t.Helper()
	lost, err := l.Renew(t.Context(), ttl, leases...)
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	return lost
}

func release(t *testing.T, l limits.Limiter, leases ...limits.Lease) {
	t.Helper()
	if err := l.Release(t.Context(), leases...); err != nil {
		t.Fatalf("Release: %v", err)
	}
}
