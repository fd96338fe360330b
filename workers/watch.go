package workers

import (
	"context"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A worker reads new requests for the end of calls when the log announces one, and every watchEvery besides, as an announcement may be
// lost with a connection. Between two reads lies watchGap, so that a flood of requests costs the log ten reads a second and worker, of all
// that came meanwhile. A durable per worker would outlive it.
const (
	watchEvery = 2 * time.Second
	watchGap   = 100 * time.Millisecond
)

// watchCancels remembers the requests of the past and receives those to come, until ctx ends. It calls
// ready once it knows all that were there when it began.
func (s *workerRun) watchCancels(ctx context.Context, ready func()) {
	announced := make(chan struct{}, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		err := streams.Cancels.Notify(ctx, s.Bus, func() {
			select {
			case announced <- struct{}{}:
			default: // the next read has it, too
			}
		})
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("cancel requests are not announced, reading them at intervals", "error", err, "interval", watchEvery)
		}
	})
	var at schemas.Cursor
	begun := s.Bus.Now()
	logged := false // that they cannot be read: once for each outage
	for first := true; ; {
		next, err := s.readCancels(ctx, at, func(e streams.Entry[schemas.Cancel]) {
			if first && e.Stored.Before(begun.Add(-cancelsFresh)) {
				s.cancels.add(e.Value, e.Stored, s.Bus.Now())
				return
			}
			s.cancelRequested(e.Value, e.Stored)
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
		if !wait.Sleep(ctx, watchGap) {
			return
		}
		if err != nil { // try again soon
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-announced:
		case <-time.After(watchEvery):
		}
	}
}

// cancelsFresh is how old a request may be to be acted upon by a worker that has just begun: the one
// that would have done so may have died.
const cancelsFresh = time.Minute

// readCancels reads on from a cursor and returns where it came to. A stream that was recreated is
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
