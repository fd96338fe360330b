package durable

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/inturn"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultCleanEvery is the time between two passes of a [StreamCleaner].
const DefaultCleanEvery = 5 * time.Minute

// Accounts reports whether an account exists. It may be called from many goroutines.
type Accounts interface {
	// Get returns an account. The cause of a not_found is [streams.ErrDeleted] only if the account was removed.
	Get(ctx context.Context, a schemas.AccountID) (schemas.Document, error)
}

// StreamCleaner removes expired streams that no request touches, streams of deleted accounts, and leftovers of crashes: data without a
// record, and references to forks that were never made. If a source does not know one of its forks, it records the fork there, so that the
// source is kept. Leftovers and deleted accounts must be found in two consecutive passes before they are removed, so that data of an
// unfinished creation survives. Of all processes that run a StreamCleaner, one works at a time.
type StreamCleaner struct {
	Bus      *streams.Bus
	Accounts Accounts     // nil: streams remain when their account is deleted
	Log      *slog.Logger // nil: silent
	// Every is the time between two passes. Default [DefaultCleanEvery]. It must be longer than a request may take.
	Every time.Duration
}

// Run makes a pass every s.Every until ctx is done, then returns nil.
func (s *StreamCleaner) Run(ctx context.Context) error {
	log := s.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	begin := func() func(context.Context, *streams.Tenure) {
		b := newCleaning(s.Bus, s.Accounts)
		return func(ctx context.Context, t *streams.Tenure) {
			b.tenure = t
			if err := b.look(ctx); err != nil && ctx.Err() == nil {
				log.Warn("durable streams not cleaned up, retrying", "error", err)
			}
		}
	}
	return (&streams.Duty{Bus: s.Bus, Name: "durable", Every: cmp.Or(s.Every, DefaultCleanEvery), Log: log, Begin: begin}).Run(ctx)
}

// Bounds of a pass.
const (
	removalsOfRound   = 1000 // expired streams removed before all records are read again
	removalsOfCleanup = 5000 // leftovers removed in one pass
)

// cleaning is the state of a StreamCleaner between passes: which names may be leftovers.
type cleaning struct {
	store    *store
	accounts Accounts
	tenure   *streams.Tenure
	suspects map[streams.DurableName]bool // one without an ID is an account

	round, cleanup int // removals at most
}

func newCleaning(b *streams.Bus, accounts Accounts) *cleaning {
	return &cleaning{store: newStore(b, 0), accounts: accounts, round: removalsOfRound, cleanup: removalsOfCleanup}
}

// look makes one pass over all streams. It continues after failures. During a pass it holds the names and records of all streams in
// memory.
func (b *cleaning) look(ctx context.Context) error {
	data, err := b.store.log.Names(ctx) // before the records: what is younger than these has no part in it
	if err != nil {
		return err
	}
	all, err := b.records(ctx)
	if err != nil {
		return err
	}
	for _, f := range b.unheld(all) { // first: what a fork needs must not go in this look
		if err := b.holdAgain(ctx, f); err != nil {
			return err
		}
	}
	var errs []error
	tried := map[string]bool{}
	for left := true; left; { // what ends meanwhile waits for a round, and not for all that was over before
		var failed []error
		left, failed = b.removeOver(ctx, all, tried)
		if errs = append(errs, failed...); !left {
			break
		}
		if all, err = b.records(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(append(errs, b.cleanUp(ctx, all, data))...)
}

// records reads all records in one pass, not with a round trip for each.
func (b *cleaning) records(ctx context.Context) (all []found, err error) {
	for p, err := range b.store.records.All(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, found{p.Value, p.Revision})
	}
	return all, nil
}

// removeOver removes expired streams, at most b.round of them, taking accounts in turn. Left reports whether there are more that were not
// tried.
func (b *cleaning) removeOver(ctx context.Context, all []found, tried map[string]bool) (left bool, errs []error) {
	var over []found
	for _, f := range all {
		if b.over(f) && !tried[recordKey(f.Account, f.Path)] {
			over = append(over, f)
		}
	}
	over = inturn.Order(over, found.owner, func(x, y found) int { return cmp.Compare(x.revision, y.revision) })
	for _, f := range over[:min(b.round, len(over))] {
		tried[recordKey(f.Account, f.Path)] = true
		err := b.removeIfOver(ctx, f)
		if errs = append(errs, err); ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable) { // all would wait for the log in vain
			return false, errs
		}
	}
	return len(over) > b.round, errs
}

func (f found) owner() schemas.AccountID { return f.Account }

