package fair

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Shares bound what one account may use of a [Queue]. The zero value has the defaults.
type Shares struct {
	// Slots is how many requests of all accounts are handled at the same time. 0: 64. One account has three
	// quarters of them at most, and leaves one at least, so that there is always one for another.
	Slots int
	// Waiting and WaitingBytes are how many requests of one account may wait for their turn, and how large they
	// may be together. 0: 1,024 and 4 MiB. More are refused as exhausted.
	Waiting      int
	WaitingBytes int
	// PerSecond is how many requests one account may make in a second, with as many at once. 0: any number.
	PerSecond int
}

func (s Shares) withDefaults() Shares {
	set := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}
	set(&s.Slots, defaultDoorSlots)
	set(&s.Waiting, defaultDoorWaiting)
	set(&s.WaitingBytes, defaultDoorBytes)
	return s
}

// Defaults of [Shares], and the bounds of all accounts together.
const (
	defaultDoorSlots    = 64
	defaultDoorWaiting  = 1024
	defaultDoorBytes    = 4 << 20
	mostWaiting         = 16 << 10 // requests of all accounts that wait at a door ...
	mostWaitingBytes    = 64 << 20 // ... beside one of each account, which always has room
	mostPacedAccounts   = 1024     // whose pace is remembered before those who rest are forgotten
	costOfOneRequest    = 256      // bytes that a request takes beside its body
	closedToNewRequests = "the process stops: ask again"
)

// Queue lets requests of many accounts through a bounded number of slots, accounts in turn. Its methods may be called concurrently.
type Queue[T any] struct {
	shares Shares
	share  int // slots of one account at most

	mu      sync.Mutex
	lanes   map[schemas.AccountID]*lane[T]
	ready   []*lane[T] // with requests waiting and slots left of their share, in the order of their turns
	running int
	waiting int
	bytes   int
	closed  bool
	wake    chan struct{}
	paces   map[schemas.AccountID]time.Time // when the account may make its next request without a burst

	// weigh returns how many bytes a large request takes of those that large requests share, 0 for one that is not large; mostHeavy is how
	// many they have together while they are handled. Nil: no request is large.
	weigh     func(v T) int
	mostHeavy int
	heavy     int
}

// lane has the requests of one account. It exists only while there are some.
type lane[T any] struct {
	account schemas.AccountID
	queue   []ticket[T]
	bytes   int
	running int
	heavy   int  // bytes of the large ones that are handled
	listed  bool // among the ready ones
}

type ticket[T any] struct {
	value T
	size  int
}

// NewQueue returns an empty queue, which accounts use in turn.
func NewQueue[T any](s Shares) *Queue[T] {
	s = s.withDefaults()
	return &Queue[T]{
		shares: s, share: shareOf(s.Slots), lanes: map[schemas.AccountID]*lane[T]{},
		wake: make(chan struct{}, 1), paces: map[schemas.AccountID]time.Time{},
	}
}

// Offer queues v. It does not block. Codes: exhausted (the account has too many requests waiting, or makes them too fast), unavailable (the
// queue is full, or closed).
func (t *Queue[T]) Offer(a schemas.AccountID, size int, v T, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.add(a, size, v, now)
	t.wakeUp()
	return err
}

// put is Offer for a caller that calls next afterwards.
func (t *Queue[T]) put(a schemas.AccountID, size int, v T, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(a, size, v, now)
}

func (t *Queue[T]) add(a schemas.AccountID, size int, v T, now time.Time) error {
	if t.closed {
		return schemas.Errorf(schemas.Unavailable, closedToNewRequests)
	}
	if !t.paced(a, now) {
		return schemas.Errorf(schemas.Exhausted, "the account makes more than %d requests a second here: slow down", t.shares.PerSecond)
	}
	size += costOfOneRequest
	l := t.lanes[a]
	if l != nil && len(l.queue) > 0 {
		switch {
		case len(l.queue) >= t.shares.Waiting || l.bytes+size > t.shares.WaitingBytes:
			return schemas.Errorf(schemas.Exhausted,
				"%d requests of the account wait here already: wait for their answers before you ask more", len(l.queue))
		case t.waiting >= mostWaiting || t.bytes+size > mostWaitingBytes:
			return schemas.Errorf(schemas.Unavailable, "too many requests wait here: ask again later")
		}
	}
	if l == nil {
		l = &lane[T]{account: a}
		t.lanes[a] = l
	}
	l.queue = append(l.queue, ticket[T]{v, size})
	l.bytes += size
	t.waiting, t.bytes = t.waiting+1, t.bytes+size
	t.list(l)
	return nil
}

// paced reports whether the account may make another request at its pace, and counts it.
func (t *Queue[T]) paced(a schemas.AccountID, now time.Time) bool {
	if t.shares.PerSecond <= 0 {
		return true
	}
	free, known := t.paces[a]
	if rested := now.Add(-time.Second); !known || free.Before(rested) {
		free = rested
	}
	if free = free.Add(time.Second / time.Duration(t.shares.PerSecond)); free.After(now) {
		return false
	}
	if !known && len(t.paces) >= mostPacedAccounts {
		for other, at := range t.paces {
			if at.Before(now.Add(-time.Second)) {
				delete(t.paces, other)
			}
		}
	}
	t.paces[a] = free
	return true
}

// narrow sets whether one account must leave slots to other accounts.
func (t *Queue[T]) narrow(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.share = t.shares.Slots
	if yes {
		t.share = shareOf(t.shares.Slots)
	}
	for _, l := range t.lanes {
		if l.running >= t.share {
			t.unlist(l)
		}
		t.list(l)
	}
	t.wakeUp()
}

