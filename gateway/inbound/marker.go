package inbound

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

const (
	marksWaiting = 256             // messages in the queue for a mark; further ones get none
	marksAtOnce  = 8               // concurrent requests
	markWithin   = 5 * time.Second // the time limit of a request
)

// Marker marks messages as seen with a reaction, and shows a typing indicator, without delaying the answer to the service. Marks are best
// effort: failures are only logged. Make it with [NewMarker]; it is safe for concurrent use.
type Marker struct {
	adapter func(kind string) (channel.Adapter, bool)
	log     *slog.Logger
	waiting chan marked
}

type marked struct {
	channel schemas.ChatChannel
	message channel.Inbound
}

// NewMarker returns a Marker; adapter returns the adapter of a kind of channel. The log may be nil.
func NewMarker(adapter func(kind string) (channel.Adapter, bool), log *slog.Logger) *Marker {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Marker{adapter: adapter, log: log, waiting: make(chan marked, marksWaiting)}
}

// Seen queues a message for its mark. It does not block: if the queue is full, the message gets no mark.
func (m *Marker) Seen(c schemas.ChatChannel, in channel.Inbound) {
	select {
	case m.waiting <- marked{c, in}:
	default:
	}
}

// Run marks the queued messages until ctx is done, then returns nil.
func (m *Marker) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for range marksAtOnce {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case v := <-m.waiting:
					m.mark(ctx, v)
				}
			}
		})
	}
	all.Wait()
	return nil
}

func (m *Marker) mark(ctx context.Context, v marked) {
	a, ok := m.adapter(v.channel.Kind)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, markWithin)
	defer cancel()
	to := channel.Destination{Credential: v.channel.Secrets, Route: v.message.Route, Settings: v.channel.Settings}
	log := m.log.With("account", v.channel.Account, "channel", v.channel.ID, "kind", v.channel.Kind)
	if r, ok := a.(channel.Reactor); ok {
		if err := r.React(ctx, to); err != nil {
			log.Debug("message not marked as seen", "error", err)
		}
	}
	if t, ok := a.(channel.Typist); ok && v.channel.Agent != "" {
		if err := t.Typing(ctx, to); err != nil {
			log.Debug("typing indicator not sent to a chat", "error", err)
		}
	}
}
