package durable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultSweep is the time between two looks of a [Sweeper].
const DefaultSweep = 5 * time.Minute

// Sweeper removes streams whose time is over though nobody asks for them, and what crashes have left:
// data without a stream, and forks that a stream is kept for though they were never made. Leftovers
// must be seen in two looks, so that what is being made is left alone. One per deployment is enough,
// more do no harm.
type Sweeper struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
	// Every is the time between two looks. Default [DefaultSweep]. It must be longer than a request.
	Every time.Duration
}

// Run sweeps until ctx ends, and returns nil then.
func (s *Sweeper) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	tick := time.NewTicker(cmp.Or(s.Every, DefaultSweep))
	defer tick.Stop()
	b := &broom{store: newStore(s.Bus, 0)}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := b.sweep(ctx); err != nil && ctx.Err() == nil {
				log.Warn("durable streams are not swept: that is tried again", "error", err)
			}
		}
	}
}

// broom remembers from one look to the next what may be a leftover.
type broom struct {
	store    *store
	suspects map[streams.DurableName]bool
}

// sweep looks once at everything. It goes on after failures.
func (b *broom) sweep(ctx context.Context) error {
	data, err := b.store.log.Names(ctx) // before the records: what is younger than these has no part in it
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	keys, err := b.store.records.Keys(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it is coded already
	}
	var errs []error
	alive, kept := map[streams.DurableName]bool{}, []found{}
	for _, key := range keys {
		p, err := b.store.records.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) {
			continue
		}
		if err != nil {
			return err //nolint:wrapcheck // what cannot be read must not be taken for gone
		}
		f := found{p.Value, p.Revision}
		if f.Ended && len(f.Forks) == 0 || !f.Ended && f.expired(b.store.now()) {
			errs = append(errs, b.store.remove(ctx, f))
			continue
		}
		alive[streams.DurableName{Account: f.Account, ID: f.ID}] = true
		kept = append(kept, f)
	}
	suspects := map[streams.DurableName]bool{}
	// gone reports whether a name has belonged to no stream in this look and in the last one.
	gone := func(n streams.DurableName) bool {
		if alive[n] {
			return false
		}
		suspects[n] = true
		return b.suspects[n]
	}
	for _, f := range kept {
		for id := range f.Forks {
			if gone(streams.DurableName{Account: f.Account, ID: id}) {
				errs = append(errs, b.store.release(ctx, f.Account, &Origin{Path: f.Path, ID: f.ID}, id))
			}
		}
	}
	for n := range data {
		if gone(n) {
			errs = append(errs, b.store.log.Drop(ctx, n.Account, n.ID))
		}
	}
	b.suspects = suspects
	return errors.Join(errs...)
}
