package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
)

// recordLaunch writes that the job is being launched, before it is. Mine is false when somebody else
// has decided about the job since it was read. It tries for as long as a started call may.
func (t *execution) recordLaunch(ctx context.Context, l *launch, hash string) (mine bool, err error) {
	return t.amend(ctx, l, func(j *schemas.Job) bool {
		if !lifecycle.Launch(j, t.w.me(), t.w.Bus.Now(), l.life) {
			return false
		}
		j.Tied, j.Own = providers.ProfileOf(t.w.Provider).JobsEndWithWorker, l.own
		j.Ref = schemas.JobRef{Sandbox: l.command.Sandbox, ID: t.call.Job}
		j.Actions, j.TokenHash, j.Places = providers.JobActionsOf(t.w.Provider), hash, placesOf(l.places)
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

// recordStart writes that the job runs and tells of it. A job that has settled in the meantime stays
// so. What cannot be written now is the job manager's to find.
func (t *execution) recordStart(ctx context.Context, l *launch) error {
	ref := l.job.Value.Ref
	mine, err := t.amend(ctx, l, func(j *schemas.Job) bool {
		return lifecycle.Launched(j, t.w.me(), ref)
	})
	switch {
	case err != nil:
		t.w.Log.Warn("the record does not say yet that the job runs", "job", t.call.Job, "error", err)
	case !mine && !ranToItsEnd(l.job.Value.State):
		stopStray(ctx, t.w.Provider, t.w.Log, ref)
	}
	if err := t.w.at(atRecorded, t.call); err != nil {
		return err
	}
	t.w.Metrics.JobStarted(t.w.Name)
	if err := tellStarted(ctx, t.w.Bus, l.job.Value); err != nil {
		t.w.Log.Warn("job.started not published", "job", t.call.Job, "error", err)
	}
	l.endTelling()
	return nil
}

// ranToItsEnd reports whether a job in this state may run, or did: whether its start fits the state.
func ranToItsEnd(s schemas.JobState) bool {
	return s != schemas.JobLost && s != schemas.JobExpired && s != schemas.JobUnstarted
}

// stopStray ends a job that others have declared over, as far as that can be done.
func stopStray(ctx context.Context, p providers.Provider, log *slog.Logger, ref schemas.JobRef) {
	c, ok := providers.As[providers.JobController](p)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	if err := c.StopJob(ctx, ref, stopGrace); err != nil && !errors.Is(err, schemas.ErrNotFound) {
		log.Warn("a job that counts as over may still run", "job", ref.ID, "error", err)
	}
}

// amend changes the job's record, as often as it takes, and keeps what is there in l. Change reports
// whether there is anything to change for it. It gives up when the started call must.
func (t *execution) amend(ctx context.Context, l *launch, change func(*schemas.Job) bool) (changed bool, err error) {
	until := time.Now().Add(shortage)
	jobs := lifecycle.OpenJobs(t.w.Bus)
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		j := l.job.Value
		if !change(&j) {
			return false, nil
		}
		rev, err := jobs.Update(ctx, l.job.Key, j, l.job.Revision)
		if err == nil {
			l.job.Value, l.job.Revision = j, rev
			return true, nil
		}
		// A conflict, or an answer that got lost: either way what counts is what is there.
		if have, gerr := jobs.Get(ctx, l.job.Key); gerr == nil {
			moved := have.Revision != l.job.Revision
			if l.job = have; moved && errors.Is(err, schemas.ErrConflict) {
				continue
			}
		}
		if time.Now().Add(wait).After(until) || !sleep(ctx, wait) {
			return false, fmt.Errorf("write the record of the job: %w", err)
		}
	}
}

// tellStarted puts job.started on the conversation, once.
func tellStarted(ctx context.Context, b *streams.Bus, j schemas.Job) error {
	absent := b.AbsentAt(j.Launched)
	event := schemas.NewJobEvent(j, schemas.JobStarted, schemas.JobStartedID(j.Account, j.ID), j.Launched, schemas.JobStartedData{
		Job: j.ID, Call: j.Call, Tool: j.Tool, Command: j.Command, Provider: j.Provider, Actions: j.Actions, Deadline: j.Deadline,
	})
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		_, err := streams.StoreOnce(ctx, b, event, absent)
		if err == nil || !schemas.CodeOf(err).Retryable() || wait > time.Second || !sleep(ctx, wait) {
			return err
		}
	}
}
