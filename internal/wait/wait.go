// Package wait has the functions for waiting a certain time, also with a backoff after failures. Code that can wait for a signal on a
// channel needs neither; [Broadcast] is such a signal for many waiters.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep blocks for d and returns true, or returns false as soon as ctx ends. If ctx has ended already it returns false, even if d is zero
// or less; otherwise such a d makes it return true at once.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Jitter returns a random duration between half of d and d, so that many processes that fail together do not retry together. It returns
// zero if d is zero or less.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d-d/2+1) // need not be cryptographically secure
}

// Upto returns a random duration from zero to d, which spreads many waits that begin at the same time. It returns zero if d is zero or
// less.
func Upto(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1) // need not be cryptographically secure
}

// Backoff is a wait that doubles with each failure. It has no state, so that it may be shared: the caller counts the failures.
type Backoff struct {
	First time.Duration // after the first failure
	Most  time.Duration // maximum
}

// After returns how long to wait after failure number n, counted from 1, with [Jitter]. A smaller n counts as 1.
func (b Backoff) After(n int) time.Duration { return Jitter(b.whole(n)) }

// Sleep waits for [Backoff.After], and returns false as soon as ctx ends.
func (b Backoff) Sleep(ctx context.Context, n int) bool { return Sleep(ctx, b.After(n)) }

// whole returns the wait after failure number n, without jitter.
func (b Backoff) whole(n int) time.Duration {
	d := max(b.First, 1)
	for ; n > 1 && d < b.Most; n-- {
		if d > b.Most/2 {
			return b.Most
		}
		d *= 2
	}
	return min(d, b.Most)
}
