package streams

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
)

// progressAcks sends the progress acks of all messages in flight in this process, from one goroutine, which never waits for a handler.
type progressAcks struct {
	bus *Bus

	mu         sync.Mutex
	holds      map[*hold]struct{}
	begun      chan struct{} // has a token when the first hold was added
	woke       clock.Reading // when the goroutine last ran
	stalled    clock.Reading // when it last ran too late: deliveries may have waited unseen in this process
	confirming bool          // messages in flight are looked up after a loss of the connection
}

// hold is one message in flight.
type hold struct {
	progress *progressAcks
	message  *message
	ackWait  time.Duration
	begun    clock.Reading
	last     clock.Reading // of the last sign that was sent
	missed   bool          // a sign came too late once
}

const (
	progressTick = 250 * time.Millisecond
	stallGrace   = time.Second // in which what arrived during a stall is read
)

func newProgressAcks(b *Bus) *progressAcks {
	return &progressAcks{bus: b, holds: map[*hold]struct{}{}, begun: make(chan struct{}, 1)}
}

// add starts progress acks for m.
func (b *progressAcks) add(m *message, ackWait time.Duration) *hold {
	now := clock.Now()
	h := &hold{progress: b, message: m, ackWait: ackWait, begun: now, last: now}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.holds) == 0 {
		b.woke = now
		select {
		case b.begun <- struct{}{}:
		default:
		}
	}
	// A process that was suspended finds messages that the server has redelivered long ago.
	h.missed = now.Sub(b.stalled) < stallGrace || now.Sub(b.woke) > ackWait/2
	b.holds[h] = struct{}{}
	return h
}

// drop ends the progress acks of h.
func (b *progressAcks) drop(h *hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holds, h)
}

// late reports whether a progress ack may have come too late, or went to a server that considered this process gone. The server closes
// connections of silent clients, so a lost connection reveals a suspension even if all clocks of the host stopped.
func (h *hold) late() bool {
	if h.message.generation != h.progress.bus.Generation() {
		return true
	}
	h.progress.mu.Lock()
	defer h.progress.mu.Unlock()
	return h.missed || h.tooLate(clock.Now())
}

func (h *hold) tooLate(now clock.Reading) bool { return now.Sub(h.last) > h.ackWait*9/10 }

// run sends progress acks until ctx ends. It sleeps while no message is in flight.
func (b *progressAcks) run(ctx context.Context) {
	tick := time.NewTicker(progressTick)
	defer tick.Stop()
	for {
		b.mu.Lock()
		idle := len(b.holds) == 0
		b.mu.Unlock()
		if idle {
			tick.Stop()
			select {
			case <-ctx.Done():
				return
			case <-b.begun:
			}
			tick.Reset(progressTick)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.give(ctx, clock.Now())
		}
	}
}

// give sends the progress acks that are due.
func (b *progressAcks) give(ctx context.Context, now clock.Reading) {
	b.mu.Lock()
	if now.Sub(b.woke) > time.Second {
		b.stalled = now
	}
	b.woke = now
	var due, lost []*hold
	for h := range b.holds {
		if h.tooLate(now) {
			h.missed = true
		}
		switch {
		case now.Sub(h.last) < h.ackWait/3-progressTick/2:
		case h.message.inPlace():
			due = append(due, h)
		default:
			lost = append(lost, h)
		}
	}
	if len(lost) > 0 && !b.confirming {
		b.confirming = true
		b.bus.parts.Go(func() { b.confirm(ctx, lost) })
	}
	b.mu.Unlock()
	for _, h := range due {
		if err := h.message.inProgress(); err != nil {
			b.bus.log.Debug("keep-alive not sent", "error", err)
			continue
		}
		b.mu.Lock()
		h.last = now
		b.mu.Unlock()
	}
}

// confirm looks up messages that were in flight when the connection was lost. The next acks go to those that are still stored.
func (b *progressAcks) confirm(ctx context.Context, holds []*hold) {
	for _, h := range holds {
		err := h.message.confirm(ctx)
		if errors.Is(err, errReplaced) {
			b.drop(h) // no sign may be given of it: it would be one of another message
		} else if err != nil { // the next signs try again
			b.bus.log.Debug("message not confirmed after a reconnect", "error", err)
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirming = false
}
