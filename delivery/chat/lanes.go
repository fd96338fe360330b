package chat

import (
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// sendsAtMost is the maximal number of deliveries in flight. A single account may use all but one in sharesOf of them.
	sendsAtMost = delivery.DefaultSlots - delivery.DefaultSlots/4
	sharesOf    = 4

	// slowAfter is the duration of a request from which on its chat counts as slow. slowAtMost limits the deliveries in flight to all slow
	// chats together, slowOfAccount those to the slow chats of one account, so that the rest is left to other chats.
	slowAfter                 = 5 * time.Second
	slowAtMost, slowOfAccount = sendsAtMost / 4, sendsAtMost / 8

	laneKept = 2 * time.Hour
)

// lanes serializes deliveries per chat, so that the parts of one are not mixed with others, and sends nothing to a chat whose service has
// asked for a pause. Safe for concurrent use.
type lanes struct {
	mu       sync.Mutex
	all      map[Place]*lane
	inFlight map[schemas.AccountID]int
	total    int
	slow     map[schemas.AccountID]int // in flight to slow chats
	slows    int                       // sum of slow over all accounts
	swept    time.Time
}

type lane struct {
	busy   bool
	slow   bool      // its latest request was slow
	counts bool      // the delivery in flight counts as slow
	paused time.Time // nothing is sent before
	used   time.Time
}

func newLanes() *lanes {
	return &lanes{all: map[Place]*lane{}, inFlight: map[schemas.AccountID]int{}, slow: map[schemas.AccountID]int{}}
}

// enter occupies the lane of a place until leave. It returns false if that is not possible now, with a verdict that says why.
func (l *lanes) enter(a schemas.AccountID, p Place) (v delivery.Verdict, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(now)
	whole, here := l.lane(Place{Channel: p.Channel}, now), l.lane(p, now)
	if wait := max(whole.paused.Sub(now), here.paused.Sub(now)); wait > 0 {
		return delivery.Verdict{Kind: delivery.Held, After: wait, Reason: rests(wait)}, false
	}
	if here.busy || l.total >= sendsAtMost || l.inFlight[a] >= sendsAtMost-sendsAtMost/sharesOf {
		return delivery.Verdict{Kind: delivery.Busy}, false
	}
	if here.slow && (l.slows >= slowAtMost || l.slow[a] >= slowOfAccount) {
		return delivery.Verdict{Kind: delivery.Busy}, false
	}
	if here.counts = here.slow; here.counts {
		l.slows++
		l.slow[a]++
	}
	here.busy = true
	l.total++
	l.inFlight[a]++
	return delivery.Verdict{}, true
}

func (l *lanes) leave(a schemas.AccountID, p Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	here := l.lane(p, time.Now())
	here.busy = false
	l.total--
	if here.counts {
		l.slows--
		if l.slow[a]--; l.slow[a] == 0 {
			delete(l.slow, a)
		}
	}
	if l.inFlight[a]--; l.inFlight[a] == 0 {
		delete(l.inFlight, a)
	}
}

// resting returns how long a place is still paused: the service may have asked for a pause after an earlier part of the same delivery.
func (l *lanes) resting(p Place) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return max(0, l.lane(Place{Channel: p.Channel}, now).paused.Sub(now), l.lane(p, now).paused.Sub(now))
}

// took records whether a request to a place was slow.
func (l *lanes) took(p Place, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lane(p, time.Now()).slow = d >= slowAfter
}

// pause pauses a place for a time.
func (l *lanes) pause(p Place, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if x := l.lane(p, now); now.Add(wait).After(x.paused) {
		x.paused = now.Add(wait)
	}
}

func (l *lanes) lane(p Place, now time.Time) *lane {
	x := l.all[p]
	if x == nil {
		x = &lane{}
		l.all[p] = x
	}
	x.used = now
	return x
}

// sweep removes lanes that were not used for long.
func (l *lanes) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for p, x := range l.all {
		if !x.busy && now.Sub(x.used) > laneKept && now.After(x.paused) {
			delete(l.all, p)
		}
	}
}

// rests describes why a place is paused, for an error message.
func rests(wait time.Duration) string {
	return "the chat, or the whole channel, takes nothing more for " + max(wait, time.Second).Round(time.Second).String() +
		": its service has said so, or as many messages as it allows were sent just now"
}
