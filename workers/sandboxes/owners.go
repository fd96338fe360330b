package sandboxes

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// If instances end with the worker that created them, each instance has an owner: several workers of one deployment must not create an
// instance each for the same sandbox and workspace.
//
// The bucket decides: the instance's row names its worker, and is created on the condition that there is none. It is taken over when its
// worker is gone. A call for an instance of another living worker is redelivered until that worker gets it.
//
// A worker knows which instances it owns without reading, as long as it has held its lease, so a call that uses an existing instance
// causes no I/O.

// ErrElsewhere is the error for an instance that another living worker has: the call is nak'ed and redelivered, until that worker gets it.
var ErrElsewhere = errors.New("another worker has the instance")

// ownerTrusted is how long a worker relies on having read that another worker has an instance.
const ownerTrusted = time.Second

// disownWithin is the time limit for releasing all instances when a worker ends.
const disownWithin = 5 * time.Second

// owners determines, by the rows in the bucket, which worker has an instance.
type owners struct{ *table }

// own makes this worker the owner of a call's instance, if instances have owners. Codes: unavailable (another worker has it, or NATS is
// unavailable: retry).
func (b *owners) own(ctx context.Context, c schemas.Call) error {
	if !b.tied {
		return nil
	}
	key := Key(c)
	b.mu.Lock()
	h := b.at(key)
	row, seen := h.row, h.seen
	b.mu.Unlock()
	mine := row.Worker == b.me()
	switch {
	case mine && b.Lease.KeptSince(seen):
		return nil
	case row.Worker != "" && !mine && clock.Since(seen) < ownerTrusted:
		return elsewhere(nil)
	}
	owner, err := b.claimRow(ctx, c)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "reserve", "who has the sandbox's box cannot be read", err)
	}
	b.releaseLost(ctx)
	if owner != b.me() {
		return elsewhere(nil)
	}
	return nil
}

func elsewhere(err error) error {
	return schemas.Wrap(schemas.Unavailable, "reserve", "another worker keeps the sandbox's box: the call waits for it",
		errors.Join(ErrElsewhere, err))
}

// claimRow reads which worker has an instance, and takes it for this worker if no living worker has it.
func (b *owners) claimRow(ctx context.Context, c schemas.Call) (owner string, err error) {
	key := Key(c)
	row, foreign := b.rowOf(c)
	if foreign {
		if owner, err = b.takeOver(ctx, key, row); !errors.Is(err, schemas.ErrNotFound) {
			return owner, err
		}
	}
	now := clock.Now()
	owner, err = b.formerOwner(ctx, key)
	if owner != "" || err != nil {
		return owner, err
	}
	rev, err := b.rows.Create(ctx, b.rowKey(key), row, 0)
	if errors.Is(err, schemas.ErrConflict) {
		return b.takeOver(ctx, key, row)
	}
	if err != nil {
		return "", err
	}
	b.merge(key, storedRow{row, rev}, now)
	return b.me(), nil
}

// rowOf returns the row that this worker writes if there is none: of its own instance if it has one, otherwise of one that is about to be
// created. Foreign reports whether, as far as this worker knows, there is a row of another worker.
func (b *owners) rowOf(c schemas.Call) (row schemas.Instance, foreign bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[Key(c)]
	if h != nil && h.row.Worker == b.me() {
		return h.row, false
	}
	row = schemas.Instance{Account: c.Account, Sandbox: c.Sandbox, Workspace: c.Workspace, Provider: b.Name}
	lifecycle.ReserveInstance(&row, b.me(), b.Bus.Now())
	return row, h != nil && h.row.Worker != ""
}

