package workers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// watchEvery is how often a worker asks for new requests for the end of calls. One small read each
// time, whatever the number of calls: cheaper than a durable per worker, which would outlive it.
const watchEvery = 200 * time.Millisecond

// watchCancels remembers the requests of the past and hears those to come, until ctx ends. It calls
// ready once it knows all that were there when it began.
func (s *workerRun) watchCancels(ctx context.Context, ready func()) {
	var at schemas.Cursor
	begun := s.Bus.Now()
	logged := false // that they cannot be read: once for each outage
	for first := true; ; {
		next, err := s.readCancels(ctx, at, func(e streams.Entry[schemas.Cancel]) {
			if first && e.Stored.Before(begun.Add(-cancelsFresh)) {
				s.cancels.add(e.Value, e.Stored, s.Bus.Now())
				return
			}
			s.heard(e.Value, e.Stored)
		})
		at = next
		switch {
		case err == nil && first:
			first = false
			ready()
		case err != nil && ctx.Err() == nil && !logged:
			s.Log.Warn("cancel requests not read, retrying", "error", err)
		}
		logged = err != nil
		if !wait.Sleep(ctx, watchEvery) {
			return
		}
	}
}

// cancelsFresh is how old a request may be to be acted upon by a worker that has just begun: the one
// that would have done so may have died.
const cancelsFresh = time.Minute

// readCancels reads on from a cursor and returns where it came to. A stream that was made anew is
// read from its beginning.
func (s *workerRun) readCancels(ctx context.Context, at schemas.Cursor, take func(streams.Entry[schemas.Cancel])) (schemas.Cursor, error) {
	for e, err := range streams.Cancels.Replay(ctx, s.Bus, "", at) {
		switch code := schemas.CodeOf(err); {
		case err == nil:
			take(e)
		case e.Cursor.IsStart() && code == schemas.Conflict:
			return schemas.Cursor{}, err
		case e.Cursor.IsStart(), code.Retryable(), ctx.Err() != nil:
			return at, err
		default: // one that cannot be read asks for nothing
			s.Log.Warn("cancel request not readable", "subject", e.Subject, "error", err)
		}
		at = e.Cursor
	}
	return at, nil
}
