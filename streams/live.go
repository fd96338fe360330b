package streams

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
)

// tail opens feeds of events that are stored from now on. It is an interface because one subscription per reader, as here, is only the
// first implementation.
type tail interface {
	open(ctx context.Context, subject string) (direct.Feed, error)
}

const (
	feedAhead = 256              // live messages that wait for one reader; more are read from the log
	feedCheck = 45 * time.Second // silence after which the log is asked
)

// coreTail is a core subscription per feed.
type coreTail struct{ bus *Bus }

type coreFeed struct {
	bus    *Bus
	sub    *nats.Subscription
	ahead  chan *nats.Msg
	behind atomic.Bool
	wake   chan struct{}
	drop   <-chan struct{}
}

func (t coreTail) open(ctx context.Context, subject string) (direct.Feed, error) {
	f := &coreFeed{bus: t.bus, ahead: make(chan *nats.Msg, feedAhead), wake: make(chan struct{}, 1), drop: t.bus.drops.Next()}
	var err error
	if f.sub, err = t.bus.live.Subscribe(subject, f.arrive); err != nil {
		return nil, natserr.Coded("follow", err)
	}
	t.bus.slow.Store(f.sub, f.miss)
	if err := f.settle(ctx); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// settle returns once the server has the subscription: no event is lost between a later read of the log and what arrives.
func (f *coreFeed) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	return natserr.Coded("follow", f.bus.live.FlushWithContext(ctx))
}

// arrive never blocks, since all feeds share the connection.
func (f *coreFeed) arrive(m *nats.Msg) {
	if fault := f.bus.faults.dropLive; fault != nil && fault(m) {
		return
	}
	select {
	case f.ahead <- m:
	default:
		f.miss()
	}
}

// miss notifies the reader that live messages are missing.
func (f *coreFeed) miss() {
	f.behind.Store(true)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next implements [direct.Feed].
func (f *coreFeed) Next(ctx context.Context) (direct.Message, uint64, error) {
	for {
		if f.behind.Swap(false) {
			for len(f.ahead) > 0 {
				<-f.ahead
			}
			return direct.Message{}, 0, direct.ErrBehind
		}
		idle := time.NewTimer(feedCheck)
		select {
		case <-ctx.Done():
			idle.Stop()
			return direct.Message{}, 0, ctx.Err()
		case <-idle.C:
			return direct.Message{}, 0, direct.ErrBehind
		case <-f.wake:
			idle.Stop()
		case <-f.drop:
			idle.Stop()
			f.drop = f.bus.drops.Next()
			if err := f.settle(ctx); err != nil {
				f.behind.Store(true)
				if !wait.Sleep(ctx, reconnectAfter) {
					return direct.Message{}, 0, ctx.Err()
				}
				continue
			}
			return direct.Message{}, 0, direct.ErrBehind
		case m := <-f.ahead:
			idle.Stop()
			if s, prev, err := direct.ParseLive(m); err == nil {
				return s, prev, nil
			}
		}
	}
}

// Close implements [direct.Feed].
func (f *coreFeed) Close() {
	f.bus.slow.Delete(f.sub)
	if err := f.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		f.bus.log.Debug("unsubscribe failed", "error", err)
	}
}
