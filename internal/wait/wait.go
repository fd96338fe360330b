// Package wait holds the one way to wait for a while, and the one way to wait longer after each failure. What waits
// for something that sends a signal waits for that, on a channel, and needs neither; [Broadcast] is such a signal for many.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep blocks for d and reports true, or false as soon as ctx ends. When ctx has ended already it reports false,
// also where d is zero or less; otherwise such a d returns true at once.
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

// Jitter returns a duration between half of d and d, by chance, so that many that fail together do not come back
// together. It is zero where d is zero or less.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d-d/2+1) // spreading needs no secrecy
}

// Upto returns a duration from zero to d, by chance: the part of one among many that something happens to at the
// same time. It is zero where d is zero or less.
func Upto(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1) // spreading needs no secrecy
}

// Backoff is a wait that doubles with each failure. It has no state: the caller counts, and may share it.
type Backoff struct {
	First time.Duration // after the first failure
	Most  time.Duration // never longer
}

// After returns how long to wait after failure number n, counted from 1, with [Jitter]. A lower n counts as 1.
func (b Backoff) After(n int) time.Duration { return Jitter(b.whole(n)) }

// Sleep waits as [Backoff.After] says, and reports false as soon as ctx ends.
func (b Backoff) Sleep(ctx context.Context, n int) bool { return Sleep(ctx, b.After(n)) }

// whole is the wait after failure number n without chance.
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
