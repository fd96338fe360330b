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
	marksWaiting = 256             // messages that wait for their mark: above, some get none
	marksAtOnce  = 8               // requests at the same time
	markWithin   = 5 * time.Second // a request
)

// Marker marks messages as seen, and shows that an answer is being made, beside the answer to the service. A mark is a courtesy: it
// is left out where the service does not take it, and nothing waits for it. Make it with [NewMarker]; its methods may be called from
// many goroutines.
type Marker struct {
	adapter func(kind string) (channel.Adapter, bool)
	log     *slog.Logger
	waiting chan marked
}

type marked struct {
	channel schemas.ChatChannel
	message channel.Inbound
}

// NewMarker makes a Marker that finds the adapter of a kind by a function. The log may be nil.
func NewMarker(adapter func(kind string) (channel.Adapter, bool), log *slog.Logger) *Marker {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Marker{adapter: adapter, log: log, waiting: make(chan marked, marksWaiting)}
}

// Seen has a message marked. It does not block: where many wait already, this one gets no mark.
func (m *Marker) Seen(c schemas.ChatChannel, in channel.Inbound) {
	select {
	case m.waiting <- marked{c, in}:
	default:
	}
}

// Run marks until ctx ends, and returns nil.
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
