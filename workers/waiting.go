package workers

import (
	"errors"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

const (
	// A call above a cap that this worker has requeued costs it some 0.1 ms when it comes again. So many come again
	// in a second at most, of one account and of all, whatever their number: what is left of the time is for others,
	// whose new calls the log hands out behind those.
	accountReturns = 200
	allReturns     = 500
	longestAway    = time.Minute
	// cautious is of how many calls a second that wait for a slot the conversation is read although they cannot be run yet: those of
	// which this worker does not know whether another has started them.
	cautious   = 10
	maxWaiting = 50_000         // calls that are remembered: some 10 MB
	maxOfOne   = maxWaiting / 4 // of one account
)

// waitingCalls remembers the calls that this worker has requeued for want of a slot. Nothing was started of them, so when
// one comes again that no other worker had, its conversation need not be read.
type waitingCalls struct {
	mu    sync.Mutex
	calls map[string]waiter // by the call's EventID
	of    map[schemas.AccountID]int
	swept clock.Reading
	looks clock.Reading // when the last second of looks began
	spent int           // of it
}

type waiter struct {
	account schemas.AccountID
	attempt int               // of the delivery that was requeued
	sure    streams.Certainty // since when this worker has missed nothing
	until   clock.Reading     // when it was requeued
	away    time.Duration
}

func newWaitingCalls() *waitingCalls {
	return &waitingCalls{calls: map[string]waiter{}, of: map[schemas.AccountID]int{}}
}

// add remembers a call and returns how long it is to stay away. Known says that nothing of it was started as far
// as sure goes; else it is counted only.
func (w *waitingCalls) add(c schemas.Call, attempt int, sure streams.Certainty, known bool) time.Duration {
	now := clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(now)
	id := c.EventID()
	if !known {
		attempt = -1 // no delivery follows it
	} else {
		attempt = max(attempt, 1)
	}
	old, there := w.calls[id]
	if !there && len(w.calls) < maxWaiting && w.of[c.Account] < maxOfOne {
		w.of[c.Account]++
		there = true
	}
	away := delayFor(max(attempt, old.attempt), w.of[c.Account], len(w.calls))
	if there {
		w.calls[id] = waiter{account: c.Account, attempt: attempt, sure: sure, until: now, away: away}
	}
	return wait.Jitter(away)
}

// resumed returns since when this worker has missed nothing about a call that came again, if it was the last to have the call.
func (w *waitingCalls) resumed(id string, attempt int) (streams.Certainty, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.calls[id]
	return c.sure, ok && c.attempt+1 == attempt
}

// forget lets go of a call that waits no more.
func (w *waitingCalls) forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(id)
}

func (w *waitingCalls) drop(id string) {
	c, ok := w.calls[id]
	if !ok {
		return
	}
	delete(w.calls, id)
	if w.of[c.account]--; w.of[c.account] <= 0 {
		delete(w.of, c.account)
	}
}

// sweep lets go of calls that did not come again: another worker has them.
func (w *waitingCalls) sweep(now clock.Reading) {
	if now.Sub(w.swept) < longestAway {
		return
	}
	w.swept = now
	for id, c := range w.calls {
		if now.Sub(c.until) > c.away+longestAway {
			w.drop(id)
		}
	}
}

// mayRead reports whether one more conversation may be read in this second, of a call that could not be run now anyway.
func (w *waitingCalls) mayRead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := clock.Now(); now.Sub(w.looks) >= time.Second {
		w.looks, w.spent = now, 0
	}
	w.spent++
	return w.spent <= cautious
}

// delayFor is how long a call above a cap stays away: longer each time, and the longer the more calls of its account, and
// of all, wait here.
func delayFor(attempt, mine, all int) time.Duration {
	const first, longest = 250 * time.Millisecond, 4 * time.Second
	d := min(first<<min(max(attempt, 1)-1, 4), longest)
	d = max(d, time.Duration(mine)*time.Second/accountReturns, time.Duration(all)*time.Second/allReturns)
	return min(d, longestAway)
}

// retryDelay is how long a call stays away that cannot be looked up or prepared now: longer each time.
func retryDelay(attempt int) time.Duration {
	const doubled, longest = 5, 30 * time.Second
	d := min(retrySoon<<min(max(attempt, 1)/2, doubled), longest)
	return wait.Jitter(d)
}

// mostServiceWait is how long a call stays away at most because a service has asked for it: its word may be of a limit that others share.
const mostServiceWait = time.Minute

// prepareDelay is how long a call stays away that could not be prepared: shortly when it has only come to the wrong worker, and no shorter than
// its service asks for.
func prepareDelay(err error, attempt int) time.Duration {
	if errors.Is(err, errStuck) {
		return stuckPause
	}
	if !errors.Is(err, sandboxes.ErrElsewhere) {
		return max(retryDelay(attempt), min(schemas.RetryAfterOf(err), mostServiceWait))
	}
	base := min(10*time.Millisecond<<min(attempt, 8), 2*time.Second)
	return wait.Jitter(base)
}
