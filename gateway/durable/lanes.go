package durable

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// lanes serializes the appends to each stream within this process; conflicts with other processes are detected by the conditional write. A
// lane caches the stream's end, so most appends are one write without a read. A stale cache makes the write fail, and the end is read
// again.
type lanes struct {
	mu    sync.Mutex
	open  map[schemas.AccountID]map[string]*lane
	all   int
	swept time.Time
}

// lane is the lock of one stream, with the cache of its end. One goroutine holds it at a time.
type lane struct {
	turn  chan struct{}
	users int       // guarded by lanes.mu
	used  time.Time // when it was last released; guarded by lanes.mu

	known   bool
	last    uint64
	state   state
	reached map[string]*producer // producers that have written, by id
	bytes   int                  // size of reached, about
}

const (
	keptLanes     = 4096
	accountsLanes = keptLanes / 4 // of one account
	laneRest      = 10 * time.Minute
	sweepLanes    = time.Minute
	keptProducers = 64 << 10 // bytes of one lane
	producerBytes = 160      // of one, beside its id
)

// enter acquires the lane of a stream; it blocks until it is free or ctx is done. The caller must call leave, unless there is an error.
func (l *lanes) enter(ctx context.Context, a schemas.AccountID, id string) (*lane, error) {
	n := l.take(a, id, time.Now())
	select {
	case n.turn <- struct{}{}:
		return n, nil
	case <-ctx.Done():
		l.release(n)
		return nil, ctx.Err()
	}
}

func (l *lanes) leave(n *lane) {
	<-n.turn
	l.release(n)
}

// take returns the lane of a stream and counts the caller as a user of it.
func (l *lanes) take(a schemas.AccountID, id string, now time.Time) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	n := l.open[a][id]
	if n == nil {
		switch {
		case len(l.open[a]) >= accountsLanes:
			l.dropIdle(a)
		case l.all >= keptLanes:
			l.dropIdle(l.largest())
		}
		n = &lane{turn: make(chan struct{}, 1)}
		if l.open == nil {
			l.open = map[schemas.AccountID]map[string]*lane{}
		}
		if l.open[a] == nil {
			l.open[a] = map[string]*lane{}
		}
		l.open[a][id] = n
		l.all++
	}
	n.users++
	return n
}

func (l *lanes) release(n *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.users--
	n.used = time.Now()
}

// sweep drops the lanes that have been unused for laneRest. The caller holds the lock.
func (l *lanes) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepLanes {
		return
	}
	l.swept = now
	for a, lanes := range l.open {
		for id, n := range lanes {
			if n.users == 0 && now.Sub(n.used) >= laneRest {
				l.drop(a, id)
			}
		}
	}
}

// dropIdle drops one unused lane of an account, if there is one. The caller holds the lock.
func (l *lanes) dropIdle(a schemas.AccountID) {
	for id, n := range l.open[a] {
		if n.users == 0 {
			l.drop(a, id)
			return
		}
	}
}

func (l *lanes) drop(a schemas.AccountID, id string) {
	l.all--
	if delete(l.open[a], id); len(l.open[a]) == 0 {
		delete(l.open, a)
	}
}

// largest returns the account that has the most lanes.
func (l *lanes) largest() (of schemas.AccountID) {
	for a, lanes := range l.open {
		if len(lanes) > len(l.open[of]) {
			of = a
		}
	}
	return of
}

// forget drops the cached end: the next append reads it.
func (n *lane) forget() { n.known, n.reached, n.bytes = false, nil, 0 }

// reach caches the position of a producer that has written. If the cache is full, all others are dropped.
func (n *lane) reach(p *producer) {
	if n.reached[p.ID] != nil {
		n.reached[p.ID] = p
		return
	}
	size := 2*len(p.ID) + producerBytes // a later append brings the id once more
	if n.reached == nil || n.bytes+size > keptProducers {
		n.reached, n.bytes = map[string]*producer{}, 0
	}
	n.bytes += size
	n.reached[p.ID] = p
}
