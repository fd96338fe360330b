package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// boxGrace is what a call that is in a box at its deadline gets to end: more than any run takes.
	boxGrace = schemas.MaxTimeout + time.Minute
	// releaseWithin is what the end of a box may take.
	releaseWithin = 30 * time.Second
)

// boxFacts is all that decides whether a kept box is ended.
type boxFacts struct {
	ending bool          // somebody has begun to end it
	calls  bool          // calls of this worker are in it
	jobs   bool          // background jobs are in it
	gone   bool          // its sandbox or its workspace was deleted
	unused time.Duration // since a call or a job was last in it
	shared time.Duration // how old that may be, because other workers use the box too
	idle   time.Duration // how long it may be unused
	over   time.Duration // since its deadline; below 0: before it
}

// boxVerdict is what to do about a kept box.
type boxVerdict string

const (
	boxStays   boxVerdict = "stays"
	boxDeleted boxVerdict = "deleted" // nobody can reach it any more
	boxIdle    boxVerdict = "idle"
	boxOld     boxVerdict = "old"
	boxUnready boxVerdict = "unready" // its scripts have failed
)

// judgeBox is the whole rule of a kept box's end. Nothing is ended while something is in it, but for the
// jobs of a deleted sandbox, and for what has ignored the box's deadline for so long that it cannot be
// a call.
func judgeBox(f boxFacts) boxVerdict {
	elsewhere := f.shared > 0 && f.unused < f.shared // a call of another worker may be in it
	switch {
	case f.over > boxGrace:
		return boxOld
	case f.calls || elsewhere && !f.ending:
		return boxStays
	case f.gone:
		return boxDeleted
	case f.jobs:
		return boxStays
	case f.over >= 0:
		return boxOld
	case f.unused >= f.idle+f.shared, f.ending && f.unused >= f.shared:
		return boxIdle
	}
	return boxStays
}

// look ends what is to end, again and again until ctx ends. It looks at all boxes at each ProbeEvery, so
// an end may be late by that.
func (b *boxes) look(ctx context.Context, r providers.Reserver) {
	tick := time.NewTicker(b.ProbeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.disownUnused(ctx)
		busy := b.keeper.inBoxes()
		all := b.list()
		b.Metrics.Boxes(b.Name, len(all))
		for key, h := range all {
			if ctx.Err() != nil {
				return
			}
			b.see(ctx, r, key, h, busy[h.row.Ref])
		}
	}
}

// mirror keeps the rows of the other workers of this provider, where rows are on the log, until ctx ends.
func (b *boxes) mirror(ctx context.Context) {
	if b.rows == nil {
		return
	}
	for p, err := range b.rows.Watch(ctx) {
		key, mine := strings.CutPrefix(p.Key, b.Name+".")
		switch {
		case !mine:
		case err != nil:
			b.Log.Warn("what is known of a box cannot be read", "box", key, "error", err)
		case p.Deleted:
			b.forget(key, p.Revision)
		default:
			b.learn(key, storedBox{p.Value, p.Revision})
		}
	}
}

// forget drops a box whose row is gone from the log, unless calls of this worker are in it.
func (b *boxes) forget(key string, rev uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h != nil && h.calls == 0 && h.rev < rev {
		delete(b.held, key)
	}
}

// seen is a copy of what is known of a box.
type seenBox struct {
	row   boxRow
	calls int
}

func (b *boxes) list() map[string]seenBox {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]seenBox, len(b.held))
	for key, h := range b.held {
		if !h.row.Ref.IsZero() {
			all[key] = seenBox{h.row, h.calls}
		} else if h.calls == 0 {
			delete(b.held, key) // its call could not be let in
		}
	}
	return all
}

// see looks at one box.
func (b *boxes) see(ctx context.Context, r providers.Reserver, key string, h seenBox, jobs bool) {
	if h.calls > 0 || jobs {
		b.touch(ctx, key, h.row.Ref)
	}
	sandbox, gone, err := b.recordsOf(ctx, h.row)
	if err != nil {
		return // nothing is ended while it is not known what for
	}
	now := b.Bus.Now()
	v := judgeBox(boxFacts{
		ending: !h.row.Ending.IsZero(), calls: h.calls > 0, jobs: jobs, gone: gone, unused: now.Sub(h.row.Used), shared: b.shared(),
		idle: idleTimeout(sandbox), over: now.Sub(h.row.Deadline),
	})
	if v == boxStays {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	switch err := b.end(ctx, r, key, h.row.Ref, v); {
	case err == nil:
		b.Log.Info("a kept box is released", "box", key, "because", v)
	case !errors.Is(err, errBoxGone) && ctx.Err() == nil:
		b.Log.Warn("a kept box is not released: that is tried again", "box", key, "because", v, "error", err)
	}
}

// touch notes that something is in a box, for this worker and, on the log, for the others. What fails
// is made good by the next look.
func (b *boxes) touch(ctx context.Context, key string, ref schemas.Ref) {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	err := b.change(ctx, key, h, func(row *boxRow) error {
		if row.Ref != ref {
			return errBoxGone
		}
		row.Used = b.Bus.Now()
		return nil
	})
	if err != nil && !errors.Is(err, errBoxGone) && ctx.Err() == nil {
		b.Log.Warn("that a box is in use could not be told", "box", key, "error", err)
	}
}

// recordsOf finds the sandbox of a box. Gone: it or the workspace was certainly deleted.
func (b *boxes) recordsOf(ctx context.Context, row boxRow) (s schemas.Sandbox, gone bool, err error) {
	s, err = b.Specs.Sandbox(ctx, row.Account, row.Sandbox)
	if err == nil && row.Workspace != "" {
		_, err = b.Specs.Workspace(ctx, row.Account, row.Workspace)
	}
	if errors.Is(err, schemas.ErrNotFound) {
		return s, true, nil
	}
	return s, false, err
}

// end ends a box: first it is noted that nothing may enter, then it is released. It may be called again
// after an error. errBoxGone: somebody has it in hand, or it was made anew.
func (b *boxes) end(ctx context.Context, r providers.Reserver, key string, ref schemas.Ref, why boxVerdict) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	asked := false
	err := b.change(ctx, key, h, func(row *boxRow) error {
		used := h.calls > 0 && why != boxOld && why != boxUnready
		others := asked && (why != boxUnready || !row.Ending.IsZero()) // somebody has entered or ends it
		if used || others || row.Ref != ref {
			return errBoxGone
		}
		asked, row.Ending = true, b.Bus.Now() // a new time, so that one of several workers ends it
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.Release(ctx, ref); err != nil {
		return fmt.Errorf("release the box: %w", err)
	}
	b.Metrics.BoxEnded(b.Name, string(why))
	b.mu.Lock()
	rev := h.rev
	if b.held[key] == h && h.row.Ref == ref {
		delete(b.held, key)
	}
	b.mu.Unlock()
	if b.rows == nil {
		return nil
	}
	if err := b.rows.DeleteRevision(ctx, b.rowKey(key), rev); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("forget the box: %w", err) // it ends by itself, or is ended once more
	}
	return nil
}

// inBoxes tells in which boxes there are background jobs of this provider, as far as their records say.
func (k *keeper) inBoxes() map[schemas.Ref]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	in := map[schemas.Ref]bool{}
	for _, j := range k.jobs {
		if !j.Ref.Sandbox.IsZero() {
			in[j.Ref.Sandbox] = true
		}
	}
	return in
}
