package streams

import (
	"context"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// places are a few places for work that is done for many accounts. Whoever waits for one gets it in turn between
// accounts: one that has thousands waiting delays another by what is in hand, and by one of each other account. It is
// safe for concurrent use.
type places struct {
	mu    sync.Mutex
	free  int
	lanes map[schemas.AccountID][]*waitsForPlace
	ready []schemas.AccountID // those that have a lane, in the order of their turns
}

// waitsForPlace is somebody who waits.
type waitsForPlace struct {
	granted chan struct{} // closed with the place
	left    bool          // waits no more
}

func newPlaces(n int) *places {
	return &places{free: n, lanes: map[schemas.AccountID][]*waitsForPlace{}}
}

// take waits for a place, which give gives back. It fails only when ctx ends.
func (p *places) take(ctx context.Context, a schemas.AccountID) error {
	p.mu.Lock()
	if p.free > 0 {
		p.free--
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
		p.give()
	default:
	}
	return ctx.Err()
}

// give gives a place back, to whoever has the next turn.
func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) > 0 {
		a := p.ready[0]
		p.ready = p.ready[1:]
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
			close(w.granted)
			return
		}
	}
	p.free++
}
