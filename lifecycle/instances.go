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

// OpenInstances returns the bucket of instances ([schemas.Instance]) by [schemas.InstanceKey]. Keys with the prefix "owner." are from the
// version before. It does not access the log.
func OpenInstances(b *streams.Bus) *streams.Bucket[schemas.Instance] {
	return streams.OpenBucket[schemas.Instance](b, streams.Boxes)
}

// ReserveInstance makes the record of an instance that a worker is about to make for the first time, or for the first time after its last
// worker's end. It is for providers whose sandboxes end with their worker.
func ReserveInstance(i *schemas.Instance, worker string, now time.Time) {
	*i = schemas.Instance{
		Account: i.Account, Sandbox: i.Sandbox, Workspace: i.Workspace, Provider: i.Provider, State: schemas.InstanceReserving,
		Worker: worker, Made: now, Used: now,
	}
}

// ReadyInstance records that calls may enter the sandbox that a reservation has returned. It may be the one on record, woken or running.
// Another sandbox begins a new life, of at most life, unless the one before was paused: then it was only woken. Scripts says whether
// scripts must run in a new sandbox before the first call.
//
// Code unavailable: this sandbox is being paused or released, is to be removed, or is at the end of its life; the call waits.
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

// PauseInstance records that a sandbox is being paused: from now on no call may enter. Another process may repeat it if the one that wrote
// it is gone. Code conflict: it is not running.
func PauseInstance(i *schemas.Instance, now time.Time) error {
	if i.State != schemas.InstanceReady && i.State != schemas.InstancePausing {
		return schemas.OpErrorf(schemas.Conflict, "pause", "the instance is %s", i.State)
	}
	i.State, i.Pausing = schemas.InstancePausing, now
	return nil
}

// PausedInstance records that a sandbox is paused: the next call wakes it. Code conflict: it was not being paused.
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

// EndInstance records that a sandbox is being released: no call may enter any more. It may be repeated with a new time, so that of several
// processes one ends it.
func EndInstance(i *schemas.Instance, now time.Time) {
	i.State, i.Ending = schemas.InstanceEnding, now
}

// WantInstance requests that an instance is paused, running or removed. The worker that owns it, or one of its provider's, does so when
// the rules of docs/STATES.md allow it, and then removes the request from the record. A later request replaces an earlier one; a request
// for the present state does nothing. It returns the record as it then is.
//
// Codes: invalid (no such state), not_found, conflict (it is being released already).
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

// RemoveInstanceNow records that the calls in an instance whose removal was requested have been cancelled, so that its workers need not
// check whether calls still run in it. It does nothing if the instance has ended or was replaced by another.
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

// wish sets the requested state on a record, or clears the request if the instance already has that state.
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
