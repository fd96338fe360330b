package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	leaseTTL   = streams.LeaseTTL
	leaseRenew = time.Second
	// leaseSettle is how long a worker must have kept its own lease before it takes the absence of
	// another's for its death: after an outage of the log everybody's lease is gone for a moment.
	leaseSettle = leaseTTL + leaseRenew
)

// sign is the value of a lease: for people who look into the bucket.
type sign struct {
	Worker   string    `json:"worker"`
	Provider string    `json:"provider"`
	Started  time.Time `json:"started"`
	Store    string    `json:"store,omitzero"` // which workspaces it sees, see [Storer]
}

// lease is a worker's sign of life on the log.
type lease struct {
	bucket *streams.Bucket[sign]
	sign   sign
	log    *slog.Logger
	fault  func() error // of tests: a renewal that does not reach the log

	mu      sync.Mutex
	renewed clock.Reading // when the last successful renewal was begun: the log has it from a later moment
	since   clock.Reading // since when it was held without a gap
}

// keep keeps the lease until ctx ends and takes it back then. It calls held after the first success.
func (l *lease) keep(ctx context.Context, held func()) {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	var once sync.Once
	for {
		if err := l.renew(ctx); err == nil {
			once.Do(held)
		} else if ctx.Err() == nil {
			l.log.Warn("lease not renewed", "error", err)
		}
		select {
		case <-ctx.Done():
			l.drop(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		}
	}
}

func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	begin := clock.Now()
	if err := l.fault(); err != nil {
		return err
	}
	if _, err := l.bucket.Put(ctx, l.sign.Worker, l.sign); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := clock.Now(); end.Sub(l.renewed) > leaseTTL {
		l.since = end
	}
	l.renewed = begin
	return nil
}

// drop ends the lease at once, so that nobody waits for it. Only a worker without calls in hand may.
func (l *lease) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaseRenew)
	defer cancel()
	if err := l.bucket.Delete(ctx, l.sign.Worker); err != nil {
		l.log.Debug("lease not taken back: it ends by itself", "error", err)
	}
}

// keptSince reports whether the lease was held without a gap from t until now. If not, others may
// have taken this worker for dead.
func (l *lease) keptSince(t clock.Reading) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.since.After(t) && l.held(clock.Now())
}

// keptSinceWall is keptSince for a moment that another host's clock told.
func (l *lease) keptSinceWall(t time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.since.Wall().After(t) && l.held(clock.Now())
}

// settled reports whether the absence of somebody's lease is proof by now.
func (l *lease) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	return l.held(now) && now.Sub(l.since) >= leaseSettle
}

// held reports whether the log has the lease now. The caller has the mutex.
func (l *lease) held(now clock.Reading) bool { return now.Sub(l.renewed) < leaseTTL }

// alive reports whether a worker that started a call still has its lease. But is the name of one
// that does not count: the caller knows better what it has in hand.
func alive(ctx context.Context, leases *streams.Bucket[sign], starts []schemas.StartedData, but string) (bool, error) {
	for _, p := range starts {
		if p.Worker == but {
			continue
		}
		if held, err := hasLease(ctx, leases, p.Worker); held || err != nil {
			return held, err
		}
	}
	return false, nil
}

// hasLease reports whether a worker still has its lease.
func hasLease(ctx context.Context, leases *streams.Bucket[sign], worker string) (bool, error) {
	kept, err := leases.Get(ctx, worker)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return false, fmt.Errorf("look for the lease of a worker: %w", err)
	}
	return err == nil && !kept.Deleted, nil
}
