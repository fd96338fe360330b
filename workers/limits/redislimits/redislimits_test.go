package redislimits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sandjet/sandjet/internal/redisconn"
	"github.com/sandjet/sandjet/internal/redistest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/limits/limitstest"
)

const (
	ttl    = time.Hour       // no test waits for its expiry, except one with a TTL of its own
	enough = 2 * time.Minute // timeout for events that must happen, on a loaded machine
)

// open returns a limiter that waits longer for a server on a loaded machine than a worker does.
func open(t testing.TB, s *redistest.Server) *Limiter {
	t.Helper()
	o, err := redisconn.Options(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = enough, enough, enough, enough
	l := New(redis.NewClient(o))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	db := open(t, s).db
	limitstest.Test(t, limitstest.Subject{
		Open: func(tb testing.TB) limits.Limiter {
			tb.Helper()
			if err := db.FlushAll(tb.Context()).Err(); err != nil {
				tb.Fatal(err)
			}
			return open(tb, s)
		},
		Pass: func(tb testing.TB, d time.Duration) { pass(tb, db, d) },
		TTL:  ttl,
	})
}

// pass moves all stored times into the past instead of waiting.
func pass(tb testing.TB, db redis.UniversalClient, d time.Duration) {
	tb.Helper()
	script := redis.NewScript(`
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('TYPE', key).ok == 'zset' then
    for _, holder in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -ARGV[1] * 1000, holder) end
  end
  redis.call('PEXPIRE', key, redis.call('PTTL', key) - ARGV[1])
end
return 1`)
	if err := script.Run(tb.Context(), db, nil, d.Milliseconds()).Err(); err != nil {
		tb.Fatal(err)
	}
}

func TestALeaseEndsByTheServersClockAndLeavesNothing(t *testing.T) {
	t.Parallel()
	l := open(t, redistest.Start(t))
	if _, err := l.Acquire(t.Context(), "a", "x", 1, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	testwait.Eventually(t, "the place is free", func() bool {
		_, err := l.Acquire(t.Context(), "a", "y", 1, 50*time.Millisecond)
		return err == nil
	})
	testwait.Eventually(t, "no key is left", func() bool {
		n, err := l.db.DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

func TestWhatIsReleasedLeavesNothing(t *testing.T) {
	t.Parallel()
	l := open(t, redistest.Start(t))
	var held []limits.Lease
	for i := range 3 {
		held = append(held, acquire(t, l, "a", fmt.Sprint(i), 3))
	}
	if err := l.Release(t.Context(), held...); err != nil {
		t.Fatal(err)
	}
	if kept := l.db.Keys(t.Context(), "*").Val(); len(kept) != 0 {
		t.Fatalf("kept %v", kept)
	}
}

func TestTokensRiseEvenWhenTheServerForgetsAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, s)
	first := acquire(t, l, "a", "x", 1)
	s.Restart()
	second := acquire(t, l, "a", "x", 1)
	if second.Token <= first.Token {
		t.Fatalf("token %d after %d: the older holder could renew what the newer has", second.Token, first.Token)
	}
	lost, err := l.Renew(t.Context(), ttl, first, second)
	if err != nil || len(lost) != 1 || lost[0] != first {
		t.Fatalf("Renew = %v, %v; want the lease of before the restart lost", lost, err)
	}
}

//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestAServerThatIsAwayIsUnavailableAndItsReturnIsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, s)
	var held []limits.Lease
	for i := range 10 {
		held = append(held, acquire(t, l, "a", fmt.Sprint(i), 10))
	}
	s.Kill()
	_, acquired := l.Acquire(t.Context(), "a", "late", 10, ttl)
	_, renewed := l.Renew(t.Context(), ttl, held...)
	for verb, err := range map[string]error{
		"Acquire": acquired, "Renew": renewed, "Release": l.Release(t.Context(), held[0]), "Ping": l.Ping(t.Context()),
	} {
		if !errors.Is(err, schemas.ErrUnavailable) || !strings.Contains(err.Error(), "--redis-url") {
			t.Errorf("%s while the server is away: %v, want an unavailable error with the remedy", verb, err)
		}
	}
	s.Restart()
	testwait.Eventually(t, "the server is found again", func() bool { return l.Ping(t.Context()) == nil })
	lost, err := l.Renew(t.Context(), ttl, held...)
	if err != nil || len(lost) != len(held) {
		t.Fatalf("Renew after the loss = %d lost, %v; want all %d", len(lost), err, len(held))
	}
	for _, lease := range lost { // as a holder does that continues
		acquire(t, l, lease.Key, lease.Holder, 10)
	}
	if _, err := l.Acquire(t.Context(), "a", "eleventh", 10, ttl); !errors.Is(err, schemas.ErrExhausted) {
		t.Fatalf("an eleventh holder: %v, want the count to be rebuilt", err)
	}
}

func TestAFlushOfTheScriptsIsNotNoticed(t *testing.T) {
	t.Parallel()
	l := open(t, redistest.Start(t))
	flush := func() {
		t.Helper()
		if err := l.db.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	x := acquire(t, l, "a", "x", 2)
	flush()
	y := acquire(t, l, "a", "y", 2)
	flush()
	if lost, err := l.Renew(t.Context(), ttl, x, y); err != nil || len(lost) != 0 {
		t.Fatalf("Renew = %v, %v", lost, err)
	}
	flush()
	if err := l.Release(t.Context(), x, y); err != nil {
		t.Fatal(err)
	}
	acquire(t, l, "a", "z", 1)
}

// Many workers race for the slots of a job's sandbox: two clients simulate two processes.
//
//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestTwoProcessesNeverExceedACap(t *testing.T) {
	t.Parallel()
	const most, rounds, racers = 10, 5, 50
	s := redistest.Start(t)
	processes := []*Limiter{open(t, s), open(t, s)}
	for round := range rounds {
		var (
			mu  sync.Mutex
			got []limits.Lease
			all sync.WaitGroup
		)
		for i := range racers {
			all.Go(func() {
				lease, err := processes[i%2].Acquire(t.Context(), "jobs.acme.py.main", fmt.Sprintf("%d.%d", round, i), most, ttl)
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
			t.Fatalf("round %d: %d of %d got a place, want exactly %d", round, len(got), racers, most)
		}
		if _, err := processes[0].Acquire(t.Context(), "jobs.acme.py.main", "eleventh", most, ttl); !errors.Is(err, schemas.ErrExhausted) {
			t.Fatalf("an eleventh: %v", err)
		}
		if err := processes[1].Release(t.Context(), got...); err != nil { // by the other process: leases are plain data
			t.Fatal(err)
		}
	}
}

func TestThousandsOfLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	l := open(t, redistest.Start(t))
	leases := make([]limits.Lease, 0, 2*batch+1)
	for i := range cap(leases) {
		leases = append(leases, acquire(t, l, fmt.Sprint("key", i%7), fmt.Sprint(i), cap(leases)))
	}
	gone := leases[batch+3]
	if err := l.Release(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if lost, err := l.Renew(t.Context(), ttl, leases...); err != nil || len(lost) != 1 || lost[0] != gone {
		t.Fatalf("Renew = %v, %v; want only %v lost", lost, err, gone)
	}
}

func TestAnEndedContextIsItsOwnError(t *testing.T) {
	t.Parallel()
	l := open(t, redistest.Start(t))
	ctx, cancel := context.WithCancel(t.Context())
	x := acquire(t, l, "a", "x", 1)
	cancel()
	_, err := l.Renew(ctx, ttl, x)
	if code := schemas.CodeOf(err); code != schemas.Interrupted {
		t.Errorf("Renew: %v (%s), want interrupted: the server is not to blame", err, code)
	}
}

func TestAServerThatDoesNotAnswerIsNotWaitedForLongerThanAsked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, s)
	x := acquire(t, l, "a", "x", 1)
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Renew(ctx, ttl, x); schemas.CodeOf(err) != schemas.Timeout {
		t.Errorf("Renew: %v, want the caller's timeout", err)
	}
	hasty, err := Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hasty.Close() })
	if _, err := hasty.Acquire(t.Context(), "a", "x", 1, ttl); !errors.Is(err, schemas.ErrUnavailable) { // its own time limit
		t.Errorf("Acquire: %v, want an unavailable error", err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"redis://localhost:6379/0", "redis://u:p@h/3", "rediss://h:6380", "unix:///run/redis.sock"} {
		l, err := Open(good)
		if err != nil {
			t.Errorf("Open(%q): %v", good, err)
			continue
		}
		_ = l.Close()
	}
	for _, bad := range []string{"", "localhost:6379", "http://h", "redis://:hush@h:port", "redis://u:hush@h/x", "\x00hush"} {
		_, err := Open(bad)
		if !errors.Is(err, schemas.ErrInvalid) || strings.Contains(fmt.Sprint(err), "hush") {
			t.Errorf("Open(%q): %v, want an invalid error without the password", bad, err)
		}
	}
}

func acquire(t testing.TB, l *Limiter, key, holder string, most int) limits.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, holder, most, ttl)
	if err != nil {
		t.Fatalf("Acquire(%s, %s): %v", key, holder, err)
	}
	return lease
}
