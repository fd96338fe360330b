package lifecycle

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// StartEvent returns the event of a call's start by a worker, in a delivery. For a call with side effects its id is the same in each
// delivery, so that the log accepts only one: it is the proof of the start.
func StartEvent(c schemas.Call, worker string, delivery int, now time.Time) schemas.Event {
	proof := delivery
	if c.SideEffects() {
		proof = 1 // a server that was killed may have lost some deliveries, and then counts from 1 again
	}
	return schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, proof), now,
		schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: worker, Attempt: delivery})
}

// Start stores the proof of a start and reports whether it was stored by this call of Start: only then may a call with side effects run.
// False means that the call was started or ended before, or that this proof was stored and the acknowledgement was lost: read the state of
// the call. The events in first are stored before it. After unavailable or timeout it is unknown whether it was stored: call it again.
func Start(ctx context.Context, b *streams.Bus, proof schemas.Event, first ...schemas.Event) (bool, error) {
	stored, err := streams.Prove(ctx, b, proof, first...)
	return err == nil && !stored.Duplicate, err
}

// Cancel requests the cancellation of an accepted call. A worker that runs it ends it; a waiting call gets its result. If the call has
// ended, the request has no effect.
func Cancel(ctx context.Context, b *streams.Bus, c schemas.Call, reason string) error {
	return streams.Cancels.Publish(ctx, b,
		schemas.Cancel{Account: c.Account, Call: c.ID, Accepted: c.Accepted, Reason: reason, Time: b.Now()})
}

// Launch changes the record of a job to launching by a worker, and reports whether that is allowed: false means that another process has
// decided about the job. It is pure: the caller must write the record by compare-and-set.
func Launch(j *schemas.Job, worker string, now time.Time, lifetime time.Duration) bool {
	again := j.State == schemas.JobLaunching && j.Worker == worker
	if !again && (j.State != schemas.JobWaiting || j.Worker != "") {
		return false
	}
	j.State, j.Worker, j.Launched, j.Deadline = schemas.JobLaunching, worker, now, now.Add(lifetime)
	return true
}

// Launched changes the record of a job that a worker launches to running, with its reference, and reports whether that is allowed: a job
// that has settled or has another worker now stays as it is. It is pure, as [Launch].
func Launched(j *schemas.Job, worker string, ref schemas.JobRef) bool {
	if j.State != schemas.JobLaunching || j.Worker != worker {
		return false
	}
	j.State, j.Ref = schemas.JobRunning, ref
	return true
}
