package streams

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// QueueStats is how much waits for a provider.
type QueueStats struct {
	Pending    uint64        // calls that were never handed out
	AckPending int           // calls in flight, or waiting to be tried again
	Aside      uint64        // calls of accounts with thousands that wait for their turn
	Oldest     time.Duration // since the oldest of the pending was admitted; 0: none
	Pulls      int           // requests of workers with a free slot; 0: no worker takes the next call
	// Floor is the ack floor of calls: all calls before it have their result.
	Floor schemas.Cursor
}

// QueueStats looks at the queue of a provider's calls. It costs some tenths of a millisecond of the
// server: ask every few seconds, not for each call.
func (b *Bus) QueueStats(ctx context.Context, provider string) (QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	if !subjects.IsToken(provider) {
		return QueueStats{}, schemas.Invalidf("provider", "%q cannot be the name of one", schemas.Quotable(provider))
	}
	c, err := b.jsBulk.Consumer(ctx, streamCalls, "w-"+provider)
	if err != nil {
		err = natserr.Coded("look at the queue of "+provider, err)
		if errors.Is(err, schemas.ErrNotFound) {
			return unserved(ctx, b, provider)
		}
		return QueueStats{}, err
	}
	epoch, err := b.reader.Epoch(ctx, streamCalls)
	if err != nil {
		return QueueStats{}, err
	}
	info := c.CachedInfo()
	s := QueueStats{Pending: info.NumPending, AckPending: info.NumAckPending, Pulls: info.NumWaiting}
	if info.AckFloor.Stream > 0 {
		s.Floor = schemas.Cursor{Epoch: epoch, Seq: info.AckFloor.Stream}
	}
	switch first, err := b.reader.Get(ctx, streamCalls, direct.Request{Seq: 1, Next: subjects.CallTimers + provider + ".*.*", Batch: 1}); {
	case err == nil:
		if s.Aside, err = first.AndBehind(); err != nil {
			return s, err
		}
	case !errors.Is(err, schemas.ErrNotFound):
		return s, err
	}
	if s.Pending == 0 {
		return s, nil
	}
	m, err := b.reader.Get(ctx, streamCalls, direct.Request{Seq: info.Delivered.Stream + 1, Next: callFilter(provider)})
	if err == nil {
		s.Oldest = max(b.Now().Sub(m.Time), 0)
	} else if !errors.Is(err, schemas.ErrNotFound) {
		return s, err
	}
	return s, nil
}

// unserved looks at the queue of a provider that no worker ever served: all its calls wait.
func unserved(ctx context.Context, b *Bus, provider string) (QueueStats, error) {
	first, err := b.reader.Get(ctx, streamCalls, direct.Request{Seq: 1, Next: callFilter(provider), Batch: 1})
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
	return QueueStats{Pending: all, Oldest: max(b.Now().Sub(first.Time), 0)}, nil
}
