package fair

import (
	"context"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Semaphore bounds concurrent work for many accounts. Accounts with waiters take turns. Its methods may be called concurrently.
type Semaphore struct {
	share int // of one account at most

	mu    sync.Mutex
	free  int
	held  map[schemas.AccountID]int
	lanes map[schemas.AccountID][]*waiter
	ready []schemas.AccountID // those that have a lane, in the order of their turns
}

// waiter waits for a permit.
type waiter struct {
	granted chan struct{} // closed when the permit is granted
	left    bool          // it has stopped waiting
}

// NewSemaphore returns a semaphore of n permits, of which one account has share at most.
func NewSemaphore(n, share int) *Semaphore {
	return &Semaphore{share: share, free: n, held: map[schemas.AccountID]int{}, lanes: map[schemas.AccountID][]*waiter{}}
}

// Acquire waits for a permit, to be released by [Semaphore.Release]. Its only error is that of ctx.
func (s *Semaphore) Acquire(ctx context.Context, a schemas.AccountID) error {
	s.mu.Lock()
	if s.free > 0 && s.held[a] < s.share {
		s.free--
		s.held[a]++
		s.mu.Unlock()
		return nil
	}
	w := &waiter{granted: make(chan struct{})}
	if len(s.lanes[a]) == 0 {
		s.ready = append(s.ready, a)
	}
	s.lanes[a] = append(s.lanes[a], w)
	s.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	w.left = true
	s.mu.Unlock()
	select {
	case <-w.granted: // both at once
		s.Release(a)
	default:
	}
	return ctx.Err()
}

// Release releases a permit of an account. The next waiter in turn gets it.
func (s *Semaphore) Release(a schemas.AccountID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[a]--; s.held[a] == 0 {
		delete(s.held, a)
	}
	for i := 0; i < len(s.ready) && s.free > 0; {
		if next := s.ready[i]; s.held[next] < s.share {
			s.grant(i)
		} else {
			i++
		}
	}
}

// grant gives a permit to the first waiter of the account at position i and moves the account to the end. A waiter that has stopped
// waiting is only removed.
func (s *Semaphore) grant(i int) {
	a := s.ready[i]
	s.ready = append(s.ready[:i], s.ready[i+1:]...)
	lane := s.lanes[a]
	w := lane[0]
	lane[0] = nil
	if lane = lane[1:]; len(lane) > 0 {
		s.lanes[a] = lane
		s.ready = append(s.ready, a)
	} else {
		delete(s.lanes, a)
	}
	if !w.left {
		s.free--
		s.held[a]++
		close(w.granted)
	}
}
