package callstore

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// QueueStats is the length of a provider's queue.
type QueueStats struct {
	Pending    uint64        // calls that were never handed out
	AckPending int           // calls in flight, or waiting to be tried again
	Aside      uint64        // calls of accounts with thousands that wait for their turn
	Oldest     time.Duration // since the oldest of the pending was admitted; 0: none
	Pulls      int           // requests of workers with a free slot; 0: no worker takes the next call
	// Floor is the ack floor of calls: all calls before it have their result.
	Floor schemas.Cursor
}

// QueueStats reads the state of a provider's queue. It costs the server some tenths of a millisecond: call it every few seconds, not for
// each call.
func (s *Store) QueueStats(ctx context.Context, provider string) (QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	if !subjects.IsToken(provider) {
		return QueueStats{}, schemas.Invalidf("provider", "%q cannot be the name of one", schemas.Quotable(provider))
	}
	c, err := s.o.JS.Consumer(ctx, s.o.Stream, queuePrefix+provider)
	if err != nil {
		err = natserr.Coded("look at the queue of "+provider, err)
		if errors.Is(err, schemas.ErrNotFound) {
			return s.unserved(ctx, provider)
		}
		return QueueStats{}, err
	}
	epoch, err := s.o.Reader.Epoch(ctx, s.o.Stream)
	if err != nil {
		return QueueStats{}, err
	}
	info := c.CachedInfo()
	q := QueueStats{Pending: info.NumPending, AckPending: info.NumAckPending, Pulls: info.NumWaiting}
	if info.AckFloor.Stream > 0 {
		q.Floor = schemas.Cursor{Epoch: epoch, Seq: info.AckFloor.Stream}
	}
	switch first, err := s.o.Reader.Get(ctx, s.o.Stream, direct.Request{Seq: 1, Next: subjects.CallTimers + provider + ".*.*", Batch: 1}); {
	case err == nil:
		if q.Aside, err = first.AndBehind(); err != nil {
			return q, err
		}
	case !errors.Is(err, schemas.ErrNotFound):
		return q, err
	}
	if q.Pending == 0 {
		return q, nil
	}
	m, err := s.o.Reader.Get(ctx, s.o.Stream, direct.Request{Seq: info.Delivered.Stream + 1, Next: Filter(provider)})
	if err == nil {
		q.Oldest = max(s.o.Now().Sub(m.Time), 0)
	} else if !errors.Is(err, schemas.ErrNotFound) {
		return q, err
	}
	return q, nil
}

// unserved returns the state of the queue of a provider that never had a worker: all its calls wait.
func (s *Store) unserved(ctx context.Context, provider string) (QueueStats, error) {
	first, err := s.o.Reader.Get(ctx, s.o.Stream, direct.Request{Seq: 1, Next: Filter(provider), Batch: 1})
	if errors.Is(err, schemas.ErrNotFound) {
		return QueueStats{}, nil
	}
	if err != nil {
		return QueueStats{}, err
	}
	all, err := first.AndBehind()
	if err != nil {
		return QueueStats{}, err
	}
	return QueueStats{Pending: all, Oldest: max(s.o.Now().Sub(first.Time), 0)}, nil
}
