package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// grace is what a call that is in a box at its deadline gets to end: more than any run takes.
	grace = schemas.MaxTimeout + time.Minute
	// releaseWithin is what the end of a box may take.
	releaseWithin = 30 * time.Second
)

// facts is all that decides what becomes of a kept box.
type facts struct {
	state  schemas.InstanceState
	wanted schemas.InstanceTarget // what was requested
	forced bool                   // a removal, and the calls in the instance have been cancelled
	pauses bool                   // the provider can pause it
	calls  bool                   // calls of this worker are in it, or about to be
	jobs   bool                   // background jobs are in it
	gone   bool                   // its sandbox or its workspace was deleted
	lost   bool                   // one of them has no record, and nothing says that it was deleted
	unused time.Duration          // since a call or a job was last in it
	shared time.Duration          // how old that may be, because other workers use the box too
	idle   time.Duration          // how long it may be unused
	over   time.Duration          // since its deadline; below 0: before it
}

// verdict is what to do about a kept box.
type verdict string

const (
	stays      verdict = "stays"
	toPause    verdict = "pause"
	toWake     verdict = "wake"
	dropWish   verdict = "drop the wish" // it is so already, or cannot be
	endDeleted verdict = "deleted"       // it cannot be reached any more
	endIdle    verdict = "idle"
	endOld     verdict = "old"
	endWanted  verdict = "removed" // a request has asked for it
	endUnready verdict = "unready" // its scripts have failed
)

// judge is the whole rule of a kept box's rest and end. Nothing is done to it while something is in it, except jobs of a deleted sandbox or
// of a box whose removal was requested, and what has ignored the box's deadline for so long that it cannot be a call.
func judge(f facts) verdict {
	leaving := f.state == schemas.InstanceEnding || f.state == schemas.InstancePausing // nothing has entered since
	elsewhere := f.shared > 0 && f.unused < f.shared && !f.forced                      // a call of another worker may be in it
	switch {
	case f.over > grace:
		return endOld
	case f.calls || elsewhere && !leaving:
		return stays
	case f.gone:
		return endDeleted
	case f.wanted == schemas.WantRemoved:
		return endWanted
	case f.jobs:
		return stays
	case f.over >= 0:
		return endOld
	case leaving && elsewhere: // a worker is at it
		return stays
	case f.state == schemas.InstanceEnding:
		return endIdle
	case f.state == schemas.InstancePausing:
		return toPause
	}
	return judgeAtRest(f)
}

// judgeAtRest is [judge] of a box that is ready or paused, and in which nothing is.
func judgeAtRest(f facts) verdict {
	paused := f.state == schemas.InstancePaused
	switch {
	case f.wanted == schemas.WantRunning && paused:
		return toWake
	case f.wanted == schemas.WantPaused && !paused && f.pauses:
		return toPause
	case f.wanted != "":
		return dropWish
	case paused, f.unused < f.idle+f.shared:
		return stays
	case f.pauses:
		return toPause
	case f.lost: // the record may come back, and say that the box is kept for longer
		return stays
	}
	return endIdle
}

// reaper notes what is in use, and pauses, wakes and ends instances as [judge] says.
type reaper struct {
	*table

	owners *owners
	pauser providers.Pauser // nil: the provider pauses none

	between func() // of tests: a worker is suspended between what it has written and what it does at the provider
}

// refresh notes what is in use, again and again until ctx ends, and where this worker owns instances pauses and ends them. It looks at all
// at each tick, so an end may be late by that; a request to an owner is handled at once.
func (b *reaper) refresh(ctx context.Context) {
	tick := time.NewTicker(b.Every)
	defer tick.Stop()
	var wished chan struct{}
	if b.tied { // else the worker that sweeps takes them
		wished = b.wished
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-wished:
			b.grant(ctx, nil)
			continue
		case <-tick.C:
		}
		b.owners.releaseLost(ctx)
		b.owners.disownUnmade(ctx)
		b.owners.dropOrphans(ctx)
		busy := b.WithJobs()
		all := b.list()
		b.Known(len(all))
		for key, h := range all {
			if ctx.Err() != nil {
				return
			}
			if h.calls > 0 || busy[h.row.Ref] {
				h.used = b.Bus.Now()
			}
			b.touch(ctx, key, h)
			if b.tied {
				b.observe(ctx, key, h, busy[h.row.Ref], nil)
			}
		}
	}
}