// takeOver takes over an existing row, unless its worker is alive, and returns the owner. Code not_found: there is no row.
func (b *owners) takeOver(ctx context.Context, key string, mine schemas.Instance) (owner string, err error) {
	now := clock.Now()
	p, err := b.rows.Get(ctx, b.rowKey(key))
	if err != nil {
		return "", err
	}
	have := storedRow{p.Value, p.Revision}
	if owner = p.Value.Worker; owner != b.me() {
		gone, err := b.Lease.Gone(ctx, owner)
		if err != nil {
			return "", err
		}
		if gone {
			rev, err := b.rows.Update(ctx, b.rowKey(key), mine, p.Revision)
			if err != nil {
				return "", err
			}
			have, owner = storedRow{mine, rev}, b.me()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h == nil || h.rev <= have.rev || now.After(h.seen) { // a recreated stream has lower revisions
		b.adopt(key, have, now)
	}
	return owner, nil
}

// formerOwner returns the living worker of the previous version that has an instance; empty if there is none. It removes what a dead
// worker of that version has left.
func (b *owners) formerOwner(ctx context.Context, key string) (string, error) {
	former := "owner." + b.rowKey(key)
	p, err := b.rows.Get(ctx, former)
	if errors.Is(err, schemas.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	gone, err := b.Lease.Gone(ctx, p.Value.Worker)
	if err != nil {
		return "", err
	}
	if !gone {
		return p.Value.Worker, nil
	}
	return "", b.rows.DeleteRevision(ctx, former, p.Revision)
}

// releaseLost releases the instances here that other workers have taken over.
func (b *owners) releaseLost(ctx context.Context) {
	b.mu.Lock()
	lost := b.lost
	b.lost = nil
	b.mu.Unlock()
	for _, ref := range lost {
		if err := b.reserver.Release(ctx, ref); err != nil {
			b.Log.Warn("sandbox instance taken over by another worker not released, retrying", "error", err)
			b.mu.Lock()
			b.lost = append(b.lost, ref)
			b.mu.Unlock()
		}
	}
}

// disownUnmade removes the rows of instances that could not be created here, once no call needs them, so that other workers can create
// them.
func (b *owners) disownUnmade(ctx context.Context) {
	b.disown(ctx, func(h *instance) bool {
		return h.row.State == schemas.InstanceReserving && h.row.Ref.IsZero() && h.claims == 0 && h.calls == 0
	})
}

// DisownAll removes the rows of all instances of this worker, which must have no calls in flight: other workers then need not wait until
// its lease has expired.
func (b *Instances) DisownAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, disownWithin)
	defer cancel()
	b.owners.disown(ctx, func(*instance) bool { return true })
}

// disown removes rows of this worker. A row that cannot be removed is taken over once this worker has ended.
func (b *owners) disown(ctx context.Context, which func(*instance) bool) {
	if !b.tied {
		return
	}
	mine := map[string]uint64{}
	b.mu.Lock()
	for key, h := range b.held {
		if h.row.Worker == b.me() && h.rev != 0 && which(h) {
			mine[key] = h.rev
			delete(b.held, key)
		}
	}
	b.mu.Unlock()
	for key, rev := range mine {
		if ctx.Err() != nil {
			return
		}
		err := b.rows.DeleteRevision(ctx, b.rowKey(key), rev)
		if err == nil {
			continue
		}
		b.Log.Debug("sandbox instance not handed over, another worker takes it over later", "instance", key, "error", err)
		if errors.Is(err, schemas.ErrConflict) { // a request has changed it: this worker must learn of the request, which the watch does not repeat
			b.relearn(ctx, key)
		}
	}
}

// dropOrphans removes the rows of workers that have ended; their instances have ended with them.
func (b *owners) dropOrphans(ctx context.Context) {
	if !b.tied || !b.Lease.Settled() {
		return
	}
	foreign := map[string]storedRow{}
	b.mu.Lock()
	for key, h := range b.held {
		if h.row.Worker != "" && h.row.Worker != b.me() {
			foreign[key] = storedRow{h.row, h.rev}
		}
	}
	b.mu.Unlock()
	ended := map[string]bool{}
	for key, have := range foreign {
		gone, asked := ended[have.row.Worker]
		if !asked {
			var err error
			if gone, err = b.Lease.Gone(ctx, have.row.Worker); err != nil {
				return
			}
			ended[have.row.Worker] = gone
		}
		if !gone {
			continue
		}
		if err := b.rows.DeleteRevision(ctx, b.rowKey(key), have.rev); err != nil {
			b.Log.Debug("lease record of an ended worker not removed", "instance", key, "error", err)
			if errors.Is(err, schemas.ErrConflict) {
				b.reread(ctx, key)
			}
			continue
		}
		b.forget(key, have.rev+1)
	}
}

// relearn reads a row again and stores it in its entry, which it creates if there is none.
func (b *table) relearn(ctx context.Context, key string) {
	now := clock.Now()
	if p, err := b.rows.Get(ctx, b.rowKey(key)); err == nil { // otherwise the row is gone, or it is taken over or swept later
		b.merge(key, storedRow{p.Value, p.Revision}, now)
	}
}

// reread reads a row again and stores it in its entry. The entry may be outdated, if a call read the row before its last change and stored
// it after the watch reported the change.
func (b *table) reread(ctx context.Context, key string) {
	now := clock.Now()
	p, err := b.rows.Get(ctx, b.rowKey(key))
	if err != nil {
		return // the watch reports a removed row; another error is retried at the next check
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h != nil && now.After(h.seen) {
		b.adopt(key, storedRow{p.Value, p.Revision}, now)
	}
}
