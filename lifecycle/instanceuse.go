package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// FindInstance returns the record of an account's instance with its revision. Codes: invalid (the id), not_found, with the same message
// for one that does not exist and for another account's.
func FindInstance(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.InstanceID) (
	streams.BucketEntry[schemas.Instance], error,
) {
	var none streams.BucketEntry[schemas.Instance]
	provider, s, w, err := id.Split()
	if err != nil {
		return none, err
	}
	if err := a.Validate(); err != nil {
		return none, err
	}
	p, err := OpenInstances(b).Get(ctx, schemas.InstanceKey(provider, a, s, w))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted {
		return none, schemas.Errorf(schemas.NotFound, "there is no instance %q: nothing is kept for this sandbox and workspace now",
			schemas.Quotable(string(id)))
	}
	return p, err
}

// JobsIn returns the background jobs that run in an instance, according to their records.
func JobsIn(ctx context.Context, b *streams.Bus, i schemas.Instance) ([]schemas.JobID, error) {
	keys, err := openMarks(b).Keys(ctx, schemas.JobKey(i.Account, "*"))
	if err != nil {
		return nil, err
	}
	var in []schemas.JobID
	for _, key := range keys {
		p, err := OpenJobs(b).Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if j := p.Value; j.Provider == i.Provider && j.Sandbox == i.Sandbox && j.Workspace == i.Workspace && !j.DedicatedSandbox &&
			!j.State.Final() && j.State != schemas.JobWaiting {
			in = append(in, j.ID)
		}
	}
	return in, nil
}

// BoxReplaced reports whether the record of a job's instance names another sandbox than the job's: an existing one, or one that another
// worker is about to make.
func BoxReplaced(ctx context.Context, b *streams.Bus, j schemas.Job) (bool, error) {
	if j.DedicatedSandbox || j.Ref.Sandbox.IsZero() {
		return false, nil
	}
	p, err := OpenInstances(b).Get(ctx, schemas.InstanceKey(j.Provider, j.Account, j.Sandbox, j.Workspace))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted {
		return false, nil
	}
	return p.Value.Ref != j.Ref.Sandbox, err
}

// AdoptInstance makes the record of a sandbox that was found without one: made at the time that its provider reports, used now, its
// onCreate scripts not known to have run. It lives for at most life from when it was made.
func AdoptInstance(i *schemas.Instance, ref schemas.Ref, paused bool, made, now time.Time, life time.Duration) {
	*i = schemas.Instance{
		Account: i.Account, Sandbox: i.Sandbox, Workspace: i.Workspace, Provider: i.Provider, State: schemas.InstanceReady,
		Ref: ref, Made: made, Used: now, Deadline: made.Add(life),
	}
	if paused {
		i.State, i.Paused = schemas.InstancePaused, now
	}
}
