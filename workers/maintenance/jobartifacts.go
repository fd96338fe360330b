package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	// collectWithin is how long a worker may take to collect the artifacts of a job: above what it takes for those of a call.
	collectWithin = 75 * time.Second
	// collectPatience is for how long after the end of a job, and after its own start, a settler asks again where no worker answers: those of a
	// restarted deployment may start after it. From then on one attempt counts.
	collectPatience = 30 * time.Second
)

// asksForArtifacts reports whether a job that ended with c may have left artifacts. It is pure.
func asksForArtifacts(j schemas.Job, c schemas.Completion) bool {
	return j.Outputs != nil && c.State != schemas.JobUnstarted && !j.Launched.IsZero()
}

// collect has a worker store and announce what a job has left: the one that manages it, else any of its provider. Nothing may keep a job
// from settling for long: what cannot be had in time is skipped, with the reason. An error asks to be called again.
func (x *settling) collect(ctx context.Context, j schemas.Job, d streams.Delivery[schemas.Completion]) (schemas.JobArtifacts, error) {
	waits := x.bus.Now().Sub(latest(d.Published, x.begun)) < collectPatience && d.Value.State != schemas.JobLost // its worker may have gone with it
	found, err := x.askForArtifacts(ctx, j)
	switch code := schemas.CodeOf(err); {
	case err == nil:
		return found, nil
	case ctx.Err() != nil:
		return found, fmt.Errorf("collect the artifacts of the job: %w", err)
	case code == schemas.Conflict: // another settler was faster: the record says so when it is written
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
	if code := schemas.CodeOf(err); code == schemas.Unavailable || code == schemas.Timeout { // it is gone, is suspended, or does not reach the files
		answer, err = x.ask(ctx, streams.ArtifactsSubject(j.Provider), q)
	}
	if err != nil {
		return found, err
	}
	return schemas.DecodeJobArtifacts(answer)
}

// ask is [streams.Bus.Ask] for as long as a worker may take. Code timeout: the one that was asked did not answer.
func (x *settling) ask(ctx context.Context, subject string, q []byte) ([]byte, error) {
	asked, cancel := context.WithTimeout(ctx, collectWithin)
	defer cancel()
	answer, err := x.bus.Ask(asked, subject, q)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return nil, schemas.Wrap(schemas.Timeout, "artifacts", "the worker did not answer in time", err)
	}
	return answer, err
}
