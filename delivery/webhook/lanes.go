package webhook

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery"
	"github.com/sandjet/sandjet/schemas"
)

// Bounds of a [Sender]'s lanes. Suspects and waiters together are fewer than the slots of a deliverer, so
// that endpoints that answer promptly always find a place, however many do not.
const (
	suspectsAtMost = delivery.DefaultSlots / 2 // tries under way to endpoints that are not known to be prompt
	waitersAtMost  = delivery.DefaultSlots / 4 // deliveries that wait for a try before theirs to end
	shareOfPlaces  = 4                         // one account leaves the fourth part of both to others

	commonLane  = 4 // tries at once to an endpoint, unless it says otherwise
	suspectLane = 2 // while its last try was not answered, or there was none yet
	prompt      = 3 * time.Second
	laneKept    = 10 * time.Minute // after its last use, and after the end of its rest
	// lanesAtMost are kept of one account: twice as many as it has endpoints, whatever was removed. The one that is idle for longest goes.
	lanesAtMost = 2 * schemas.MaxEndpoints
)

// laneKey identifies an endpoint.
type laneKey struct {
	account  schemas.AccountID
	endpoint schemas.EndpointID
}

// receiver is a hash of an endpoint's URL. If the URL changes, what is known about the endpoint no longer applies.
type receiver [sha256.Size]byte

func receiverOf(url string) receiver { return sha256.Sum256([]byte(url)) }

// trust is how long the next try of an endpoint will probably take, by the last one.
type trust int

const (
	suspect trust = iota // it was not answered, or there was none yet
	slow
	trusted // it was answered promptly
)

// lane is this process's state of an endpoint.
type lane struct {
	account  schemas.AccountID
	receiver receiver
	breaker  breaker
	trust    trust
	most     int // tries at once
	inFlight int
	waiting  []chan bool // each gets one answer: it may go, or not
	used     time.Time
}

// room returns how many concurrent tries the lane allows now.
func (p *lane) room() int {
	switch p.trust {
	case suspect:
		return min(p.most, suspectLane)
	case slow:
		return min(p.most, commonLane)
	case trusted:
	}
	return p.most
}

// lanes limits the concurrent tries per endpoint, so that slow endpoints do not delay others. Safe for concurrent use.
type lanes struct {
	mu       sync.Mutex
	all      map[schemas.AccountID]map[schemas.EndpointID]*lane
	suspects places // tries under way in lanes that are not trusted
	waiters  places
	swept    time.Time
}

func newLanes() *lanes {
	return &lanes{all: map[schemas.AccountID]map[schemas.EndpointID]*lane{}, suspects: newPlaces(suspectsAtMost), waiters: newPlaces(waitersAtMost)}
}

// places counts slots, for all accounts together and for each, so that one account cannot occupy them all.
type places struct {
	most, all int
	of        map[schemas.AccountID]int
}

func newPlaces(most int) places { return places{most: most, of: map[schemas.AccountID]int{}} }

// left returns how many slots an account may still occupy.
func (p *places) left(a schemas.AccountID) int {
	return min(p.most-p.all, p.most-p.most/shareOfPlaces-p.of[a])
}

// add adds n slots of an account; n may be negative.
func (p *places) add(a schemas.AccountID, n int) {
	p.all += n
	if p.of[a] += n; p.of[a] == 0 {
		delete(p.of, a)
	}
}

// enter occupies a slot in an endpoint's lane until leave, and waits for one if that is likely to be short. If it returns a nil lane there
// is no slot: the verdict says whether the endpoint is busy or held, and for how long.
func (l *lanes) enter(ctx context.Context, key laneKey, to receiver, most int) (*lane, delivery.Verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.sweep(now)
	p := l.find(key)
	if p == nil || p.receiver != to { // what is under way to the former receiver ends in the former lane
		if p = l.begun(key, to); p == nil {
			return nil, delivery.Verdict{Kind: delivery.Busy}
		}
	}
	p.used, p.most = now, most
	if wait, ok := p.breaker.allow(now); !ok {
		return nil, delivery.Verdict{Kind: delivery.Held, After: wait}
	}
	open := p.trust == trusted || l.suspects.left(key.account) > 0
	switch {
	case open && p.inFlight < p.room() && len(p.waiting) == 0:
		l.begin(p)
		return p, delivery.Verdict{}
	case !p.breaker.closed(now): // it was let through as the probe, and cannot be
		p.breaker.forget()
	case p.trust == trusted && len(p.waiting) < l.waiters.left(key.account) && l.wait(ctx, p): // as many as are left to others
		return p, delivery.Verdict{}
	}
	return nil, delivery.Verdict{Kind: delivery.Busy}
}

