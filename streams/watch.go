package streams

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/natserr"
)

// Notify calls wake whenever something may have been stored on the topic, until ctx ends: for each message that is stored, and after a
// reconnection. It is a hint to read, and not proof: one may be lost at the moment of a reconnect, so a caller that must miss nothing also
// reads now and then without it. Wake must not block. It is for topics that are published live, which is [Cancels]; code unsupported for
// any other.
func (t Topic[T]) Notify(ctx context.Context, b *Bus, wake func()) error {
	if t.live == "" {
		return schemas.OpErrorf(schemas.Unsupported, "notify", "this topic is not published live")
	}
	drop := b.drops.Next()
	sub, err := b.live.Subscribe(t.live, func(*nats.Msg) { wake() })
	if err != nil {
		return natserr.Coded("notify", err)
	}
	defer func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			b.log.Debug("unsubscribe failed", "error", err)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-drop:
			drop = b.drops.Next()
			wake()
		}
	}
}
