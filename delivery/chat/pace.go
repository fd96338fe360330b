package chat

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/delivery/channel"
	"github.com/sandjet/sandjet/schemas"
)

// Place is a channel or, if Destination is not empty, a chat in it.
type Place struct {
	// Channel is the id of a channel record, or an id for the credential that several records share, see [Sender.Digest].
	Channel     schemas.ChannelID
	Destination string
}

// Pacer coordinates all deliverers that share it, so that together they do not exceed a service's rate limits. It must be safe for
// concurrent use. On an error a deliverer applies the limits to itself alone.
type Pacer interface {
	// Take takes one turn from each of the limits and returns 0. If one of them has none left, or the place or its whole channel is
	// paused, it takes nothing and returns how long to wait before asking again.
	Take(ctx context.Context, at Place, limits []channel.Pace) (wait time.Duration, err error)
	// Rest pauses a place for all deliverers. It does not shorten a longer pause.
	Rest(ctx context.Context, at Place, wait time.Duration) error
}

const (
	// pacesKept is how long turns are stored. It must exceed the longest Per of a service.
	pacesKept = 2 * time.Hour
	// askedAgain is how long a failed shared pacer is not used, except by one call that tests it.
	askedAgain = 5 * time.Second
	// restWithin limits the time for publishing a pause to the other deliverers.
	restWithin = 3 * time.Second
)

// localPacer enforces the limits within one process. The zero value is ready. Safe for concurrent use.
type localPacer struct {
	mu    sync.Mutex
	turns map[limit][]time.Time // the times of the latest Events turns of each limit, oldest first
	swept time.Time
}

// limit is the key of a rate limit: the place for which it counts (without a destination: the whole channel), and its period.
type limit struct {
	of  Place
	per time.Duration
}

func limitOf(at Place, l channel.Pace) limit {
	if l.Of != channel.PerDestination {
		at.Destination = ""
	}
	return limit{at, l.Per}
}

// take is [Pacer.Take] for this process.
func (p *localPacer) take(at Place, limits []channel.Pace) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sweep(now)
	wait := time.Duration(0)
	for _, l := range limits {
		if t := p.turns[limitOf(at, l)]; l.Events > 0 && len(t) >= l.Events {
			wait = max(wait, t[len(t)-l.Events].Add(l.Per).Sub(now))
		}
	}
	if wait > 0 {
		return wait
	}
	p.count(at, limits, now)
	return 0
}

// note counts a turn that the shared pacer has granted.
func (p *localPacer) note(at Place, limits []channel.Pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.sweep(now)
	p.count(at, limits, now)
}

// count counts a turn. The mutex is held.
func (p *localPacer) count(at Place, limits []channel.Pace, now time.Time) {
	for _, l := range limits {
		if l.Events <= 0 || l.Per <= 0 {
			continue
		}
		t := append(p.turns[limitOf(at, l)], now)
		p.turns[limitOf(at, l)] = t[max(0, len(t)-l.Events):]
	}
}

// sweep removes old turns. The mutex is held.
func (p *localPacer) sweep(now time.Time) {
	if p.turns == nil {
		p.turns = map[limit][]time.Time{}
	}
	if now.Sub(p.swept) < time.Minute {
		return
	}
	p.swept = now
	for key, t := range p.turns {
		if now.Sub(t[len(t)-1]) > pacesKept {
			delete(p.turns, key)
		}
	}
}

// pacer takes turns from the shared pacer. While that fails, or if there is none, it enforces the limits itself: it always counts its own
// turns. Safe for concurrent use.
type pacer struct {
	shared Pacer // may be nil
	log    *slog.Logger
	local  localPacer

	mu     sync.Mutex
	failed bool
	again  time.Time // when the shared pacer is tried next, if failed
}

// take is [Pacer.Take], but never fails.
func (p *pacer) take(ctx context.Context, at Place, limits []channel.Pace) time.Duration {
	if !p.asks() {
		return p.local.take(at, limits)
	}
	wait, err := p.shared.Take(ctx, at, limits)
	switch {
	case !p.answered(ctx, err):
		return p.local.take(at, limits)
	case wait == 0:
		p.local.note(at, limits)
	}
	return wait
}

// rest publishes to the other deliverers how long to send nothing to a place.
func (p *pacer) rest(ctx context.Context, at Place, wait time.Duration) {
	if wait <= 0 || !p.asks() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restWithin)
	defer cancel()
	p.answered(ctx, p.shared.Rest(ctx, at, wait))
}

// asks reports whether to use the shared pacer now.
func (p *pacer) asks() bool {
	if p.shared == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.failed && now.Before(p.again) {
		return false
	}
	p.again = now.Add(askedAgain) // if it has failed, one call at a time tests it
	return true
}

// answered records whether the shared pacer works, by the error of a call, and reports whether its answer can be used.
func (p *pacer) answered(ctx context.Context, err error) bool {
	if err != nil && schemas.CodeOf(err) != schemas.Unavailable && ctx.Err() != nil {
		return false // the caller has stopped waiting, which says nothing about the pacer
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != (err != nil) {
		if err != nil {
			p.log.Warn("shared rate limits not reachable, limiting alone", "error", err)
		} else {
			p.log.Info("shared rate limits reachable again")
		}
	}
	p.failed = err != nil
	return err == nil
}