// wait waits for a slot and reports whether it got one. The lock is held when it is called and when it returns.
func (l *lanes) wait(ctx context.Context, p *lane) bool {
	answer := make(chan bool, 1)
	p.waiting = append(p.waiting, answer)
	l.waiters.add(p.account, 1)
	l.mu.Unlock()
	select {
	case ok := <-answer:
		l.mu.Lock()
		return ok
	case <-ctx.Done():
	}
	l.mu.Lock()
	if i := slices.Index(p.waiting, answer); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		l.waiters.add(p.account, -1)
		return false
	}
	return <-answer // it was answered at the same moment
}

// outcome is the result of a try for its lane.
type outcome int

const (
	accepted   outcome = iota // the endpoint is well
	refused                   // it answers, but does not take the delivery
	unanswered                // it did not answer
	unknown                   // the try was broken off by us, or never made
)

// leave ends a try, which took that long. A pause above zero is one that the receiver asked for.
func (l *lanes) leave(p *lane, o outcome, took, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	p.used = now
	p.inFlight--
	if p.trust != trusted {
		l.suspects.add(p.account, -1)
	}
	if o == unknown {
		p.breaker.forget()
	} else {
		p.breaker.record(now, o == accepted)
		l.judge(p, trustAfter(o, took))
	}
	if pause > 0 {
		p.breaker.pause(now.Add(min(pause, lastRest)))
	}
	free := p.trust == trusted && p.breaker.closed(now)
	for len(p.waiting) > 0 && (!free || p.inFlight < p.most) {
		p.waiting[0] <- free
		p.waiting = p.waiting[1:]
		l.waiters.add(p.account, -1)
		if free {
			l.begin(p)
		}
	}
}

func (l *lanes) begin(p *lane) {
	p.inFlight++
	if p.trust != trusted {
		l.suspects.add(p.account, 1)
	}
}

// trustAfter returns the trust after a try. It depends on the time for which slots are occupied, not on success: prompt refusals occupy
// none for long, and the breaker handles them.
func trustAfter(o outcome, took time.Duration) trust {
	switch {
	case o == unanswered:
		return suspect
	case took > prompt:
		return slow
	}
	return trusted
}

// judge sets the trust in a lane, and updates the counts of its tries in flight accordingly.
func (l *lanes) judge(p *lane, t trust) {
	switch {
	case t == trusted && p.trust != trusted:
		l.suspects.add(p.account, -p.inFlight)
	case t != trusted && p.trust == trusted:
		l.suspects.add(p.account, p.inFlight)
	}
	p.trust = t
}

// find returns the lane of an endpoint; nil if it has none.
func (l *lanes) find(key laneKey) *lane { return l.all[key.account][key.endpoint] }

// begun makes a new lane that replaces the endpoint's former one. It returns nil if the account has as many lanes as allowed and all are
// in use.
func (l *lanes) begun(key laneKey, to receiver) *lane {
	of := l.all[key.account]
	if of == nil {
		of = map[schemas.EndpointID]*lane{}
		l.all[key.account] = of
	}
	if of[key.endpoint] == nil && len(of) >= lanesAtMost {
		var oldest *lane
		var its schemas.EndpointID
		for id, p := range of {
			if p.idle() && (oldest == nil || p.used.Before(oldest.used)) {
				oldest, its = p, id
			}
		}
		if oldest == nil {
			return nil
		}
		delete(of, its)
	}
	p := &lane{account: key.account, receiver: to}
	of[key.endpoint] = p // deliveries that are in the former one leave that
	return p
}

// idle reports whether the lane has no tries in flight and none waiting.
func (p *lane) idle() bool { return p.inFlight == 0 && len(p.waiting) == 0 }

// sweep removes lanes that were idle for long and whose pause, if any, ended long ago: their state is out of date.
func (l *lanes) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for a, of := range l.all {
		for id, p := range of {
			if p.idle() && now.Sub(p.used) > laneKept && now.Sub(p.breaker.rests()) > laneKept {
				delete(of, id)
			}
		}
		if len(of) == 0 {
			delete(l.all, a)
		}
	}
}
