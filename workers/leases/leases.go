// Package leases knows which workers live: each keeps a row in a bucket that goes a few seconds after it was last
// renewed. The absence of another's row is proof of its end only in several reads over a time, for a worker that kept its own row
// meanwhile: [Lease.Gone] is the one place that decides it.
package leases

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
	// TTL is how long a lease outlasts its last renewal.
	TTL = streams.LeaseTTL
	// Renew is how often a lease is renewed.
	Renew = time.Second
	// Settle is how long a worker must have kept its own lease before it takes the absence of another's for its death:
	// after an outage of the log everybody's lease is gone for a moment.
	Settle = TTL + Renew
)

// Record is the value of a lease: for people who look into the bucket, and for workers that compare their stores.
type Record struct {
	Worker   string    `json:"worker"`
	Provider string    `json:"provider"`
	Started  time.Time `json:"started"`
	Store    string    `json:"store,omitzero"` // which workspaces the worker sees; empty: that does not matter
	// Profile is what the worker's provider can do on its host.
	Profile *schemas.Profile `json:"profile,omitzero"`
}

// Bucket holds the leases of all workers by their names.
type Bucket = streams.Bucket[Record]

// Open opens the bucket of leases.
func Open(b *streams.Bus) *Bucket { return streams.OpenBucket[Record](b, streams.Leases) }

// Lease is a worker's sign of life on the log. Its methods may be called from any number of goroutines.
type Lease struct {
	bucket  *Bucket
	record  Record
	log     *slog.Logger
	fault   func() error  // of tests: a renewal that does not reach the log
	missing chan struct{} // has a token when a lease was not found

	mu      sync.Mutex
	renewed clock.Reading      // when the last successful renewal was begun: the log has it from a later moment
	since   clock.Reading      // since when it was held without a gap
	absent  map[string]absence // leases of other workers that were not found, by worker
}

// New makes a lease that is not held until [Lease.Keep] runs. Fault, which may be nil, is asked before each renewal,
// and its error is that of the renewal: tests let renewals fail with it.
func New(b *streams.Bus, r Record, log *slog.Logger, fault func() error) *Lease {
	if fault == nil {
		fault = func() error { return nil }
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Lease{bucket: Open(b), record: r, log: log, fault: fault, missing: make(chan struct{}, 1)}
}

// Record is what the lease says about its worker.
func (l *Lease) Record() Record { return l.record }

// Worker is the name of the lease's worker.
func (l *Lease) Worker() string { return l.record.Worker }

// Keep keeps the lease until ctx ends and takes it back then. It calls held after the first success.
func (l *Lease) Keep(ctx context.Context, held func()) {
	var probing sync.WaitGroup
	defer probing.Wait()
	probing.Go(func() { l.probe(ctx) })
	tick := time.NewTicker(Renew)
	defer tick.Stop()
	var once sync.Once
	for {
		if err := l.renew(ctx); err == nil {
			once.Do(held)
		} else if ctx.Err() == nil {
			l.log.Warn("lease not renewed, retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			l.drop(context.WithoutCancel(ctx))
			return
		case <-tick.C:
		}
	}
}

func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Renew)
	defer cancel()
	begin := clock.Now()
	if err := l.fault(); err != nil {
		return err
	}
	if _, err := l.bucket.Put(ctx, l.record.Worker, l.record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := clock.Now(); end.Sub(l.renewed) > TTL {
		l.since = end
	}
	l.renewed = begin
	return nil
}

// drop ends the lease at once, so that no other worker waits for its end. Only a worker without calls in flight may.
func (l *Lease) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Renew)
	defer cancel()
	if err := l.bucket.Delete(ctx, l.record.Worker); err != nil {
		l.log.Debug("lease not released, it expires", "error", err)
	}
}

// KeptSince reports whether the lease was held without a gap from t until now. If not, others may
// have taken this worker for dead.
func (l *Lease) KeptSince(t clock.Reading) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.since.After(t) && l.held(clock.Now())
}

// KeptFor reports whether the lease was held without a gap for at least d until now, by a clock that cannot be set.
func (l *Lease) KeptFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	return now.AtLeast(l.since) >= d && l.held(now)
}

// Settled reports whether the lease was held for so long that those of all living workers are there too after an outage of the log.
func (l *Lease) Settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	return l.held(now) && now.Sub(l.since) >= Settle
}

// held reports whether the log has the lease now. The caller has the mutex.
func (l *Lease) held(now clock.Reading) bool { return now.Sub(l.renewed) < TTL }

// Held reports whether a worker's lease is there now. That it is not does not mean that the worker has ended: [Lease.Gone].
func Held(ctx context.Context, all *Bucket, worker string) (bool, error) {
	kept, err := all.Get(ctx, worker)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return false, fmt.Errorf("look for the lease of a worker: %w", err)
	}
	return err == nil && !kept.Deleted, nil
}

// Held is [Held] in the lease's own bucket.
func (l *Lease) Held(ctx context.Context, worker string) (bool, error) {
	return Held(ctx, l.bucket, worker)
}

// All lists the leases that there are. One that is just being renewed may be missing.
func (l *Lease) All(ctx context.Context) ([]Record, error) {
	var all []Record
	for p, err := range l.bucket.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the leases of workers: %w", err)
		}
		if !p.Deleted {
			all = append(all, p.Value)
		}
	}
	return all, nil
}
