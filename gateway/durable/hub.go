package durable

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/streams"
)

// hub makes all live readers of a stream share one subscription, and readers at the same position share one read.
type hub struct {
	log streams.Durable

	mu   sync.Mutex
	open map[string]*topic
}

// topic is the shared state of a stream's live readers.
type topic struct {
	ready chan struct{} // closed once the subscription is there, or has failed

	users int // guarded by hub.mu, like those below
	err   error
	stop  func()

	mu     sync.Mutex
	wakes  chan struct{} // closed at the next wake
	flight *flight       // the newest read; dropped at the next wake
}

// flight is one read, with all readers that wait for its result.
type flight struct {
	after uint64
	done  chan struct{}
	page  page
	err   error
}

const readWithin = 15 * time.Second

// join returns the topic of a stream after its subscription is established: every message stored later wakes it. The caller must call
// leave, unless there is an error.
func (h *hub) join(ctx context.Context, f found) (*topic, error) {
	h.mu.Lock()
	t := h.open[f.ID]
	first := t == nil
	if first {
		t = &topic{ready: make(chan struct{}), wakes: make(chan struct{})}
		if h.open == nil {
			h.open = map[string]*topic{}
		}
		h.open[f.ID] = t
	}
	t.users++
	h.mu.Unlock()
	if first {
		stop, err := h.log.Watch(context.WithoutCancel(ctx), f.Account, f.ID, t.wake)
		h.mu.Lock() // a reader that leaves meanwhile reads them
		t.stop, t.err = stop, err
		h.mu.Unlock()
		close(t.ready)
	}
	select {
	case <-t.ready:
	case <-ctx.Done():
		h.leave(f, t)
		return nil, ctx.Err()
	}
	if t.err != nil {
		h.leave(f, t)
		return nil, t.err
	}
	return t, nil
}

// leave removes a reader from the topic. The last one ends the subscription.
func (h *hub) leave(f found, t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.users--
	if t.users > 0 && t.err == nil {
		return
	}
	if h.open[f.ID] == t {
		delete(h.open, f.ID)
	}
	if t.users == 0 && t.stop != nil {
		t.stop()
	}
}

// wake wakes all readers of the topic. It does not block.
func (t *topic) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.wakes)
	t.wakes, t.flight = make(chan struct{}), nil
}

// next returns a channel that is closed at the next wake. A reader that calls it before it reads misses nothing.
func (t *topic) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wakes
}

// read is store.read, shared by all readers at the same position. The caller must have called next before.
func (t *topic) read(ctx context.Context, s *store, f found, after uint64) (page, error) {
	t.mu.Lock()
	fl := t.flight
	mine := fl == nil || fl.after != after
	if mine {
		fl = &flight{after: after, done: make(chan struct{})}
		t.flight = fl
	}
	t.mu.Unlock()
	if mine {
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin) // others wait for it too
		fl.page, fl.err = s.read(whole, f, after)
		cancel()
		if fl.err != nil {
			t.mu.Lock()
			if t.flight == fl {
				t.flight = nil
			}
			t.mu.Unlock()
		}
		close(fl.done)
	}
	select {
	case <-fl.done:
		return fl.page, fl.err
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
}
