package streams

import (
	"context"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// places are a few places for work that is done for many accounts. Whoever waits for one gets it in turn between
// accounts: one that has thousands waiting delays another by what is in progress, and by one of each other account. It is
// safe for concurrent use.
type places struct {
	share int // of one account at most

	mu    sync.Mutex
	free  int
	held  map[schemas.AccountID]int
	lanes map[schemas.AccountID][]*waitsForPlace
	ready []schemas.AccountID // those that have a lane, in the order of their turns
}

// waitsForPlace is somebody who waits.
type waitsForPlace struct {
	granted chan struct{} // closed with the place
	left    bool          // waits no more
}

// newPlaces makes n places, of which one account has share at most.
func newPlaces(n, share int) *places {
	return &places{share: share, free: n, held: map[schemas.AccountID]int{}, lanes: map[schemas.AccountID][]*waitsForPlace{}}
}

// take waits for a place, which give gives back. It fails only when ctx ends.
func (p *places) take(ctx context.Context, a schemas.AccountID) error {
	p.mu.Lock()
	if p.free > 0 && p.held[a] < p.share {
		p.free--
		p.held[a]++
		p.mu.Unlock()
		return nil
	}
	w := &waitsForPlace{granted: make(chan struct{})}
	if len(p.lanes[a]) == 0 {
		p.ready = append(p.ready, a)
	}
	p.lanes[a] = append(p.lanes[a], w)
	p.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	w.left = true
	p.mu.Unlock()
	select {
	case <-w.granted: // both at once
		p.give(a)
	default:
	}
	return ctx.Err()
}

// give gives back a place of an account, to whoever has the next turn.
func (p *places) give(a schemas.AccountID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.held[a]--; p.held[a] == 0 {
		delete(p.held, a)
	}
	for i := 0; i < len(p.ready) && p.free > 0; {
		if next := p.ready[i]; p.held[next] < p.share {
			p.grant(i)
		} else {
			i++
		}
	}
}

// grant gives a place to the first that waits of the account whose turn is at i, and puts the account behind the others. Who has left is
// only taken out.
func (p *places) grant(i int) {
	a := p.ready[i]
	p.ready = append(p.ready[:i], p.ready[i+1:]...)
	lane := p.lanes[a]
	w := lane[0]
	lane[0] = nil
	if lane = lane[1:]; len(lane) > 0 {
		p.lanes[a] = lane
		p.ready = append(p.ready, a)
	} else {
		delete(p.lanes, a)
	}
	if !w.left {
		p.free--
		p.held[a]++
		close(w.granted)
	}
}