// grant observes the instances for which a state was requested: where instances have owners, those of this worker.
func (b *reaper) grant(ctx context.Context, t *streams.Tenure) {
	busy := b.WithJobs()
	for key, h := range b.list() {
		if h.row.Wanted.State != "" && ctx.Err() == nil {
			b.observe(ctx, key, h, busy[h.row.Ref], t)
		}
	}
}

// sweep pauses and ends instances that any worker reaches: one worker of the provider at a time does, until ctx ends.
func (b *reaper) sweep(ctx context.Context) {
	d := streams.Duty{
		Bus: b.Bus, Name: "instance-reaper." + b.Name, Every: b.Every, Wake: b.wished, Woken: b.grant, Log: b.Log,
		Begin: func() func(context.Context, *streams.Tenure) {
			return func(ctx context.Context, t *streams.Tenure) {
				busy := b.WithJobs()
				for key, h := range b.list() {
					if ctx.Err() != nil {
						return
					}
					b.observe(ctx, key, h, busy[h.row.Ref], t)
				}
			}
		},
	}
	_ = d.Run(ctx) // it ends with ctx alone
}

// mirror follows the rows of all workers of this provider until ctx ends. What it holds itself are
// the keys: the rows are in held, beside what only this worker knows.
func (b *table) mirror(ctx context.Context) {
	own := func(key string) (string, bool) { return strings.CutPrefix(key, b.Name+".") }
	rows := &streams.Mirror[schemas.Instance, struct{}]{
		Source: listedRows{b.rows, b.listed},
		Keep: func(p streams.BucketEntry[schemas.Instance]) (struct{}, bool) {
			_, mine := own(p.Key)
			return struct{}{}, mine
		},
		Unreadable: func(p streams.BucketEntry[schemas.Instance], err error) {
			if key, mine := own(p.Key); mine {
				b.Log.Warn("record of a sandbox instance not readable", "instance", key, "error", err)
			}
		},
		Changed: func(p streams.BucketEntry[schemas.Instance]) {
			switch key, mine := own(p.Key); {
			case !mine:
			case p.Deleted:
				b.forget(key, p.Revision)
			default:
				b.follow(key, storedRow{p.Value, p.Revision})
			}
		},
	}
	_ = rows.Run(ctx) // it ends with ctx alone
}

// wish has the instances observed for which a state was requested, by this worker where it is the one that does so. It does not block.
func (b *table) wish() {
	select {
	case b.wished <- struct{}{}:
	default: // they are about to be observed
	}
}

// forget drops an instance whose row is gone from the log, unless calls of this worker are in it. The box of an owner exists without its
// row: the next call reads the row and writes it again. Revision 0: it was not there when everything was listed again.
func (b *table) forget(key string, rev uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.held[key]
	switch {
	case h == nil || h.rev >= rev && rev != 0:
	case b.tied && h.row.Worker == b.me() && !h.row.Ref.IsZero():
		h.rev, h.seen = 0, clock.Reading{}
	case h.calls == 0 && h.claims == 0:
		delete(b.held, key)
	}
}

// observed is a copy of what is known of an instance.
type observed struct {
	row   schemas.Instance
	used  time.Time
	calls int // that are in it, or about to be
}

