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
	// grace is how long after its deadline an instance with a call in it may continue: longer than any call takes.
	grace = schemas.MaxTimeout + time.Minute
	// releaseWithin is the time limit for ending an instance.
	releaseWithin = 30 * time.Second
)

// facts are the facts about a persistent instance on which its verdict depends.
type facts struct {
	state  schemas.InstanceState
	wanted schemas.InstanceTarget // the requested state
	forced bool                   // a requested removal for which the calls in it have been cancelled
	pauses bool                   // the provider can pause instances
	calls  bool                   // calls of this worker are in it or about to enter
	jobs   bool                   // background jobs are in it
	gone   bool                   // its sandbox or its workspace was deleted
	lost   bool                   // one of these has no record, and there is no proof that it was deleted
	unused time.Duration          // time since a call or a job last used it
	shared time.Duration          // how outdated unused may be, because other workers use it too
	idle   time.Duration          // the maximal time without use
	over   time.Duration          // time since its deadline; negative: before it
}

// verdict is what to do with a persistent instance.
type verdict string

const (
	stays      verdict = "stays"
	toPause    verdict = "pause"
	toWake     verdict = "wake"
	dropWish   verdict = "drop the wish" // the state is reached already, or cannot be
	endDeleted verdict = "deleted"       // its sandbox or workspace was deleted
	endIdle    verdict = "idle"
	endOld     verdict = "old"
	endWanted  verdict = "removed" // its removal was requested
	endUnready verdict = "unready" // its scripts have failed
)

// judge decides what to do with a persistent instance. Nothing is done while it is in use, with these exceptions: jobs do not protect an
// instance whose sandbox was deleted or whose removal was requested, and calls and jobs do not protect one that is past its deadline by
// more than grace.
func judge(f facts) verdict {
	leaving := f.state == schemas.InstanceEnding || f.state == schemas.InstancePausing // no call has entered since
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
	case leaving && elsewhere: // another worker is pausing or ending it
		return stays
	case f.state == schemas.InstanceEnding:
		return endIdle
	case f.state == schemas.InstancePausing:
		return toPause
	}
	return judgeAtRest(f)
}

// judgeAtRest is the part of [judge] for an instance that is ready or paused, and not in use.
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
	case f.lost: // its record may reappear, with a longer idle timeout
		return stays
	}
	return endIdle
}

// reaper records the use of instances, and pauses, resumes and ends them as [judge] decides.
type reaper struct {
	*table

	owners *owners
	pauser providers.Pauser // nil: the provider cannot pause

	between func() // for tests: called between a write of the record and the provider's call, to simulate a suspension
}

// refresh records the use of instances at each tick, until ctx is done. If this worker owns instances, it also pauses, resumes and ends
// them: at a tick, or at once if a state was requested.
func (b *reaper) refresh(ctx context.Context) {
	tick := time.NewTicker(b.Every)
	defer tick.Stop()
	var wished chan struct{}
	if b.tied { // otherwise the worker that sweeps receives these
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

// grant handles the instances for which a state was requested: if instances have owners, those of this worker.
func (b *reaper) grant(ctx context.Context, t *streams.Tenure) {
	busy := b.WithJobs()
	for key, h := range b.list() {
		if h.row.Wanted.State != "" && ctx.Err() == nil {
			b.observe(ctx, key, h, busy[h.row.Ref], t)
		}
	}
}

// sweep pauses, resumes and ends instances that any worker can reach, until ctx is done. One worker of the provider at a time does so.
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
	_ = d.Run(ctx) // it ends only with ctx
}

// mirror follows the rows of all workers of this provider until ctx is done. The Mirror stores only the keys; the rows are stored in held.
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
	_ = rows.Run(ctx) // it ends only with ctx
}

// wish signals that a state was requested for an instance, so that it is handled soon. It does not block.
func (b *table) wish() {
	select {
	case b.wished <- struct{}{}:
	default: // a signal is pending already
	}
}

// forget removes an entry whose row was removed, unless calls of this worker use the instance. An owner keeps the entry of its instance,
// which exists without its row: the next call reads the row and writes it again. Rev is the revision of the removal; 0: the row was
// missing from a new listing.
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

// observed is a copy of an entry.
type observed struct {
	row   schemas.Instance
	used  time.Time
	calls int // in the instance
}

// list returns the instances that this worker manages: all, or if instances have owners, its own.
func (b *table) list() map[string]observed {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]observed, len(b.held))
	for key, h := range b.held {
		switch {
		case !h.row.Ref.IsZero() && (!b.tied || h.row.Worker == b.me()):
			all[key] = observed{row: h.row, used: latest(h.used, h.row.Used), calls: h.calls}
		case h.row.Ref.IsZero() && h.rev == 0 && h.calls == 0 && h.claims == 0:
			delete(b.held, key) // the call for which it was created could not enter
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

// observe checks one instance, and carries out its verdict while t is held.
func (b *reaper) observe(ctx context.Context, key string, h observed, jobs bool, t *streams.Tenure) {
	now := b.Bus.Now()
	if h.calls > 0 || jobs {
		h.used = now
	}
	sandbox, err := b.recordsOf(ctx, h.row)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return // nothing is ended while the records cannot be read
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

// touch records when an instance was last used, in memory and, every usedFresh, in its row for other workers. A failed write is repeated
// at the next check.
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

// recordsOf returns the sandbox of an instance, and checks that its workspace exists. Code: not_found; its cause is [streams.ErrDeleted]
// if one of the two was deleted, otherwise the record may have been lost.
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

// end ends an instance: it records that no call may enter, and then releases the instance. After an error it may be called again. errGone:
// another worker uses the instance, or it was recreated.
func (b *reaper) end(ctx context.Context, key string, ref schemas.Ref, why verdict, t *streams.Tenure) error {
	b.mu.Lock()
	h := b.held[key]
	b.mu.Unlock()
	asked, begun := false, clock.Now()
	err := b.change(ctx, key, h, func(row *schemas.Instance) error {
		used := h.calls > 0 && why != endOld && why != endUnready
		others := asked && (why != endUnready || row.State == schemas.InstanceEnding) // a call has entered, or another worker is ending it
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
	return b.forgetRow(ctx, key, ref, rev)
}

// forgetRow removes the row of an instance that was released. A request may have changed the row since rev: it is removed too, because an
// owner ignores changes of instances that it does not have. A row of a new instance stays. After an error the row expires, or a sweep
// removes it.
func (b *reaper) forgetRow(ctx context.Context, key string, ref schemas.Ref, rev uint64) error {
	var contest streams.Contest
	for {
		err := b.rows.DeleteRevision(ctx, b.rowKey(key), rev)
		if errors.Is(err, schemas.ErrConflict) {
			err = contest.Again(ctx)
		} else if err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("forget the instance: %w", err)
		}
		p, err := b.rows.Get(ctx, b.rowKey(key))
		switch {
		case errors.Is(err, schemas.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("forget the instance: %w", err)
		case p.Value.Ref != ref || p.Value.State != schemas.InstanceEnding:
			return nil
		}
		rev = p.Revision
	}
}

// still returns an error if this worker was suspended since it recorded its next step, or no longer has the duty: then another worker has
// done the step, and the current instance may be in use.
func (b *reaper) still(begun clock.Reading, t *streams.Tenure) error {
	if b.between != nil {
		b.between()
	}
	if clock.Since(begun) > releaseWithin {
		return schemas.OpErrorf(schemas.Interrupted, "put away", "the worker stalled")
	}
	return t.Held()
}
