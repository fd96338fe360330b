package durable

import (
	"context"
	"errors"
	"maps"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// remove deletes a stream. If it has forks, its data and its record stay until the last one is gone. Otherwise the record is removed
// first; after a crash in between, the [StreamCleaner] removes the data.
func (s *store) remove(ctx context.Context, f found) error {
	_, err := s.removeWhile(ctx, f, func(*Record) bool { return true })
	return err
}

// errKept is the error for a stream that must not be removed any more.
var errKept = errors.New("the stream is in use again")

// removeWhile is remove on a condition, which is checked again if another process changes the record meanwhile. If it no longer holds, the
// stream stays, and its present record is returned; otherwise kept is nil.
func (s *store) removeWhile(ctx context.Context, f found, holds func(*Record) bool) (kept *found, err error) {
	var contest streams.Contest
	for len(f.Forks) == 0 {
		err := s.log.Forget(ctx, recordKey(f.Account, f.Path), f.revision)
		if err == nil {
			return nil, s.clear(ctx, f)
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return nil, err
		}
		if err := contest.Again(ctx); err != nil {
			return nil, err
		}
		p, err := s.records.Get(ctx, recordKey(f.Account, f.Path))
		if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Value.ID != f.ID {
			return nil, nil //nolint:nilnil // another process has removed it
		}
		if err != nil {
			return nil, err
		}
		if f = (found{p.Value, p.Revision}); !holds(&f.Record) {
			return &f, nil
		}
	}
	if f.Ended {
		return nil, nil //nolint:nilnil // it goes with its last fork
	}
	next, err := s.change(ctx, f.Account, f.Path, f.ID, func(r *Record) error {
		if !holds(r) {
			return errKept
		}
		r.Ended = true
		return nil
	})
	switch {
	case errors.Is(err, errKept):
		next, err := s.records.Get(ctx, recordKey(f.Account, f.Path))
		return &found{next.Value, next.Revision}, err
	case errors.Is(err, schemas.ErrNotFound):
		return nil, nil //nolint:nilnil // another process has removed it
	case err != nil:
		return nil, err
	case len(next.Forks) == 0: // the last one went meanwhile
		return nil, s.remove(ctx, next)
	}
	return nil, s.log.Notify(next.Account, next.ID)
}

// clear removes the data of a stream whose record was removed, and releases the stream that it was forked from.
func (s *store) clear(ctx context.Context, f found) error {
	err := s.log.Drop(ctx, f.Account, f.ID)
	if f.Origin != nil {
		err = errors.Join(err, s.release(ctx, f.Account, f.Origin, f.ID))
	}
	return errors.Join(err, s.log.Notify(f.Account, f.ID))
}

// release removes a fork from its source's record. A source that was deleted before is removed with its last fork.
func (s *store) release(ctx context.Context, a schemas.AccountID, o *Origin, fork string) error {
	f, err := s.change(ctx, a, o.Path, o.ID, func(r *Record) error {
		r.Forks = maps.Clone(r.Forks)
		delete(r.Forks, fork)
		return nil
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil || !f.Ended || len(f.Forks) > 0 {
		return err
	}
	return s.remove(ctx, f)
}
