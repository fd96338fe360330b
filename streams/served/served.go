// Package served knows which providers have workers: workers note it, and gateways read it before they accept a call.
package served

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Every is how often the workers of a provider note that they serve it.
const Every = 30 * time.Second

// record says that a provider was served; the time is that of the record on the log.
type record struct {
	Provider string `json:"provider"`
}

// Note records that a provider is served, unless another worker has done so just now.
func Note(ctx context.Context, b *streams.Bus, provider string) error {
	bucket := streams.OpenBucket[record](b, streams.ServedProviders)
	p, err := bucket.Get(ctx, provider)
	switch {
	case err == nil && b.Now().Sub(p.Stored).Abs() < Every*2/3: // one of the future is from before the log's clock was set back
		return nil
	case err != nil && !errors.Is(err, schemas.ErrNotFound):
		return err
	}
	_, err = bucket.Put(ctx, provider, record{provider})
	return err
}

// DefaultGrace is how long calls of a provider are taken after its last worker was seen.
const DefaultGrace = 10 * time.Minute

// Providers knows from memory which providers are served. During its first moments all are, because the process that started it may be
// starting the workers too.
type Providers struct {
	Bus *streams.Bus
	// Grace is how long a provider counts as served after its last worker was seen, so that a worker may be
	// started again. Default [DefaultGrace].
	Grace time.Duration

	mu    sync.Mutex
	begun time.Time                    // by the log's clock; zero: it does not run yet
	look  time.Time                    // when the leases were read last, likewise
	able  map[string][]schemas.Profile // of the living workers as the leases were then, by provider
	seen  map[string]time.Time         // likewise
}

// firstGrace is how long after its start nothing is refused.
const firstGrace = 15 * time.Second

// Run follows the notes of the workers until ctx ends, then returns nil.
func (s *Providers) Run(ctx context.Context) error {
	s.mu.Lock()
	s.begun, s.seen = s.Bus.Now(), map[string]time.Time{}
	s.mu.Unlock()
	for p, err := range streams.OpenBucket[record](s.Bus, streams.ServedProviders).Watch(ctx) {
		if err != nil || p.Deleted {
			continue
		}
		s.see(p.Key, p.Stored)
		if s.Bus.Now().Sub(s.lookedAt()) > profilesKept {
			_ = s.readProfiles(ctx) // the next note, or a call that would be refused, tries again
		}
	}
	return nil
}

const (
	// profilesKept is for how long the profiles of living workers are taken for what holds.
	profilesKept = Every / 2
	// profilesSure is how old they may be when something is refused for them.
	profilesSure = 2 * time.Second
)

// lease is the part of a worker's lease that is read here.
type lease struct {
	Provider string           `json:"provider"`
	Profile  *schemas.Profile `json:"profile"`
}

func (s *Providers) lookedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look
}

// readProfiles reads the leases of all workers.
func (s *Providers) readProfiles(ctx context.Context) error {
	now, able := s.Bus.Now(), map[string][]schemas.Profile{}
	for p, err := range streams.OpenBucket[lease](s.Bus, streams.Leases).All(ctx) {
		switch {
		case err != nil:
			return err
		case p.Deleted || p.Value.Provider == "":
		case p.Value.Profile == nil: // it does not say, so it may be able to do all
			able[p.Value.Provider] = append(able[p.Value.Provider], schemas.Profile{})
		default:
			able[p.Value.Provider] = append(able[p.Value.Provider], *p.Value.Profile)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look, s.able = now, able
	return nil
}

// Keeps passes the profiles of a provider's living workers to ask. It returns nil if ask accepts one of them or if no profile is known;
// otherwise the error about one of them. It reads nothing from the log before it returns nil; before it returns an error it reads the
// leases again, at most every two seconds.
func (s *Providers) Keeps(ctx context.Context, provider string, ask func(schemas.Profile) error) error {
	err := s.asked(provider, ask)
	if err == nil || s.Bus.Now().Sub(s.lookedAt()) < profilesSure {
		return err
	}
	if s.readProfiles(ctx) != nil {
		return nil //nolint:nilerr // what is known is old: a worker will say
	}
	return s.asked(provider, ask)
}

// asked is [Providers.Keeps] without reading the log.
func (s *Providers) asked(provider string, ask func(schemas.Profile) error) (err error) {
	s.mu.Lock()
	able := s.able[provider] // never written to
	s.mu.Unlock()
	for _, p := range able {
		if p.Name == "" {
			return nil
		}
		if err = ask(p); err == nil {
			return nil
		}
	}
	return err
}

func (s *Providers) see(provider string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.seen[provider]) {
		s.seen[provider] = at
	}
}

// Serves reports whether a provider has a worker, or had one within the grace. It reads the log only before it returns false.
func (s *Providers) Serves(ctx context.Context, provider string) (bool, error) {
	now := s.Bus.Now()
	s.mu.Lock()
	yes := servedAt(s.begun, s.seen[provider], now, cmp.Or(s.Grace, DefaultGrace))
	s.mu.Unlock()
	if yes {
		return true, nil
	}
	living, err := LivingWorker(ctx, s.Bus, provider) // one of an older version notes nothing
	if living {
		s.see(provider, now)
	}
	return living, err
}

// servedAt is the rule of [Providers.Serves] as far as memory goes. It is pure.
func servedAt(begun, seen, now time.Time, grace time.Duration) bool {
	return begun.IsZero() || now.Sub(begun) < firstGrace || !seen.IsZero() && now.Sub(seen) < grace
}

// LivingWorker reports whether a worker of the provider has its lease. It reads every lease.
func LivingWorker(ctx context.Context, b *streams.Bus, provider string) (bool, error) {
	leases := streams.OpenBucket[record](b, streams.Leases)
	keys, err := leases.Keys(ctx)
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		p, err := leases.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound):
		case err != nil:
			return false, err
		case !p.Deleted && p.Value.Provider == provider:
			return true, nil
		}
	}
	return false, nil
}
