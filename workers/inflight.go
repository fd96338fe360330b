package workers

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// inFlight knows the calls that this process holds. A call is in it from its delivery to its verdict.
type inFlight struct {
	mu    sync.Mutex
	calls map[string]*inFlightCall // by the call's EventID
}

// inFlightCall is one call in flight. While it runs, its context can be ended by name.
type inFlightCall struct {
	cancel context.CancelCauseFunc // nil before the run
	cause  error                   // set when the end was asked for before there was a run
	since  time.Time               // when the call was accepted
}

// take adds the call that was accepted at a time, or reports false because it is there already.
func (h *inFlight) take(id string, accepted time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.calls[id]; ok {
		return false
	}
	if h.calls == nil {
		h.calls = make(map[string]*inFlightCall)
	}
	h.calls[id] = &inFlightCall{since: accepted}
	return true
}

// drop takes the call out again.
func (h *inFlight) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, id)
}

// has reports whether the call is in flight.
func (h *inFlight) has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.calls[id]
	return ok
}

// count is how many are in flight.
func (h *inFlight) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// running returns a context for the run of a call that was taken. It ends with ctx and when
// the call is cancelled by name, also if that was before.
func (h *inFlight) running(ctx context.Context, id string) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.calls[id]; ok {
		c.cancel = cancel
		if c.cause != nil {
			cancel(c.cause)
		}
	}
	return ctx, cancel
}

// within is running for a part of the preparation or of the run of a call that was taken: after done the
// call can be ended as before.
func (h *inFlight) within(ctx context.Context, id string) (_ context.Context, done func()) {
	h.mu.Lock()
	var before context.CancelCauseFunc
	c, ok := h.calls[id]
	if ok {
		before = c.cancel
	}
	h.mu.Unlock()
	ctx, cancel := h.running(ctx, id) // a run around it ends this one by its context
	return ctx, func() {
		cancel(nil)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !ok {
			return
		}
		if c.cancel = before; before != nil && c.cause != nil {
			before(c.cause)
		}
	}
}

// cancel ends the call that a request means which the log took at a time, and reports whether it is in flight.
func (h *inFlight) cancel(id string, request schemas.Cancel, taken time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.calls[id]
	if !ok || !lifecycle.CancelConcerns(request, taken, c.since) {
		return false
	}
	c.end(cancelError{reason: request.Reason})
	return true
}

// end ends the call with a cause, if it is in flight.
func (h *inFlight) end(id string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.calls[id]; ok {
		c.end(cause)
	}
}

// end ends the call's run, or the one to come. The caller has the lock of the calls.
func (c *inFlightCall) end(cause error) {
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// cancelError is the cause of a run's end when a client asked for it.
type cancelError struct{ reason string }

func (e cancelError) Error() string { return "cancelled: " + e.reason }
