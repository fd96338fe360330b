package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	// grace is what a call that is in a box at its deadline gets to end: more than any run takes.
	grace = schemas.MaxTimeout + time.Minute
	// releaseWithin is what the end of a box may take.
	releaseWithin = 30 * time.Second
)

// facts is all that decides whether a kept box is ended.
type facts struct {
	ending bool          // somebody has begun to end it
	calls  bool          // calls of this worker are in it
	jobs   bool          // background jobs are in it
	gone   bool          // its sandbox or its workspace was deleted
	unused time.Duration // since a call or a job was last in it
	shared time.Duration // how old that may be, because other workers use the box too
	idle   time.Duration // how long it may be unused
	over   time.Duration // since its deadline; below 0: before it
}

// verdict is what to do about a kept box.
type verdict string

const (
	stays      verdict = "stays"
	endDeleted verdict = "deleted" // nobody can reach it any more
	endIdle    verdict = "idle"
	endOld     verdict = "old"
	endUnready verdict = "unready" // its scripts have failed
)

// judge is the whole rule of a kept box's end. Nothing is ended while something is in it, but for the
// jobs of a deleted sandbox, and for what has ignored the box's deadline for so long that it cannot be
// a call.
func judge(f facts) verdict {
	elsewhere := f.shared > 0 && f.unused < f.shared // a call of another worker may be in it
	switch {
	case f.over > grace:
		return endOld
	case f.calls || elsewhere && !f.ending:
		return stays
	case f.gone:
		return endDeleted
	case f.jobs:
		return stays
	case f.over >= 0:
		return endOld
	case f.unused >= f.idle+f.shared, f.ending && f.unused >= f.shared:
		return endIdle
	}
	return stays
}

// refresh ends what is to end, again and again until ctx ends. It looks at all boxes at each tick, so
// an end may be late by that.
func (b *Instances) refresh(ctx context.Context) {
	tick := time.NewTicker(b.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.disownUnused(ctx)
		busy := b.WithJobs()
		all := b.list()
		b.Known(len(all))
		for key, h := range all {
			if ctx.Err() != nil {
				return
			}
			b.observe(ctx, key, h, busy[h.row.Ref])
		}
	}
}

// mirror keeps the rows of the other workers of this provider, where rows are on the log, until ctx ends.
func (b *Instances) mirror(ctx context.Context) {
	if b.rows == nil {
		return
	}
	for p, err := range b.rows.Watch(ctx) {
		key, mine := strings.CutPrefix(p.Key, b.Name+".")
		switch {
		case !mine:
		case err != nil:
			b.Log.Warn("record of a sandbox instance not readable", "instance", key, "error", err)
		case p.Deleted:
			b.forget(key, p.Revision)
		default:
			b.merge(key, storedRow{p.Value, p.Revision})
		}
	}
}

// forget drops a box whose row is gone from the log, unless calls of this worker are in it.
func (b *Instances) forget(key string, rev uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.held[key]; h != nil && h.calls == 0 && h.rev < rev {
		delete(b.held, key)
	}
}

// seen is a copy of what is known of a box.
type observed struct {
	row   instanceRow
	calls int
}

func (b *Instances) list() map[string]observed {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]observed, len(b.held))
	for key, h := range b.held {
		if !h.row.Ref.IsZero() {
			all[key] = observed{h.row, h.calls}
		} else if h.calls == 0 {
			delete(b.held, key) // its call could not be let in
		}
	}
	return all
}

// observe looks at one instance.
func (b *Instances) observe(ctx context.Context, key string, h observed, jobs bool) {
	if h.calls > 0 || jobs {
		b.touch(ctx, key, h.row.Ref)
	}
	sandbox, gone, err := b.recordsOf(ctx, h.row)
	if err != nil {
		return // nothing is ended while it is not known what for
	}
	now := b.Bus.Now()
	v := judge(facts{
		ending: !h.row.Ending.IsZero(), calls: h.calls > 0, jobs: jobs, gone: gone, unused: now.Sub(h.row.Used), shared: b.shared(),
		idle: idleTimeout(sandbox), over: now.Sub(h.row.Deadline),
	})
	if v == stays {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	switch err := b.end(ctx, key, h.row.Ref, v); {
	case err == nil:
		b.Log.Info("sandbox instance released", "instance", key, "reason", v)
	case !errors.Is(err, errGone) && ctx.Err() == nil:
		b.Log.Warn("sandbox instance not released, retrying", "instance", key, "reason", v, "error", err)
	}
}

// touch notes that something is in a box, for this worker and, on the log, for the others. What fails
// is made good by the next look.
func (b *Instances) touch(ctx context.Context, key string, ref schemas.Ref) {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	err := b.change(ctx, key, h, func(row *instanceRow) error {
		if row.Ref != ref {
			return errGone
		}
		row.Used = b.Bus.Now()
		return nil
	})
	if err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
		b.Log.Warn("use of a sandbox instance not recorded", "instance", key, "error", err)
	}
}

// recordsOf finds the sandbox of a box. Gone: it or the workspace was certainly deleted.
func (b *Instances) recordsOf(ctx context.Context, row instanceRow) (s schemas.Sandbox, gone bool, err error) {
	s, err = b.Records.Sandbox(ctx, row.Account, row.Sandbox)
	if err == nil && row.Workspace != "" {
		_, err = b.Records.Workspace(ctx, row.Account, row.Workspace)
	}
	if errors.Is(err, schemas.ErrNotFound) {
		return s, true, nil
	}
	return s, false, err
}

// end ends a box: first it is noted that nothing may enter, then it is released. It may be called again
// after an error. errGone: somebody has it in hand, or it was made anew.
func (b *Instances) end(ctx context.Context, key string, ref schemas.Ref, why verdict) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	asked := false
	err := b.change(ctx, key, h, func(row *instanceRow) error {
		used := h.calls > 0 && why != endOld && why != endUnready
		others := asked && (why != endUnready || !row.Ending.IsZero()) // somebody has entered or ends it
		if used || others || row.Ref != ref {
			return errGone
		}
		asked, row.Ending = true, b.Bus.Now() // a new time, so that one of several workers ends it
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.reserver.Release(ctx, ref); err != nil {
		return fmt.Errorf("release the box: %w", err)
	}
	b.Ended(string(why))
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
