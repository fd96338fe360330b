package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// boxes are the kept boxes that this worker knows of: those that its calls have used and, where boxes
// outlive their worker, those of the other workers of its provider, whose rows are on the log.
//
// It keeps a few words for each box, for as long as the box is there.
type boxes struct {
	*shift

	rows   *streams.Bucket[boxRow] // nil: boxes end with their worker, and so does what is known of them
	owners *owners                 // nil: any worker reaches any box

	mu   sync.Mutex
	held map[string]*heldBox // by boxKey
}

// boxRow is what is known of a kept box. Where boxes outlive their worker it is in the bucket boxes,
// under "<provider>.<boxKey>", and changed on the condition that nobody else has.
type boxRow struct {
	Account   schemas.AccountID   `json:"account"`
	Sandbox   schemas.SandboxID   `json:"sandbox"`
	Workspace schemas.WorkspaceID `json:"workspace"`
	Provider  string              `json:"provider"`
	Ref       schemas.Ref         `json:"ref"`
	Made      time.Time           `json:"made"` // when it was first used
	Used      time.Time           `json:"used"` // when a call or a job was last in it, see boxTold
	// Deadline is made once, with the box: what its sandbox says later counts for the next box.
	Deadline time.Time `json:"deadline"`
	Hooked   time.Time `json:"hooked,omitzero"`  // when its onCreate scripts had run; zero: they have not
	Hooking  string    `json:"hooking,omitzero"` // the worker that runs them
	Ending   time.Time `json:"ending,omitzero"`  // since when nothing may enter, because it is being released
}

// heldBox is one kept box in this worker's memory.
type heldBox struct {
	row    boxRow
	rev    uint64        // of the row on the log
	calls  int           // of this worker that are in it
	script chan struct{} // has one place: who runs scripts in it
}

// errBoxGone says that a box has ended since it was reserved.
var errBoxGone = errors.New("the box is gone")

// boxTold is how old a row may be, at most, while something is in its box.
const boxTold = 30 * time.Second

func newBoxes(s *shift) *boxes {
	b := &boxes{shift: s, held: map[string]*heldBox{}}
	if !providers.ProfileOf(s.Provider).JobsEndWithWorker {
		b.rows = streams.OpenBucket[boxRow](s.Bus, streams.Boxes)
	} else {
		b.owners = &owners{bucket: streams.OpenBucket[ownerRow](s.Bus, streams.Boxes), lease: s.lease, prefix: "owner." + s.Name + ".", rows: map[string]owned{}}
	}
	return b
}

func (b *boxes) rowKey(key string) string { return b.Name + "." + key }

// shared is how old what this worker knows of a box's use may be. It is 0 where nobody else uses it.
func (b *boxes) shared() time.Duration {
	if b.rows == nil {
		return 0
	}
	return boxTold + 2*b.ProbeEvery
}

// acquire gets the kept box of an order, ready for use: reserved, within its time, its scripts run. The
// call is in it from then on, until leave. Codes: those of Reserve; unavailable (it is just being ended
// or made ready elsewhere: try again), invalid (a script has failed).
func (t *turn) acquire(ctx context.Context, r providers.Reserver, key string, o *order) error {
	const tries = 3
	if err := t.boxes.own(ctx, r, key); err != nil {
		return err
	}
	for range tries {
		ref, err := r.Reserve(ctx, key, o.command.Spec)
		if err != nil {
			return fmt.Errorf("reserve the sandbox: %w", err)
		}
		o.command.Sandbox = ref
		h, err := t.boxes.admit(ctx, t.call, o.sandbox, ref)
		if err == nil {
			t.enter(h)
			err = t.prime(ctx, r, h, *o)
		}
		if !errors.Is(err, errBoxGone) {
			return err
		}
	}
	return schemas.Errorf(schemas.Unavailable, "reserve", "the sandbox's box ends again and again: the call waits for one that stays")
}

// own makes sure that no other worker has the box, where boxes end with their worker.
func (b *boxes) own(ctx context.Context, r providers.Reserver, key string) error {
	if b.owners == nil {
		return nil
	}
	lost, err := b.owners.own(ctx, key)
	if lost { // this worker was taken for dead: what others see now is another box
		b.mu.Lock()
		h := b.held[key]
		if h != nil {
			delete(b.held, key)
		}
		b.mu.Unlock()
		if h != nil {
			_ = r.Release(ctx, h.row.Ref)
		}
	}
	return err
}

// disownUnused lets other workers have what is not here any more. A box that has just ended may be being made anew
// by a call, so that takes as long as no call has wanted it.
func (b *boxes) disownUnused(ctx context.Context) {
	if b.owners == nil {
		return
	}
	for _, key := range b.owners.unasked(max(b.ProbeEvery, time.Second)) {
		b.mu.Lock()
		_, held := b.held[key]
		b.mu.Unlock()
		if !held {
			b.owners.disown(ctx, key)
		}
	}
}

// disownAll is disown for every box, when the worker has no call in hand any more.
func (b *boxes) disownAll(ctx context.Context) {
	if b.owners != nil {
		b.owners.disownAll(ctx)
	}
}

// enter notes that the turn is in a box. A turn that had to reserve its box again is in there once.
func (t *turn) enter(h *heldBox) {
	if t.inside != nil {
		t.leave()
	}
	t.inside = h
}

// leave notes that the turn is in no box any more.
func (t *turn) leave() {
	if t.inside == nil {
		return
	}
	t.boxes.mu.Lock()
	defer t.boxes.mu.Unlock()
	t.inside.calls--
	t.inside.row.Used = t.Bus.Now()
	t.inside = nil
}

