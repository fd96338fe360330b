package streams

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// QueueStats is how much waits for a provider.
type QueueStats struct {
	Pending    uint64        // calls that were never handed out
	AckPending int           // calls in hand, or waiting to be tried again
	Oldest     time.Duration // since the oldest of the pending was admitted; 0: none
}

// QueueStats looks at the queue of a provider's calls. It costs some tenths of a millisecond of the
// server: ask every few seconds, not for each call.
func (b *Bus) QueueStats(ctx context.Context, provider string) (QueueStats, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	if !plain(provider) {
		return QueueStats{}, schemas.Invalidf("provider", "%q cannot be the name of one", schemas.Quotable(provider))
	}
	c, err := b.jsBulk.Consumer(ctx, streamCalls, "w-"+provider)
	if err != nil {
		err = coded("look at the queue of "+provider, err)
		if errors.Is(err, schemas.ErrNotFound) {
			return QueueStats{}, nil // no worker was ever there
		}
		return QueueStats{}, err
	}
	info := c.CachedInfo()
	s := QueueStats{Pending: info.NumPending, AckPending: info.NumAckPending}
	if s.Pending == 0 {
		return s, nil
	}
	m, err := b.getOne(ctx, streamCalls, getRequest{Seq: info.Delivered.Stream + 1, Next: callFilter(provider)})
	if err == nil {
		s.Oldest = max(time.Since(m.time), 0)
	} else if !errors.Is(err, schemas.ErrNotFound) {
		return s, err
	}
	return s, nil
}