// removeIfOver reads a stream's record again and removes the stream if it is still expired.
func (b *cleaning) removeIfOver(ctx context.Context, f found) error {
	p, err := b.store.records.Get(ctx, recordKey(f.Account, f.Path))
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if f = (found{p.Value, p.Revision}); !b.over(f) {
		return nil
	}
	return b.held(func() error {
		_, err := b.store.removeWhile(ctx, f, func(r *Record) bool { return b.over(found{Record: *r}) })
		return err
	})
}

// removal is the removal of one leftover.
type removal struct {
	account schemas.AccountID
	at      int // in the order of its account
	remove  func() error
}

// cleanUp removes streams of deleted accounts, references to forks that were never made, and data without a record: at most b.cleanup of
// them, taking accounts in turn. The next pass finds the rest.
func (b *cleaning) cleanUp(ctx context.Context, all []found, data map[streams.DurableName]bool) error {
	var errs []error
	var due []removal
	add := func(a schemas.AccountID, remove func() error) { due = append(due, removal{a, len(due), remove}) }
	alive, kept := map[streams.DurableName]bool{}, []found{}
	suspects := map[streams.DurableName]bool{}
	// gone reports whether a name has belonged to nothing in this look and in the last one.
	gone := func(n streams.DurableName) bool {
		if alive[n] {
			return false
		}
		suspects[n] = true
		return b.suspects[n]
	}
	for _, f := range all {
		owner := streams.DurableName{Account: f.Account}
		if _, asked := alive[owner]; !asked {
			there, err := b.has(ctx, f.Account)
			alive[owner] = there
			errs = append(errs, err)
		}
		alive[streams.DurableName{Account: f.Account, ID: f.ID}] = true
		if gone(owner) {
			add(f.Account, func() error { return b.store.remove(ctx, f) }) // one with forks goes with the last of them
			continue
		}
		kept = append(kept, f)
	}
	for _, f := range kept {
		for id := range f.Forks {
			if gone(streams.DurableName{Account: f.Account, ID: id}) {
				add(f.Account, func() error { return b.store.release(ctx, f.Account, &Origin{Path: f.Path, ID: f.ID}, id) })
			}
		}
	}
	for n := range data {
		if gone(n) {
			add(n.Account, func() error { return b.store.log.Drop(ctx, n.Account, n.ID) })
		}
	}
	b.suspects = suspects
	due = inturn.Order(due, func(r removal) schemas.AccountID { return r.account }, func(x, y removal) int { return cmp.Compare(x.at, y.at) })
	for _, r := range due[:min(b.cleanup, len(due))] {
		err := b.held(r.remove)
		if errs = append(errs, err); ctx.Err() != nil || errors.Is(err, schemas.ErrUnavailable) {
			break
		}
	}
	return errors.Join(errs...)
}

// unheld returns the forks in use that their sources do not list. Such a source could be removed though the fork needs its data. It is
// pure but for the time.
func (b *cleaning) unheld(all []found) (forks []found) {
	type name struct {
		account schemas.AccountID
		path    string
		id      string
	}
	sources := map[name]*Record{}
	for i, f := range all {
		sources[name{f.Account, f.Path, f.ID}] = &all[i].Record
	}
	for _, f := range all {
		if f.Origin == nil || b.over(f) {
			continue
		}
		source := sources[name{f.Account, f.Origin.Path, f.Origin.ID}]
		if source != nil && source.Forks[f.ID] == "" {
			forks = append(forks, f)
		}
	}
	return forks
}

// holdAgain records a fork at its source, unless one of the two has been removed meanwhile.
func (b *cleaning) holdAgain(ctx context.Context, f found) error {
	p, err := b.store.records.Get(ctx, recordKey(f.Account, f.Path))
	if err == nil && p.Value.ID == f.ID {
		_, err = b.store.change(ctx, f.Account, f.Origin.Path, f.Origin.ID, func(r *Record) error {
			r.note(f.ID, f.Path)
			return nil
		})
	}
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	return err
}

// held calls remove if this process still holds the lock of the duty, so that no other process cleans at the same time.
func (b *cleaning) held(remove func() error) error {
	if err := b.tenure.Held(); err != nil {
		return err
	}
	return remove()
}

// over reports whether a stream is to be removed: it has expired, or it was deleted and its last fork is gone.
func (b *cleaning) over(f found) bool {
	return f.Ended && len(f.Forks) == 0 || !f.Ended && f.expired(b.store.now())
}

// has reports whether an account exists. It returns false only if the account was deleted: not if it cannot be read, nor if it has no
// record, which may be lost.
func (b *cleaning) has(ctx context.Context, a schemas.AccountID) (bool, error) {
	if b.accounts == nil {
		return true, nil
	}
	_, err := b.accounts.Get(ctx, a)
	switch {
	case errors.Is(err, streams.ErrDeleted):
		return false, nil
	case errors.Is(err, schemas.ErrNotFound):
		return true, nil
	}
	return true, err
}
