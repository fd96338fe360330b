package sandboxes

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// Where boxes end with the worker that made them each instance has an owner: several workers that share a log must not make a box
// each for the same sandbox and workspace.
//
// The log decides: the instance's row names its worker, and is made on the condition that there is none. It is taken over when its
// worker has no lease any more. A call for a box of another living worker is handed out again until that one gets it.
//
// What this worker owns it knows without asking, as long as it kept its lease: a call of a box that is there costs
// nothing.

// ErrElsewhere says that another living worker has the instance: the call is nak'ed, and redelivered to that worker.
var ErrElsewhere = errors.New("another worker has the instance")

// ownerTrusted is how long a worker believes that another one has a box.
const ownerTrusted = time.Second

// disownWithin is how long releasing all instances may take at the end of a worker.
const disownWithin = 5 * time.Second

// owners decides with the log which worker has an instance.
type owners struct{ *table }

// own makes sure that no other worker has the box of a call, where boxes end with their worker. Codes: unavailable (it is another's, or the
// log is unavailable: try again).
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

// claimRow reads on the log which worker has a box, and takes it for this worker if no living one has.
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

// rowOf is the row that this worker writes where there is none: what it knows of its own box, else of one that is to be made.
// Foreign: as far as it knows there is one of another worker.
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

// takeOver takes a row that is there, unless its worker lives.
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
	if h := b.held[key]; h == nil || h.rev <= have.rev || now.After(h.seen) { // the revisions of a recreated log are lower
		b.adopt(key, have, now)
	}
	return owner, nil
}

// formerOwner is the living worker of the version before that has a box, empty if there is none. What a dead one has left is removed.
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

// releaseLost ends what is left here of boxes that others have taken over.
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

// disownUnmade lets other workers have what could not be made here, once no call wants it.
func (b *owners) disownUnmade(ctx context.Context) {
	b.disown(ctx, func(h *instance) bool {
		return h.row.State == schemas.InstanceReserving && h.row.Ref.IsZero() && h.claims == 0 && h.calls == 0
	})
}

// DisownAll lets other workers have every instance, when this worker has no call in flight any more: none of them then waits for the end of
// its lease.
func (b *Instances) DisownAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, disownWithin)
	defer cancel()
	b.owners.disown(ctx, func(*instance) bool { return true })
}

// disown removes rows of this worker. One that cannot be removed is taken over once this worker has ended.
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
		if err := b.rows.DeleteRevision(ctx, b.rowKey(key), rev); err != nil {
			b.Log.Debug("sandbox instance not handed over, another worker takes it over later", "instance", key, "error", err)
		}
	}
}

// dropOrphans removes the rows of workers that have ended: their boxes have ended with them.
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

// reread takes in a row as the log has it now. A call that read it before its last change, and took it in after, has left an older
// one here, and the log reports each change once.
func (b *table) reread(ctx context.Context, key string) {
	now := clock.Now()
	p, err := b.rows.Get(ctx, b.rowKey(key))
	if err != nil {
		return // gone, which the log reports, or not readable now: the next look tries again
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h != nil && now.After(h.seen) {
		b.adopt(key, storedRow{p.Value, p.Revision}, now)
	}
}
