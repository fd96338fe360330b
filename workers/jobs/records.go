package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
)

// launchRecord is the record of a call's job, as it was last read or written here.
type launchRecord struct {
	bus  *streams.Bus
	call schemas.Call
	job  streams.BucketEntry[schemas.Job]
}

// record finds the record of a call's job, and makes it where there is none.
func (l *Launcher) record(ctx context.Context, c schemas.Call) (*launchRecord, error) {
	p, err := lifecycle.EnsureJob(ctx, l.options.Bus, c)
	if err != nil {
		return nil, fmt.Errorf("record of the job: %w", err)
	}
	return &launchRecord{bus: l.options.Bus, call: c, job: p}, nil
}

// amend changes the record by compare-and-set, as often as needed, and keeps the latest version. change reports whether a version needs
// the change. Its error is final for the started call.
func (r *launchRecord) amend(ctx context.Context, change func(*schemas.Job) bool) (changed bool, err error) {
	until := time.Now().Add(shortage)
	records := lifecycle.OpenJobs(r.bus)
	for attempt := 1; ; attempt++ {
		j := r.job.Value
		if !change(&j) {
			return false, nil
		}
		rev, err := records.Update(ctx, r.job.Key, j, r.job.Revision)
		if err == nil {
			r.job.Value, r.job.Revision = j, rev
			return true, nil
		}
		// A conflict, or a lost acknowledgement: either way the stored record counts.
		if have, gerr := records.Get(ctx, r.job.Key); gerr == nil {
			moved := have.Revision != r.job.Revision
			if r.job = have; moved && errors.Is(err, schemas.ErrConflict) {
				continue
			}
		}
		pause := recordAgain.After(attempt)
		if time.Now().Add(pause).After(until) || !wait.Sleep(ctx, pause) {
			return false, fmt.Errorf("write the record of the job: %w", err)
		}
	}
}

// recordLaunch records the launch before it happens. mine is false if another process has launched or ended the job since it was read. It
// retries for as long as a started call may.
func (x *Launch) recordLaunch(ctx context.Context, hash string) (mine bool, err error) {
	o := x.launcher.options
	return x.amend(ctx, func(j *schemas.Job) bool {
		if !lifecycle.Launch(j, o.Lease.Worker(), o.Bus.Now(), x.life) {
			return false
		}
		j.EndsWithWorker, j.DedicatedSandbox = providers.ProfileOf(o.Provider).JobsEndWithWorker, x.own
		j.Outputs = x.order.Outputs
		j.Ref = schemas.JobRef{Sandbox: x.order.Command.Sandbox, ID: x.call.Job}
		j.Actions, j.TokenHash, j.Places = providers.JobActionsOf(o.Provider), hash, placesOf(x.places)
		return true
	})
}

func placesOf(leases []limits.Lease) []schemas.JobPlace {
	places := make([]schemas.JobPlace, len(leases))
	for i, l := range leases {
		places[i] = schemas.JobPlace{Key: l.Key, Token: l.Token}
	}
	return places
}

// recordStart records that the job is running and publishes it. A job that has settled meanwhile stays settled. What cannot be written now
// is found by the manager.
func (x *Launch) recordStart(ctx context.Context, ref schemas.JobRef) error {
	o := x.launcher.options
	x.job.Value.Ref = ref
	mine, err := x.amend(ctx, func(j *schemas.Job) bool {
		return lifecycle.Launched(j, o.Lease.Worker(), ref)
	})
	switch {
	case err != nil:
		o.Log.Warn("job record not updated to running", "job", x.call.Job, "error", err)
	case !mine && !ranToItsEnd(x.job.Value):
		stopStray(ctx, o.Provider, o.Log, ref)
	}
	if err := o.At(Recorded, x.call); err != nil {
		return err
	}
	o.Started()
	if err := publishStarted(ctx, o.Bus, x.job.Value); err != nil {
		o.Log.Warn("job.started not published", "job", x.call.Job, "error", err)
	}
	x.Close()
	return nil
}

// ranToItsEnd reports whether a job may run, or did: whether its start fits its state. One that failed with its box did not: that box may
// be there still, at a worker that was taken for dead.
func ranToItsEnd(j schemas.Job) bool {
	withBox := j.Completion != nil && j.Completion.Code != ""
	return !withBox && j.State != schemas.JobLost && j.State != schemas.JobExpired && j.State != schemas.JobUnstarted
}

// stopStray tries to end a job that other processes have declared over.
func stopStray(ctx context.Context, p providers.Provider, log *slog.Logger, ref schemas.JobRef) {
	c, ok := providers.As[providers.JobController](p)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := c.StopJob(ctx, ref, stopGrace); err != nil && !errors.Is(err, schemas.ErrNotFound) {
		log.Warn("ended job not stopped, it may still run", "job", ref.ID, "error", err)
	}
}

// publishStarted puts job.started on the conversation, once.
func publishStarted(ctx context.Context, b *streams.Bus, j schemas.Job) error {
	const attempts = 6
	absent := b.AbsentAt(j.Launched)
	event := schemas.NewJobEvent(j, schemas.JobStarted, schemas.JobStartedID(j.Account, j.ID), j.Launched, schemas.JobStartedData{
		Job: j.ID, Call: j.Call, Tool: j.Tool, Command: j.Command, Provider: j.Provider, Actions: j.Actions, Deadline: j.Deadline,
	})
	for attempt := 1; ; attempt++ {
		_, err := streams.StoreOnce(ctx, b, event, absent)
		if err == nil || !schemas.CodeOf(err).Retryable() || attempt == attempts || !recordAgain.Sleep(ctx, attempt) {
			return err
		}
	}
}
