package fair

import "sync"

// Slots counts the free slots of a consumer, for which it pulls messages. Its methods may be called concurrently; none blocks.
type Slots struct {
	mu    sync.Mutex
	n     int
	freed chan struct{} // has a token when slots became free
}

// NewSlots returns n free slots.
func NewSlots(n int) *Slots {
	s := &Slots{n: n, freed: make(chan struct{}, 1)}
	s.freed <- struct{}{}
	return s
}

// TakeAll takes all free slots and returns how many, perhaps none.
func (s *Slots) TakeAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(s.n, 0)
	s.n -= n
	return n
}

// Freed receives after slots became free, and after [Slots.Wake].
func (s *Slots) Freed() <-chan struct{} { return s.freed }

// Free returns how many are free.
func (s *Slots) Free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.n, 0)
}

// withdraw removes slots: free ones now, otherwise the next ones that become free.
func (s *Slots) withdraw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n -= n
}

// Give returns slots.
func (s *Slots) Give(n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	s.n += n
	s.mu.Unlock()
	s.Wake()
}

// Wake makes the receiver of Freed check the free slots again.
func (s *Slots) Wake() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
