// Package leases detects which workers are alive: each worker has an entry in a bucket that expires a few seconds after its last renewal.
// That an entry is missing proves the end of its worker only in several reads over a period, and only for a reader that held its own lease
// all that time. [Lease.Gone] is the one function that decides this.
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
	// TTL is how long after its last renewal a lease expires.
	TTL = streams.LeaseTTL
	// Renew is the time between renewals of a lease.
	Renew = time.Second
	// Settle is how long a worker must have held its own lease before the absence of another lease counts as that worker's end: after an
	// outage of the NATS server, all leases are missing for a moment.
	Settle = TTL + Renew
)

// Record is the value of a lease, for people who inspect the bucket, and for workers that compare their stores.
type Record struct {
	Worker   string    `json:"worker"`
	Provider string    `json:"provider"`
	Started  time.Time `json:"started"`
	Store    string    `json:"store,omitzero"` // identifies the workspaces that the worker has access to; empty: not relevant
	// Profile describes what the worker's provider can do on its host.
	Profile *schemas.Profile `json:"profile,omitzero"`
}

// Bucket is the bucket of the leases of all workers, by name of the worker.
type Bucket = streams.Bucket[Record]

// Open opens the bucket of leases.
func Open(b *streams.Bus) *Bucket { return streams.OpenBucket[Record](b, streams.Leases) }

// Lease is the lease of one worker: proof to others that it is alive. It is safe for concurrent use.
type Lease struct {
	bucket  *Bucket
	record  Record
	log     *slog.Logger
	fault   func() error  // for tests: its error makes a renewal fail
	missing chan struct{} // receives a value when a lease was not found

	mu      sync.Mutex
	renewed clock.Reading      // begin of the latest successful renewal; the lease expires TTL after a later moment
	since   clock.Reading      // since when it is held without a gap
	absent  map[string]absence // missing leases of other workers, by worker
}

// New returns a lease that is not held until [Lease.Keep] runs. Fault is called before each renewal, and its error makes the renewal fail,
// for tests; it may be nil.
func New(b *streams.Bus, r Record, log *slog.Logger, fault func() error) *Lease {
	if fault == nil {
		fault = func() error { return nil }
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Lease{bucket: Open(b), record: r, log: log, fault: fault, missing: make(chan struct{}, 1)}
}

// Record returns the value of the lease.
func (l *Lease) Record() Record { return l.record }

// Worker returns the name of the lease's worker.
func (l *Lease) Worker() string { return l.record.Worker }

// Keep renews the lease until ctx is done, and then releases it. It calls held after the first success.
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

// drop releases the lease, so that no other worker waits for its expiry. Only a worker without calls in flight may do so.
func (l *Lease) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Renew)
	defer cancel()
	if err := l.bucket.Delete(ctx, l.record.Worker); err != nil {
		l.log.Debug("lease not released, it expires", "error", err)
	}
}

// KeptSince reports whether the lease was held without a gap from t until now. If not, other workers may have taken over the work of this
// one.
func (l *Lease) KeptSince(t clock.Reading) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.since.After(t) && l.held(clock.Now())
}

// KeptFor reports whether the lease was held without a gap for at least d until now, by the monotonic clock.
func (l *Lease) KeptFor(d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	return now.AtLeast(l.since) >= d && l.held(now)
}

// Settled reports whether the lease has been held for [Settle]: then also the leases of all other living workers are back after an outage
// of the NATS server.
func (l *Lease) Settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := clock.Now()
	return l.held(now) && now.Sub(l.since) >= Settle
}

// held reports whether the lease has not expired. The caller holds the mutex.
func (l *Lease) held(now clock.Reading) bool { return now.Sub(l.renewed) < TTL }

// Held reports whether a worker's lease exists now. If not, the worker may still be alive: [Lease.Gone] decides that. Code: unavailable.
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

// All returns the existing leases. One that is being renewed at the moment may be missing.
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
