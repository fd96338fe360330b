package mcp

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// errCancelled is the end of a request whose client said that it wants no answer.
var errCancelled = errors.New("the client cancelled the request")

const cancelWithin = 5 * time.Second // for the cancellation to be on the log

// unwanted reports whether a request has ended because its client wants no answer. If the other end of a stdio connection is gone, that is
// not so: a client program that ends or is killed has not cancelled anything, and must not take its long calls with it.
func (c *session) unwanted(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	return errors.Is(cause, context.Canceled) || errors.Is(cause, errCancelled)
}

// requested reports whether the client cancelled the request explicitly, rather than by closing its stream.
func (c *session) requested(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), errCancelled)
}

// attachment counts the requests in this process that wait for a call.
type attachment struct {
	waiting int
	pending int    // that would cancel it
	times   uint64 // that a request came
}

// attach records that a request waits for a call, until the returned function is called.
func (s *Server) attach(id schemas.CallID) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.attachmentOf(id)
	a.waiting++
	a.times++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.waiting--
		s.forget(id, a)
	}
}

func (s *Server) attachmentOf(id schemas.CallID) *attachment {
	a := s.attached[id]
	if a == nil {
		a = new(attachment)
		s.attached[id] = a
	}
	return a
}

func (s *Server) forget(id schemas.CallID, a *attachment) {
	if a.waiting == 0 && a.pending == 0 {
		delete(s.attached, id)
	}
}

// abandon cancels a call whose client has gone, unless another request waits for it in this process. With grace set, it waits for s.Grace
// whether one comes.
func (c *session) abandon(id schemas.CallID, grace bool) {
	s, caller := c.Server, c.scope.Caller
	s.mu.Lock()
	a := s.attachmentOf(id)
	a.pending++
	came := a.times
	s.mu.Unlock()
	s.running.Go(func() {
		if grace {
			t := time.NewTimer(s.Grace)
			defer t.Stop()
			select {
			case <-t.C:
			case <-s.closing.Done():
			}
		}
		s.mu.Lock()
		wanted := a.waiting > 0 || a.times != came
		a.pending--
		s.forget(id, a)
		s.mu.Unlock()
		if wanted {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), cancelWithin)
		defer cancel()
		switch err := caller.Cancel(ctx, id, "the client wants no answer any more"); {
		case err == nil, errors.Is(err, schemas.ErrConflict), errors.Is(err, schemas.ErrNotFound): // it has ended, or never began
		default:
			s.Log.Warn("call of a disconnected client not cancelled, it runs to its end", "call", id, "error", err)
		}
	})
}

// flight identifies a request of an older protocol revision over HTTP, which is cancelled by another request.
type flight struct {
	account schemas.AccountID
	session string
	request string // its id, as JSON
}

// fly registers a request until the returned function is called. The returned context is cancelled by ground.
func (s *Server) fly(ctx context.Context, f flight) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if f.session == "" || f.request == "" {
		return ctx, func() { cancel(nil) }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[f] != nil { // a client that uses an id twice cancels the first
		return ctx, func() { cancel(nil) }
	}
	s.inFlight[f] = cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.inFlight, f)
		s.mu.Unlock()
		cancel(nil)
	}
}

// ground cancels a request that is in flight in this process.
func (s *Server) ground(f flight) {
	s.mu.Lock()
	cancel := s.inFlight[f]
	s.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}
