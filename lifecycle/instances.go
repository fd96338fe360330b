package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// The verbs of instances but WantInstance change a record in memory. The caller writes it by compare and set, and calls the verb again with
// the changed record after a conflict: entering, pausing and releasing exclude one another by that alone.

// OpenInstances returns the records of instances ([schemas.Instance]) by [schemas.InstanceKey]. Keys that begin with "owner." are
// of the version before. It does not touch the log.
func OpenInstances(b *streams.Bus) *streams.Bucket[schemas.Instance] {
	return streams.OpenBucket[schemas.Instance](b, streams.Boxes)
}

// ReserveInstance makes the record of an instance that a worker is about to make for the first time, or for the first time
// after its last worker's end. It is for providers whose boxes end with their worker.
func ReserveInstance(i *schemas.Instance, worker string, now time.Time) {
	*i = schemas.Instance{
		Account: i.Account, Sandbox: i.Sandbox, Workspace: i.Workspace, Provider: i.Provider, State: schemas.InstanceReserving,
		Worker: worker, Made: now, Used: now,
	}
}

// ReadyInstance notes that calls may enter the box that a reservation has returned. It may be the one on record, awake again or
// not; another box begins a life of its own, of at most life, but where the one before was paused: that one was only woken.
// Scripts says whether something has to run in a new box before the first call does.
//
// Code: unavailable, this box is being paused or released, is to be removed, or is at its end: the call waits.
func ReadyInstance(i *schemas.Instance, ref schemas.Ref, now time.Time, life time.Duration, scripts bool) error {
	paused := i.State == schemas.InstancePaused
	switch {
	case i.Ref.ID == ref.ID && (i.State == schemas.InstanceEnding || i.State == schemas.InstancePausing): // whatever runs in it now
		return schemas.OpErrorf(schemas.Unavailable, "reserve", "the sandbox's instance is being paused: the call waits for it")
	case i.Ref.ID == ref.ID && i.Wanted.State == schemas.WantRemoved:
		return schemas.OpErrorf(schemas.Unavailable, "reserve", "the sandbox's instance is about to be removed: the call waits for the next one")
	case (i.Ref == ref || paused) && !now.Before(i.Deadline):
		return schemas.OpErrorf(schemas.Unavailable, "reserve", "the sandbox's instance is at the end of its life: the call waits for the next one")
	}
	if i.Ref != ref {
		if !paused {
			i.Made, i.Deadline, i.Wanted = now, now.Add(life), schemas.InstanceWish{}
		}
		i.Ref, i.Used, i.Hooked, i.Hooking = ref, now, time.Time{}, ""
		if !scripts {
			i.Hooked = now // scripts that come later are for the next box
		}
	}
	if i.State != schemas.InstanceReady {
		i.State, i.Used = schemas.InstanceReady, now
	}
	i.Paused, i.Pausing, i.Ending = time.Time{}, time.Time{}, time.Time{}
	if i.Wanted.State == schemas.WantRunning {
		i.Wanted = schemas.InstanceWish{}
	}
	return nil
}

// PauseInstance notes that a box is being paused: nothing may enter from here on. It may be repeated, by who finds that its
// writer has gone. Code: conflict, it is not awake.
func PauseInstance(i *schemas.Instance, now time.Time) error {
	if i.State != schemas.InstanceReady && i.State != schemas.InstancePausing {
		return schemas.OpErrorf(schemas.Conflict, "pause", "the instance is %s", i.State)
	}
	i.State, i.Pausing = schemas.InstancePausing, now
	return nil
}

// PausedInstance notes that a box is paused: the next call wakes it. Code: conflict, it was not being paused.
func PausedInstance(i *schemas.Instance, now time.Time) error {
	if i.State != schemas.InstancePausing {
		return schemas.OpErrorf(schemas.Conflict, "pause", "the instance is %s", i.State)
	}
	i.State, i.Paused, i.Pausing = schemas.InstancePaused, now, time.Time{}
	if i.Wanted.State == schemas.WantPaused {
		i.Wanted = schemas.InstanceWish{}
	}
	return nil
}

// EndInstance notes that a box is being released: nothing may enter any more. It may be repeated, each time with a new time, so
// that one of several ends it.
func EndInstance(i *schemas.Instance, now time.Time) {
	i.State, i.Ending = schemas.InstanceEnding, now
}

// WantInstance asks for an instance to be paused, running or removed. The worker that owns it, or one of its provider's, does so
// when the rules of docs/STATES.md let it, and takes the wish off the record. A later wish replaces one before it; a wish for what
// it is already does nothing. It returns the record as it is then.
//
// Codes: invalid (no such target), not_found, conflict (it is being released already).
func WantInstance(ctx context.Context, b *streams.Bus, key string, want schemas.InstanceTarget) (schemas.Instance, error) {
	if err := want.Validate(); err != nil {
		return schemas.Instance{}, err
	}
	var contest streams.Contest
	for {
		p, err := OpenInstances(b).Get(ctx, key)
		if err != nil {
			return schemas.Instance{}, err
		}
		i, before := p.Value, p.Value
		if i.State == schemas.InstanceEnding && want != schemas.WantRemoved {
			return i, schemas.OpErrorf(schemas.Conflict, "instance", "it is being removed: the next call makes a new one")
		}
		wish(&i, want, b.Now())
		if i == before {
			return i, nil
		}
		_, err = OpenInstances(b).Update(ctx, key, i, p.Revision)
		if err == nil || !errors.Is(err, schemas.ErrConflict) {
			return i, err
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.Instance{}, err
		}
	}
}

// RemoveInstanceNow notes that the calls in an instance whose removal was requested have been cancelled, so that its workers need not find
// out first whether one of them still has a call in it. It does nothing where the instance has ended, or is another one by now.
func RemoveInstanceNow(ctx context.Context, b *streams.Bus, asked schemas.Instance) error {
	var contest streams.Contest
	for {
		p, err := OpenInstances(b).Get(ctx, asked.Key())
		if errors.Is(err, schemas.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		i := p.Value
		if i.Wanted.State != schemas.WantRemoved || !i.Wanted.At.Equal(asked.Wanted.At) || i.Wanted.Cancelled {
			return nil
		}
		i.Wanted.Cancelled = true
		_, err = OpenInstances(b).Update(ctx, asked.Key(), i, p.Revision)
		if err == nil || !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// wish puts a wish on a record, or takes the one before off where the record says already what is wanted.
func wish(i *schemas.Instance, want schemas.InstanceTarget, now time.Time) {
	there := want == schemas.WantPaused && i.State == schemas.InstancePaused ||
		want == schemas.WantRunning && (i.State == schemas.InstanceReady || i.State == schemas.InstanceReserving) ||
		want == schemas.WantRemoved && i.State == schemas.InstanceEnding
	switch {
	case there:
		i.Wanted = schemas.InstanceWish{}
	case i.Wanted.State != want:
		i.Wanted = schemas.InstanceWish{State: want, At: now}
	}
}
