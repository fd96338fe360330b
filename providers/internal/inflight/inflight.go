// Package inflight tracks a provider's own work: the calls in flight, until the provider is closed, and locks on the names that it works
// on.
package inflight

import (
	"context"
	"sync"

	"github.com/sandjet/sandjet/schemas"
)

// Work counts the calls and background work of a provider, so that closing the provider waits for all of it. The zero value is open and
// has no work. Its methods are safe for concurrent use.
type Work struct {
	all sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ctx    context.Context //nolint:containedctx // it is the life of the provider; nil: it was not asked for yet
	cancel context.CancelFunc
}

// Begin counts a call as work in flight until Done. Code: unavailable, the provider is closed.
func (w *Work) Begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return schemas.OpErrorf(schemas.Unavailable, "run", "the provider is closed")
	}
	w.all.Add(1)
	return nil
}

// Done ends a call that Begin has counted.
func (w *Work) Done() { w.all.Done() }

// Go runs f in a new goroutine and counts it. While the provider is being closed it may only be called from work that is counted already.
func (w *Work) Go(f func()) { w.all.Go(f) }

// Context returns a context that ends when the provider is closed.
func (w *Work) Context() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		w.ctx, w.cancel = context.WithCancel(context.Background())
		if w.closed {
			w.cancel()
		}
	}
	return w.ctx
}

// Close refuses further calls, ends Context and waits for all work in flight.
func (w *Work) Close() {
	w.mu.Lock()
	w.closed = true
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	w.all.Wait()
}

// mostLocks is the maximal number of names in a [Locks].
const mostLocks = 10_000

// Locks is a lock per name: if several callers of a worker want the same sandbox, one asks the service and the others find what it made.
// The locks save requests and guarantee nothing: when there are too many they are dropped. The zero value is ready; it is safe for
// concurrent use.
type Locks struct {
	mu  sync.Mutex
	all map[string]*sync.Mutex
}

// Of returns the lock of a name.
func (l *Locks) Of(name string) *sync.Mutex {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.all[name]
	if lock == nil {
		if l.all == nil || len(l.all) >= mostLocks {
			l.all = map[string]*sync.Mutex{} // holders of a lock are not affected
		}
		lock = &sync.Mutex{}
		l.all[name] = lock
	}
	return lock
}
