package streams

import "sync"

// slots counts the free places of a consumer.
type slots struct {
	mu    sync.Mutex
	n     int
	freed chan struct{} // has a token when places became free
}

func newSlots(n int) *slots {
	s := &slots{n: n, freed: make(chan struct{}, 1)}
	s.freed <- struct{}{}
	return s
}

// takeAll takes all free places, perhaps none.
func (s *slots) takeAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(s.n, 0)
	s.n -= n
	return n
}

// count is how many are free.
func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.n, 0)
}

// withdraw takes places away, those that are free now or the next ones.
func (s *slots) withdraw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n -= n
}

// give gives places back.
func (s *slots) give(n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	s.n += n
	s.mu.Unlock()
	s.look()
}

// look has the free places looked at again.
func (s *slots) look() {
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