// admit lets a call into the box that was reserved for it and counts it there. Codes: unavailable (the
// box is at its end, or the log is away); errBoxGone: somebody else was faster, reserve again.
func (b *boxes) admit(ctx context.Context, c schemas.Call, s schemas.Sandbox, ref schemas.Ref) (*heldBox, error) {
	now := b.Bus.Now()
	key := boxKey(c)
	have, err := b.load(ctx, key)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	h := b.held[key]
	if h == nil {
		h = &heldBox{script: make(chan struct{}, 1)}
		b.held[key] = h
	}
	if have.rev != 0 && have.rev >= h.rev {
		h.row, h.rev = have.row, have.rev
	}
	b.mu.Unlock()
	counted := false
	err = b.change(ctx, key, h, func(row *boxRow) error {
		before := row.Used
		if row.Ref != ref {
			*row = newBoxRow(c, s, b.Name, ref, now)
			before = now
		}
		if !row.Ending.IsZero() || !now.Before(row.Deadline) {
			return schemas.Errorf(schemas.Unavailable, "reserve", "the sandbox's box is at the end of its life: the call waits for the next one")
		}
		if now.Sub(before) >= min(boxTold, idleTimeout(s)/4) { // else others know already that it is used
			row.Used = now
		}
		if !counted {
			h.calls++ // from here on it is not ended here
			counted = true
		}
		return nil
	})
	if err != nil && counted {
		b.mu.Lock()
		h.calls--
		b.mu.Unlock()
	}
	return h, err
}

func newBoxRow(c schemas.Call, s schemas.Sandbox, provider string, ref schemas.Ref, now time.Time) boxRow {
	row := boxRow{
		Account: c.Account, Sandbox: c.Sandbox, Workspace: c.Workspace, Provider: provider, Ref: ref,
		Made: now, Used: now, Deadline: now.Add(maxLifetime(s)),
	}
	if len(s.OnCreate) == 0 {
		row.Hooked = now // scripts that come later are for the next box
	}
	return row
}

// stored is a row with its revision.
type storedBox struct {
	row boxRow
	rev uint64 // 0: there is none
}

// load reads the row of a box, where rows are on the log.
func (b *boxes) load(ctx context.Context, key string) (storedBox, error) {
	if b.rows == nil {
		return storedBox{}, nil
	}
	p, err := b.rows.Get(ctx, b.rowKey(key))
	switch {
	case errors.Is(err, schemas.ErrNotFound):
		return storedBox{}, nil
	case err != nil:
		return storedBox{}, schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be read", err)
	}
	return storedBox{p.Value, p.Revision}, nil
}

// change changes the row of a box on the condition that nobody else has, no other goroutine of this worker
// either; how is asked again about what they have made of it. It runs under the lock, and its error leaves
// all as it was. Codes: unavailable; errBoxGone: the box is not h any more.
func (b *boxes) change(ctx context.Context, key string, h *heldBox, how func(*boxRow) error) error {
	for {
		rev, row, err := b.decide(key, h, how)
		if err != nil || row == nil {
			return err
		}
		if rev == 0 {
			rev, err = b.rows.Create(ctx, b.rowKey(key), *row, 0)
		} else {
			rev, err = b.rows.Update(ctx, b.rowKey(key), *row, rev)
		}
		have := storedBox{*row, rev}
		conflict := errors.Is(err, schemas.ErrConflict)
		if conflict {
			have, err = b.load(ctx, key)
		}
		if err != nil {
			return schemas.Wrap(schemas.Unavailable, "reserve", "what is known of the box cannot be written", err)
		}
		b.learn(key, have)
		if !conflict {
			return nil
		}
	}
}

// decide makes the changed row of a box, nil where there is nothing to write, with the revision that it is
// to replace. Where boxes end with their worker it counts at once.
func (b *boxes) decide(key string, h *heldBox, how func(*boxRow) error) (rev uint64, changed *boxRow, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == nil || b.held[key] != h {
		return 0, nil, errBoxGone
	}
	row := h.row
	if err := how(&row); err != nil {
		return 0, nil, err
	}
	if b.rows == nil {
		h.row = row
	}
	if row == h.row {
		return 0, nil, nil
	}
	return h.rev, &row, nil
}

// learn keeps what the log tells of a box.
func (b *boxes) learn(key string, have storedBox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	switch {
	case h == nil && have.rev == 0:
		return
	case h == nil:
		h = &heldBox{script: make(chan struct{}, 1)}
		b.held[key] = h
	case have.rev != 0 && have.rev < h.rev:
		return
	}
	h.row, h.rev = have.row, have.rev
}

// deadline is when the box that the turn is in ends at the latest.
func (t *turn) deadline() time.Time {
	if t.inside == nil {
		return time.Time{}
	}
	t.boxes.mu.Lock()
	defer t.boxes.mu.Unlock()
	return t.inside.row.Deadline
}

// idleTimeout is how long nothing may be in a sandbox's kept box before it is ended.
func idleTimeout(s schemas.Sandbox) time.Duration {
	if s.IdleTimeout <= 0 {
		return schemas.DefaultIdleTimeout
	}
	return min(time.Duration(s.IdleTimeout), schemas.MaxIdleTimeout)
}

// maxLifetime is how long a kept box of a sandbox lives at most.
func maxLifetime(s schemas.Sandbox) time.Duration {
	if s.MaxLifetime <= 0 {
		return schemas.DefaultMaxLifetime
	}
	return min(time.Duration(s.MaxLifetime), schemas.MaxLifetime)
}