// list is what this worker manages: every instance, or if they have owners its own.
func (b *table) list() map[string]observed {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]observed, len(b.held))
	for key, h := range b.held {
		switch {
		case !h.row.Ref.IsZero() && (!b.tied || h.row.Worker == b.me()):
			all[key] = observed{row: h.row, used: latest(h.used, h.row.Used), calls: h.calls}
		case h.row.Ref.IsZero() && h.rev == 0 && h.calls == 0 && h.claims == 0:
			delete(b.held, key) // its call could not be let in
		}
	}
	return all
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// observe looks at one instance, and does what is to be done about it while t is held.
func (b *reaper) observe(ctx context.Context, key string, h observed, jobs bool, t *streams.Tenure) {
	now := b.Bus.Now()
	if h.calls > 0 || jobs {
		h.used = now
	}
	sandbox, err := b.recordsOf(ctx, h.row)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return // nothing is ended while it is not known what for
	}
	gone := errors.Is(err, streams.ErrDeleted)
	v := judge(facts{
		state: h.row.State, wanted: h.row.Wanted.State, forced: h.row.Wanted.Cancelled, pauses: b.pauser != nil, calls: h.calls > 0, jobs: jobs, gone: gone, lost: err != nil && !gone,
		unused: now.Sub(latest(h.used, latest(h.row.Ending, h.row.Pausing))), shared: b.shared(), idle: idleTimeout(sandbox),
		over: now.Sub(h.row.Deadline),
	})
	if v == stays {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	switch v {
	case toPause:
		err = b.pause(ctx, key, h.row, sandbox, t)
	case toWake:
		err = b.wake(ctx, key, h.row, sandbox)
	case dropWish:
		err = b.dropWish(ctx, key, h.row)
	default:
		err = b.end(ctx, key, h.row.Ref, v, t)
	}
	switch {
	case err == nil:
		b.Log.Info("sandbox instance reconciled", "instance", key, "verdict", v)
	case !errors.Is(err, errGone) && ctx.Err() == nil:
		b.Log.Warn("sandbox instance not reconciled, retrying", "instance", key, "verdict", v, "error", err)
	}
}

// touch notes when something was last in a box, for this worker and, on the log once in a while, for the others. What fails
// is made good by the next look.
func (b *table) touch(ctx context.Context, key string, seen observed) {
	b.mu.Lock()
	h := b.held[key]
	if h != nil && h.row.Ref == seen.row.Ref {
		h.used = latest(h.used, seen.used)
	}
	b.mu.Unlock()
	if seen.used.Sub(seen.row.Used) < usedFresh {
		return
	}
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		if row.Ref != seen.row.Ref {
			return errGone
		}
		row.Used = latest(row.Used, seen.used)
		return nil
	})
	if err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
		b.Log.Warn("use of a sandbox instance not recorded", "instance", key, "error", err)
	}
}

// recordsOf finds the sandbox of a box, and that its workspace is there too. Code: not_found, with the cause
// [streams.ErrDeleted] where one of them was deleted; else its record may be lost.
func (b *reaper) recordsOf(ctx context.Context, row schemas.Instance) (s schemas.Sandbox, err error) {
	s, err = b.Records.Sandbox(ctx, row.Account, row.Sandbox)
	if err == nil && row.Workspace != "" {
		_, err = b.Records.Workspace(ctx, row.Account, row.Workspace)
	}
	if err != nil {
		return s, fmt.Errorf("find what the instance belongs to: %w", err)
	}
	return s, nil
}

// end ends a box: first it is noted that nothing may enter, then it is released. It may be called again after an error. errGone: another
// worker is using it, or it was recreated.
func (b *reaper) end(ctx context.Context, key string, ref schemas.Ref, why verdict, t *streams.Tenure) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	asked, begun := false, clock.Now()
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		used := h.calls > 0 && why != endOld && why != endUnready
		others := asked && (why != endUnready || row.State == schemas.InstanceEnding) // a call has entered, or a worker ends it
		if used || others || row.Ref != ref {
			return errGone
		}
		asked = true
		lifecycle.EndInstance(row, b.Bus.Now())
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.still(begun, t); err != nil {
		return err
	}
	if err := b.reserver.Release(ctx, ref); err != nil {
		return fmt.Errorf("release the instance: %w", err)
	}
	b.Ended(string(why))
	b.mu.Lock()
	rev := h.rev
	if b.held[key] == h && h.row.Ref == ref {
		delete(b.held, key)
	}
	b.mu.Unlock()
	if err := b.rows.DeleteRevision(ctx, b.rowKey(key), rev); err != nil && !errors.Is(err, schemas.ErrConflict) {
		return fmt.Errorf("forget the instance: %w", err) // it ends by itself, or is ended once more
	}
	return nil
}

// still returns an error if this worker was suspended since it recorded what it is about to do, or may not do it any more: then another
// worker has done it, and the present box may be in use.
func (b *reaper) still(begun clock.Reading, t *streams.Tenure) error {
	if b.between != nil {
		b.between()
	}
	if clock.Since(begun) > releaseWithin {
		return schemas.OpErrorf(schemas.Interrupted, "put away", "the worker stalled")
	}
	return t.Held()
}
