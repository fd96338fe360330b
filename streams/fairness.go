package streams

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// fairness lets a consumer take turns between accounts. The log hands messages out in one order, whoever
// they are of. As long as one account alone has some waiting, that is their order. When others have too, the
// account has a share of the consumer's places, what is above goes back with a delay, and the next message
// is looked at: so others are found behind any number of messages. It is safe for concurrent use.
type fairness struct {
	places int // messages that the consumer has, in hand or waiting for a slot
	turns  *turns[turn]

	mu        sync.Mutex
	contested bool // more than one account has messages waiting
	accounts  map[schemas.AccountID]*inTurn
}

// turn is a message that waits for its slot: exactly one of its functions is called.
type turn struct{ begin, drop func() }

// inTurn is what a consumer knows of one account.
type inTurn struct {
	held  int
	back  int           // handed back and not seen again
	took  time.Duration // between two ends of its messages, about
	ended time.Time     // of the last one
}

const (
	placesOfASlot = 3                      // messages that wait for a slot hide the way of the next ones
	backStep      = 50 * time.Millisecond  // what is handed back comes again in steps: the server looks through all of it each time
	backMost      = 30 * time.Second       //
	backFirst     = time.Millisecond       // between two ends, as long as nothing is known
	askEvery      = 200 * time.Millisecond // whether others wait, while one account has all that it may
)

func newFairness(slots int) *fairness {
	f := &fairness{places: slots * placesOfASlot, accounts: map[schemas.AccountID]*inTurn{}}
	f.turns = newTurns[turn](Shares{Slots: slots, Waiting: f.places, WaitingBytes: f.places * (maxPayload + costOfOneRequest)})
	f.turns.narrow(false)
	return f
}

// share is how many of the places one account may have while others want some.
func (f *fairness) share() int { return max(f.places-f.places/shareOfSlots, 1) }

// take has begin called when it is the message's turn, with what gives its place back; or drop, when no turn
// comes any more. Without a place it
// reports false, and the message should come again after the time that is returned. Seen says that it was
// handed out before.
func (f *fairness) take(a schemas.AccountID, size int, seen bool, now time.Time, begin func(release func()), drop func()) (again time.Duration, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.accounts[a]
	if t == nil {
		f.forget()
		t = &inTurn{took: backFirst}
		f.accounts[a] = t
	}
	if seen {
		t.back = max(t.back-1, 0)
	}
	if f.contested && t.held >= f.share() {
		t.back++
		return untilNext(now, min(time.Duration(t.held+t.back)*t.took, backMost)), false
	}
	release := sync.OnceFunc(func() { f.release(t, time.Now()) })
	if err := f.turns.offer(a, size, turn{func() { begin(release) }, drop}, now); err != nil { // it is larger than all that may wait
		t.back++
		return untilNext(now, time.Second), false
	}
	t.held++
	return 0, true
}

// untilNext is the time from now to the first step that is at least d away.
func untilNext(now time.Time, d time.Duration) time.Duration {
	return now.Add(d).Truncate(backStep).Add(backStep).Sub(now)
}

func (f *fairness) release(t *inTurn, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// How fast places become free is seen while there is enough to do, not while messages are on their way back.
	if busy := t.held >= f.turns.shares.Slots; !busy {
		t.ended = time.Time{}
	} else {
		const weight = 8
		if !t.ended.IsZero() {
			t.took = min(max(t.took+(now.Sub(t.ended)-t.took)/weight, time.Microsecond), backStep)
		}
		t.ended = now
	}
	t.held--
}

// forget drops accounts of which nothing is here: what was handed back may have gone to another process.
func (f *fairness) forget() {
	if len(f.accounts) < mostPacedAccounts {
		return
	}
	for a, t := range f.accounts {
		if t.held == 0 {
			delete(f.accounts, a)
		}
	}
}

// saturated reports whether an account has all of the places that it may have beside others.
func (f *fairness) saturated() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.accounts {
		if t.held >= f.share() {
			return true
		}
	}
	return false
}

func (f *fairness) contest(yes bool) {
	f.mu.Lock()
	f.contested = yes
	f.mu.Unlock()
	f.turns.narrow(yes)
}

// run starts messages turn by turn, and finds out whether more than one account waits, until ctx ends. What
// waits then is dropped: it comes again.
func (f *fairness) run(ctx context.Context, b *Bus, stream string) {
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		for pause(ctx, askEvery) {
			if !f.saturated() {
				f.contest(false)
				continue
			}
			n, err := b.subjectsOf(ctx, stream)
			f.contest(err != nil || n > 1)
		}
	})
	f.turns.run(ctx, func(t turn, done func()) {
		go func() {
			defer done()
			t.begin()
		}()
	}, func(t turn, _ error) { t.drop() })
}

// subjectsOf is how many subjects of a stream have messages.
func (b *Bus) subjectsOf(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, stream)
	if err != nil {
		return 0, coded("look at the stream "+stream, err)
	}
	return s.CachedInfo().State.NumSubjects, nil
}
