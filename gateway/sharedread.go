package gateway

import (
	"context"
	"sync"
	"time"
)

// sharedFor is how long the result of a read is used for other requests: requests without a key then cost at most four reads of the log
// per second, however many there are.
const sharedFor = 250 * time.Millisecond

// sharedRead shares one read among all requests at the same time and up to [sharedFor] after it. It is safe for concurrent use.
type sharedRead[T any] struct {
	within time.Duration // for one read
	read   func(context.Context) (T, error)

	mu   sync.Mutex
	last *sharedAnswer[T] // the read that is under way, or the last one; nil before the first
}

type sharedAnswer[T any] struct {
	done  chan struct{} // closed once the rest is set
	ended time.Time
	value T
	err   error
}

// get returns the result of the read in progress, or of the last one if that is recent enough; otherwise it reads. A read does not end
// with the request that began it, since others wait for it.
func (s *sharedRead[T]) get(ctx context.Context) (T, error) {
	a, mine := s.join(time.Now())
	if mine {
		s.run(ctx, a)
	}
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// join returns the read that answers a request at now, and whether the caller must run it.
func (s *sharedRead[T]) join(now time.Time) (a *sharedAnswer[T], mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && !s.last.over(now) {
		return s.last, false
	}
	s.last = &sharedAnswer[T]{done: make(chan struct{})}
	return s.last, true
}

// over reports whether a read ended too long ago to answer a request at now.
func (a *sharedAnswer[T]) over(now time.Time) bool {
	select {
	case <-a.done:
		return now.Sub(a.ended) >= sharedFor
	default:
		return false
	}
}

func (s *sharedRead[T]) run(ctx context.Context, a *sharedAnswer[T]) {
	defer close(a.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.within)
	defer cancel()
	a.value, a.err = s.read(ctx)
	a.ended = time.Now()
}
