package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/subjects"
)

// OpenJobs returns the bucket of job records. It does not access the log.
func OpenJobs(b *streams.Bus) *streams.Bucket[schemas.Job] {
	return streams.OpenBucket[schemas.Job](b, streams.JobRecords)
}

// OpenGroups returns the bucket of group records. It does not access the log.
func OpenGroups(b *streams.Bus) *streams.Bucket[schemas.Group] {
	return streams.OpenBucket[schemas.Group](b, streams.GroupRecords)
}

// GroupKey returns the key of a group in its bucket.
func GroupKey(a schemas.AccountID, group string) string {
	return string(a) + "." + subjects.Token(group)
}

// FindJob returns the record of an account's job with its revision. Code: not_found, with the same message for one that does not exist and
// for another account's.
func FindJob(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.JobID) (streams.BucketEntry[schemas.Job], error) {
	none := schemas.Errorf(schemas.NotFound, "there is no job %q: settled jobs are known for seven days", schemas.Quotable(string(id)))
	if err := a.Validate(); err != nil {
		return streams.BucketEntry[schemas.Job]{}, err
	}
	if id.Validate() != nil {
		return streams.BucketEntry[schemas.Job]{}, none
	}
	p, err := OpenJobs(b).Get(ctx, schemas.JobKey(a, id))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted {
		return streams.BucketEntry[schemas.Job]{}, none
	}
	return p, err
}

// EnsureJob returns the record of the job that a background call starts, and makes it if there is none. Any process may call it at any
// time: a new record is derived from the call alone.
func EnsureJob(ctx context.Context, b *streams.Bus, c schemas.Call) (streams.BucketEntry[schemas.Job], error) {
	jobs := OpenJobs(b)
	var contest streams.Contest
	for {
		p, err := jobs.Get(ctx, schemas.JobKey(c.Account, c.Job))
		if err == nil || !errors.Is(err, schemas.ErrNotFound) {
			return p, err
		}
		if _, err := c.TypedInput(); err != nil && c.InputLeftOut() { // the record has the beginning of the command
			whole, err := b.Calls().FindWhole(ctx, c.Account, c.ID)
			if err != nil && !errors.Is(err, schemas.ErrNotFound) {
				return streams.BucketEntry[schemas.Job]{}, err
			}
			if err == nil && whole.Job == c.Job {
				c = whole
			}
		}
		j := newJob(c)
		if err := markOpen(ctx, b, j); err != nil { // first: no record may be open without a mark
			return streams.BucketEntry[schemas.Job]{}, err
		}
		rev, err := jobs.Create(ctx, j.Key(), j, 0)
		if err == nil {
			return streams.BucketEntry[schemas.Job]{Key: j.Key(), Value: j, Revision: rev}, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return streams.BucketEntry[schemas.Job]{}, err
		}
		if err := contest.Again(ctx); err != nil {
			return streams.BucketEntry[schemas.Job]{}, err
		}
	}
}

func newJob(c schemas.Call) schemas.Job {
	input, _ := c.TypedInput()         // it was checked at admission
	in, _ := input.(schemas.BashInput) // a job without a command is recorded too
	return schemas.Job{
		ID: c.Job, Account: c.Account, Agent: c.Agent, Conversation: c.Conversation, Turn: c.Turn, Call: c.ID, Group: c.Group, Origin: c.Origin,
		Tool: c.Tool, Command: cutCommand(in.Command), Provider: c.Provider, Workspace: c.Workspace, Sandbox: c.Sandbox, State: schemas.JobWaiting,
		Created: c.Accepted, Deadline: c.Deadline,
	}
}

// Complete stores a job's completion on the log, once. If there is one already, it returns that with the code conflict: the first counts,
// whichever process published it.
func Complete(ctx context.Context, b *streams.Bus, c schemas.Completion) (schemas.Completion, error) {
	err := streams.Completions.Publish(ctx, b, c)
	if !errors.Is(err, schemas.ErrConflict) {
		return c, err
	}
	have, ferr := FindCompletion(ctx, b, c.Account, c.Job)
	if ferr != nil {
		return c, ferr
	}
	if same(have, c) {
		return have, nil // this very publish, repeated after its confirmation was lost
	}
	return have, err
}

func same(a, b schemas.Completion) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// FindCompletion returns the completion of a job, for seven days. Code: not_found.
func FindCompletion(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.JobID) (schemas.Completion, error) {
	m, err := streams.Completions.Last(ctx, b, schemas.Completion{Account: a, Job: id})
	if err != nil {
		return schemas.Completion{}, err
	}
	return streams.Completions.Read(ctx, b, m)
}
