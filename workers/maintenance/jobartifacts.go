package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// collectWithin is how long a worker may take to collect the artifacts of a job: more than for those of a call.
	collectWithin = 75 * time.Second
	// collectPatience is how long after the end of a job, and after its own start, a settler retries while no worker responds: after a
	// restart of the deployment, workers may start later than the settler. After that, one attempt counts.
	collectPatience = 30 * time.Second
)

// asksForArtifacts reports whether a job that ended with c may have left artifacts. It has no side effects.
func asksForArtifacts(j schemas.Job, c schemas.Completion) bool {
	return j.Outputs != nil && c.State != schemas.JobUnstarted && !j.Launched.IsZero()
}

// collect requests a worker to store and announce the artifacts of a job: the worker that manages the job, or else any of its provider.
// Artifacts that cannot be collected in time are skipped, with the reason, so that no job is settled late. After an error it must be
// called again.
func (x *settling) collect(ctx context.Context, j schemas.Job, d streams.Delivery[schemas.Completion]) (schemas.JobArtifacts, error) {
	waits := x.bus.Now().Sub(latest(d.Published, x.begun)) < collectPatience && d.Value.State != schemas.JobLost // its worker may have ended too
	found, err := x.askForArtifacts(ctx, j)
	switch code := schemas.CodeOf(err); {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return found, fmt.Errorf("collect the artifacts of the job: %w", err)
	case code == schemas.Conflict: // another settler was first, which the write of the record will show
		return found, nil
	case code.Retryable() && waits:
		return found, streams.RetryAfter(again, err)
	case code == schemas.Unavailable:
		return skippedOutputs(schemas.SkipNoWorker), nil
	case code == schemas.Timeout:
		return skippedOutputs(schemas.SkipTimeout), nil
	}
	x.log.Warn("artifacts of a job not collected", "job", j.ID, "error", err)
	return skippedOutputs(schemas.SkipUnreadable), nil
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func skippedOutputs(why schemas.SkipReason) schemas.JobArtifacts {
	return schemas.JobArtifacts{SkippedArtifacts: []schemas.SkippedArtifact{{Path: schemas.OutputsFolder, Reason: why}}}
}

func (x *settling) askForArtifacts(ctx context.Context, j schemas.Job) (found schemas.JobArtifacts, err error) {
	q, err := schemas.EncodeJSON(schemas.JobArtifactsRequest{Account: j.Account, Job: j.ID})
	if err != nil {
		return found, fmt.Errorf("write the request for artifacts: %w", err)
	}
	answer, err := x.ask(ctx, streams.ArtifactsSubjectOf(j.Worker), q)
	if code := schemas.CodeOf(err); code == schemas.Unavailable || code == schemas.Timeout { // it has ended, is suspended or lacks access
		answer, err = x.ask(ctx, streams.ArtifactsSubject(j.Provider), q)
	}
	if err != nil {
		return found, err
	}
	return schemas.DecodeJobArtifacts(answer)
}

// ask is [streams.Bus.Ask] with the time limit collectWithin. Code timeout: the worker did not respond in time.
func (x *settling) ask(ctx context.Context, subject string, q []byte) ([]byte, error) {
	asked, cancel := context.WithTimeout(ctx, collectWithin)
	defer cancel()
	answer, err := x.bus.Ask(asked, subject, q)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return nil, schemas.Wrap(schemas.Timeout, "artifacts", "the worker did not answer in time", err)
	}
	return answer, err
}
