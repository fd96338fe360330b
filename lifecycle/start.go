package lifecycle

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// StartEvent is the event of a call's start by a worker, in a delivery. That of a call with side effects has one id whatever the
// delivery, so that the log takes one start: it is the proof of the start.
func StartEvent(c schemas.Call, worker string, delivery int, now time.Time) schemas.Event {
	proof := delivery
	if c.SideEffects() {
		proof = 1 // a server that was killed may have lost some deliveries, and then counts from 1 again
	}
	return schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, proof), now,
		schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: worker, Attempt: delivery})
}

// Start stores the proof of a start and reports whether it is this one's: a call with side effects may run only then. False says that the
// call was started or ended before, or that this very proof was stored and the acknowledgement was lost: read the state of the call. First
// is stored before it. After unavailable or timeout it is unknown: call it again.
func Start(ctx context.Context, b *streams.Bus, proof schemas.Event, first ...schemas.Event) (bool, error) {
	stored, err := streams.Prove(ctx, b, proof, first...)
	return err == nil && !stored.Duplicate, err
}

// Cancel asks for the end of a call that is accepted. A worker that runs it ends it, and one that waits gets its result; that it
// has one already is no error.
func Cancel(ctx context.Context, b *streams.Bus, c schemas.Call, reason string) error {
	return streams.Cancels.Publish(ctx, b,
		schemas.Cancel{Account: c.Account, Call: c.ID, Accepted: c.Accepted, Reason: reason, Time: b.Now()})
}

// Launch changes the record of a job to launching by a worker, at a time and for a lifetime, and reports whether it may be: false when
// another process has decided about the job. It is pure: write the record on the condition that it is as it was read.
func Launch(j *schemas.Job, worker string, now time.Time, lifetime time.Duration) bool {
	again := j.State == schemas.JobLaunching && j.Worker == worker
	if !again && (j.State != schemas.JobWaiting || j.Worker != "") {
		return false
	}
	j.State, j.Worker, j.Launched, j.Deadline = schemas.JobLaunching, worker, now, now.Add(lifetime)
	return true
}

// Launched changes the record of a job that a worker launches to running under a reference, and reports whether it may be: a job
// that has settled or has another worker by now stays as it is. It is pure, as [Launch].
func Launched(j *schemas.Job, worker string, ref schemas.JobRef) bool {
	if j.State != schemas.JobLaunching || j.Worker != worker {
		return false
	}
	j.State, j.Ref = schemas.JobRunning, ref
	return true
}
