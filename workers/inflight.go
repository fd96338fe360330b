package workers

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// inFlight has the calls in progress in this process, each from its delivery to its verdict.
type inFlight struct {
	mu    sync.Mutex
	calls map[string]*inFlightCall // by the call's EventID
}

// inFlightCall is one call in progress. While it runs, its context can be cancelled by the call's id.
type inFlightCall struct {
	cancel context.CancelCauseFunc // nil before the run
	cause  error                   // set when the end was asked for before there was a run
	since  time.Time               // when the call was accepted
}

// take adds a call that was accepted at a time; it returns false if the call is there already.
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

// drop removes the call.
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

// count returns how many are in flight.
func (h *inFlight) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// running returns a context for the run of a call that was taken. It ends with ctx, and when the call is cancelled by id, also if that was
// earlier.
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

// within is like running, for a part of the preparation or the run: after done the call can be cancelled as before.
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

// cancel cancels the call that a request, stored on the log at a time, is about, and reports whether it is in flight.
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

// end cancels the call with a cause, if it is in flight.
func (h *inFlight) end(id string, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.calls[id]; ok {
		c.end(cause)
	}
}

// end cancels the call's present or next run. The caller holds the lock of the calls.
func (c *inFlightCall) end(cause error) {
	c.cause = cause
	if c.cancel != nil {
		c.cancel(cause)
	}
}

// cancelError is the cause when a client cancelled the call.
type cancelError struct{ reason string }

func (e cancelError) Error() string { return "cancelled: " + e.reason }