// list appends a lane to the ready lanes, if it is ready.
func (t *Queue[T]) list(l *lane[T]) {
	if !l.listed && len(l.queue) > 0 && l.running < t.share {
		l.listed = true
		t.ready = append(t.ready, l)
	}
}

// wakeUp wakes Run if there is a request to start.
func (t *Queue[T]) wakeUp() {
	if len(t.ready) > 0 && t.running < t.shares.Slots {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// next returns the next request and its lane, if there is one and a slot for it; done or after release the slot. Otherwise the lane is
// nil.
func (t *Queue[T]) next() (v T, l *lane[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take()
}

// take is next with the lock held.
func (t *Queue[T]) take() (v T, l *lane[T]) {
	if len(t.ready) == 0 || t.running >= t.shares.Slots {
		return v, nil
	}
	i := t.first()
	if i < 0 {
		return v, nil
	}
	l = t.ready[i]
	if l.listed = false; i > 0 {
		t.ready = slices.Delete(t.ready, i, i+1)
	} else {
		t.ready[0] = nil
		t.ready = t.ready[1:]
	}
	first := l.queue[0]
	l.queue[0] = ticket[T]{}
	l.queue = l.queue[1:]
	l.bytes -= first.size
	t.waiting, t.bytes = t.waiting-1, t.bytes-first.size
	l.running++
	t.running++
	if t.weigh != nil {
		w := t.weigh(first.value)
		l.heavy, t.heavy = l.heavy+w, t.heavy+w
	}
	t.list(l)
	return first.value, l
}

// first returns the index of the first ready lane whose next request may start, -1 for none. While a large request waits for others to
// finish, no other large one overtakes it; small ones do.
func (t *Queue[T]) first() int {
	if t.weigh == nil {
		return 0
	}
	const share, of = 3, 4 // of the bytes, for one account while it shares with others
	full := false
	for i, l := range t.ready {
		w := t.weigh(l.queue[0].value)
		switch {
		case w == 0:
			return i
		case t.share < t.shares.Slots && l.heavy > 0 && l.heavy+w > t.mostHeavy/of*share:
		case full, t.heavy > 0 && t.heavy+w > t.mostHeavy:
			full = true
		default:
			return i
		}
	}
	return -1
}

// lets reports whether a request of a weight could start at once, given a slot.
func (t *Queue[T]) lets(weight int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return weight == 0 || len(t.ready) == 0 && (t.heavy == 0 || t.heavy+weight <= t.mostHeavy)
}

// lighten releases the bytes of a large request, before its slot is released.
func (t *Queue[T]) lighten(l *lane[T], v T) {
	if t.weigh == nil {
		return
	}
	w := t.weigh(v)
	t.mu.Lock()
	defer t.mu.Unlock()
	l.heavy, t.heavy = l.heavy-w, t.heavy-w
}

// pick removes and returns the waiting requests for which out is true.
func (t *Queue[T]) pick(out func(v T) bool) (picked []T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.lanes {
		kept := l.queue[:0]
		for _, w := range l.queue {
			if !out(w.value) {
				kept = append(kept, w)
				continue
			}
			picked = append(picked, w.value)
			l.bytes, t.bytes, t.waiting = l.bytes-w.size, t.bytes-w.size, t.waiting-1
		}
		clear(l.queue[len(kept):])
		if l.queue = kept; len(kept) == 0 {
			t.strike(l)
		}
	}
	return picked
}

// unlist removes a lane from those that are ready.
func (t *Queue[T]) unlist(l *lane[T]) {
	if l.listed {
		l.listed = false
		t.ready = slices.DeleteFunc(t.ready, func(other *lane[T]) bool { return other == l })
	}
}

// strike removes an empty lane.
func (t *Queue[T]) strike(l *lane[T]) {
	t.unlist(l)
	if l.running == 0 && t.lanes[l.account] == l {
		delete(t.lanes, l.account)
	}
}

// done releases the slot of a request.
func (t *Queue[T]) done(l *lane[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(l)
	t.wakeUp()
}

// after is done and next in one step.
func (t *Queue[T]) after(l *lane[T]) (next T, nextLane *lane[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(l)
	next, nextLane = t.take()
	t.wakeUp()
	return next, nextLane
}

func (t *Queue[T]) leave(l *lane[T]) {
	l.running--
	t.running--
	if l.running == 0 && len(l.queue) == 0 && t.lanes[l.account] == l {
		delete(t.lanes, l.account)
	}
	t.list(l)
}

// Run starts queued requests, accounts in turn, until ctx ends; then the queue is closed and the requests that wait are handed to refuse.
// Start is called by one goroutine and must not block for long; it calls done, from any goroutine, when its request has ended.
func (t *Queue[T]) Run(ctx context.Context, start func(v T, done func()), refuse func(v T, err error)) {
	for ctx.Err() == nil {
		if v, l := t.next(); l != nil {
			start(v, sync.OnceFunc(func() {
				t.lighten(l, v)
				t.done(l)
			}))
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.wake:
		}
	}
	t.mu.Lock()
	t.closed = true
	var left []T
	for _, l := range t.lanes {
		for _, waits := range l.queue {
			left = append(left, waits.value)
		}
		l.queue = nil
	}
	t.ready = nil
	t.mu.Unlock()
	for _, v := range left {
		refuse(v, schemas.Errorf(schemas.Unavailable, closedToNewRequests))
	}
}
