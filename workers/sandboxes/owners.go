package sandboxes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

// owners knows which worker has a kept box, where boxes end with the worker that made them: several workers that
// share a log must not make a box each for the same sandbox and workspace.
//
// The log decides: a row in the bucket boxes under "owner.<provider>.<Key>", made on the condition that there is
// none. It is taken over when its worker has no lease any more. A call for a box of another living worker is handed
// out again until that one gets it.
//
// What this worker owns it knows without asking, as long as it kept its lease: a call of a box that is there costs
// nothing.
type owners struct {
	bucket *streams.Bucket[ownerRow]
	lease  *leases.Lease
	prefix string

	mu   sync.Mutex
	rows map[string]owned // by Key
}

// ownerRow is the value of a row.
type ownerRow struct {
	Worker string `json:"worker"`
}

// owned is what this worker knows of a row.
type owned struct {
	worker string
	rev    uint64
	seen   clock.Reading // the log had it then
	asked  time.Time     // when a call last wanted the box
}

// ErrElsewhere says that another living worker has the instance: the call goes back to the log, where that worker finds it.
var ErrElsewhere = errors.New("another worker has the instance")

// ownerTrusted is how long a worker believes that another one has a box.
const ownerTrusted = time.Second

// disownWithin is what giving up all instances may take at the end of a worker.
const disownWithin = 5 * time.Second

// own makes sure that this worker has the box of a key. Lost tells that another one took it over meanwhile: what is
// left of it here must go. Codes: unavailable (it is another's, or the log is away: try again).
func (o *owners) own(ctx context.Context, key string) (lost bool, err error) {
	o.mu.Lock()
	have, ok := o.rows[key]
	if ok {
		have.asked = time.Now()
		o.rows[key] = have
	}
	o.mu.Unlock()
	mine := ok && have.worker == o.lease.Worker()
	switch {
	case mine && o.lease.KeptSince(have.seen):
		return false, nil
	case ok && !mine && clock.Since(have.seen) < ownerTrusted:
		return false, elsewhere(nil)
	}
	now, err := o.settle(ctx, key)
	if err != nil {
		return false, schemas.Wrap(schemas.Unavailable, "reserve", "who has the sandbox's box cannot be told", err)
	}
	now.asked = time.Now()
	o.mu.Lock()
	o.rows[key] = now
	o.mu.Unlock()
	if now.worker != o.lease.Worker() {
		return mine, elsewhere(nil)
	}
	return false, nil
}

func elsewhere(err error) error {
	return schemas.Wrap(schemas.Unavailable, "reserve", "another worker keeps the sandbox's box: the call waits for it", errors.Join(ErrElsewhere, err))
}

// settle finds on the log who has a box, and takes it for this worker when nobody living has.
func (o *owners) settle(ctx context.Context, key string) (owned, error) {
	me, now := ownerRow{Worker: o.lease.Worker()}, clock.Now()
	rev, err := o.bucket.Create(ctx, o.prefix+key, me, 0)
	if err == nil {
		return owned{worker: me.Worker, rev: rev, seen: now}, nil
	}
	if !errors.Is(err, schemas.ErrConflict) {
		return owned{}, err
	}
	now = clock.Now()
	p, err := o.bucket.Get(ctx, o.prefix+key)
	if err != nil {
		return owned{}, err
	}
	if p.Value.Worker == me.Worker {
		return owned{worker: me.Worker, rev: p.Revision, seen: now}, nil
	}
	held, err := o.lease.Held(ctx, p.Value.Worker)
	if err != nil {
		return owned{}, err
	}
	if held || !o.lease.Settled() {
		return owned{worker: p.Value.Worker, rev: p.Revision, seen: now}, nil
	}
	rev, err = o.bucket.Update(ctx, o.prefix+key, me, p.Revision)
	if err != nil {
		return owned{}, err
	}
	return owned{worker: me.Worker, rev: rev, seen: now}, nil
}

// disown gives up a box that has ended. A row that cannot be removed is taken over once this worker has ended, or is
// this worker's still when it makes the box anew.
func (o *owners) disown(ctx context.Context, key string) {
	o.mu.Lock()
	have, ok := o.rows[key]
	delete(o.rows, key)
	o.mu.Unlock()
	if ok && have.worker == o.lease.Worker() {
		_ = o.bucket.DeleteRevision(ctx, o.prefix+key, have.rev)
	}
}

// disownAll gives up every box, at the end of this worker: nobody then waits for the end of its lease.
func (o *owners) disownAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, disownWithin)
	defer cancel()
	o.mu.Lock()
	keys := make([]string, 0, len(o.rows))
	for key := range o.rows {
		keys = append(keys, key)
	}
	o.mu.Unlock()
	for _, key := range keys {
		if ctx.Err() != nil {
			return
		}
		o.disown(ctx, key)
	}
}

// unasked drops what was known of boxes of others, so that the map does not grow, and lists this worker's own that
// no call has wanted for a while.
func (o *owners) unasked(since time.Duration) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var mine []string
	for key, have := range o.rows {
		switch {
		case have.worker != o.lease.Worker() && clock.Since(have.seen) >= ownerTrusted:
			delete(o.rows, key)
		case have.worker == o.lease.Worker() && time.Since(have.asked) >= since:
			mine = append(mine, key)
		}
	}
	return mine
}
