package durable

import (
	"context"
	"errors"
	"maps"

	"github.com/sandjet/sandjet/schemas"
)

// remove ends a stream. With forks its data stays, and the path is kept until they are gone. Without,
// the record goes first: what a crash leaves is data that nobody finds, but the [StreamCleaner].
func (s *store) remove(ctx context.Context, f found) error {
	for len(f.Forks) == 0 {
		err := s.log.Forget(ctx, recordKey(f.Account, f.Path), f.revision)
		if err == nil {
			return s.clear(ctx, f)
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		p, err := s.records.Get(ctx, recordKey(f.Account, f.Path))
		if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Value.ID != f.ID {
			return nil // somebody else has removed it
		}
		if err != nil {
			return err
		}
		f = found{p.Value, p.Revision}
	}
	if f.Ended {
		return nil
	}
	f, err := s.change(ctx, f.Account, f.Path, f.ID, func(r *Record) error {
		r.Ended = true
		return nil
	})
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return nil
	case err != nil:
		return err
	case len(f.Forks) == 0: // the last one went meanwhile
		return s.remove(ctx, f)
	}
	return s.log.Tell(f.Account, f.ID)
}

// clear removes the data of a stream that has no record any more, and lets go of its source.
func (s *store) clear(ctx context.Context, f found) error {
	err := s.log.Drop(ctx, f.Account, f.ID)
	if f.Origin != nil {
		err = errors.Join(err, s.release(ctx, f.Account, f.Origin, f.ID))
	}
	return errors.Join(err, s.log.Tell(f.Account, f.ID))
}

// release lets a stream know that a fork of it is gone. An ended one goes with its last fork.
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
