package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

// OpenJobs returns the records of the background jobs. It does not touch the log.
func OpenJobs(b *Bus) *Bucket[schemas.Job] { return OpenBucket[schemas.Job](b, JobRecords) }

// OpenGroups returns the records of the groups. It does not touch the log.
func OpenGroups(b *Bus) *Bucket[schemas.Group] { return OpenBucket[schemas.Group](b, GroupRecords) }

// GroupKey is the place of a group in its bucket.
func GroupKey(a schemas.AccountID, group string) string { return string(a) + "." + token(group) }

// FindJob returns the record of an account's job with its revision. Code: not_found, in the same words
// for one that never was and for another account's.
func FindJob(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.JobID) (Pair[schemas.Job], error) {
	none := schemas.Errorf(schemas.NotFound, "", "there is no job %q: settled jobs are known for seven days", schemas.Quotable(string(id)))
	if err := a.Validate(); err != nil {
		return Pair[schemas.Job]{}, err
	}
	if id.Validate() != nil {
		return Pair[schemas.Job]{}, none
	}
	p, err := OpenJobs(b).Get(ctx, schemas.JobKey(a, id))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted {
		return Pair[schemas.Job]{}, none
	}
	return p, err
}

// EnsureJob returns the record of the job that a background call starts, and makes it when it is not
// there. Any process may call it at any time: everything in a new record comes from the call.
func EnsureJob(ctx context.Context, b *Bus, c schemas.Call) (Pair[schemas.Job], error) {
	jobs := OpenJobs(b)
	for {
		p, err := jobs.Get(ctx, schemas.JobKey(c.Account, c.Job))
		if err == nil || !errors.Is(err, schemas.ErrNotFound) {
			return p, err
		}
		j := newJob(c)
		if err := markOpen(ctx, b, j); err != nil { // first: no record may be open without a mark
			return Pair[schemas.Job]{}, err
		}
		rev, err := jobs.Create(ctx, j.Key(), j, 0)
		if err == nil {
			return Pair[schemas.Job]{Key: j.Key(), Value: j, Revision: rev}, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return Pair[schemas.Job]{}, err
		}
	}
}

func newJob(c schemas.Call) schemas.Job {
	var in schemas.BashInput
	_ = json.Unmarshal(c.Input, &in) // it was checked at admission; a record without a command is one all the same
	command := in.Command
	if len(command) > schemas.MaxJobCommand {
		command = strings.ToValidUTF8(command[:schemas.MaxJobCommand-len("…")], "") + "…"
	}
	return schemas.Job{
		ID: c.Job, Account: c.Account, Agent: c.Agent, Conversation: c.Conversation, Turn: c.Turn, Call: c.ID, Group: c.Group, Origin: c.Origin,
		Tool: c.Tool, Command: command, Provider: c.Provider, Workspace: c.Workspace, Sandbox: c.Sandbox, State: schemas.JobWaiting,
		Created: c.Accepted, Deadline: c.Deadline,
	}
}

// Complete puts a job's completion on the log, once. When there is one already it returns that with
// code conflict: the first counts, whoever tells it.
func Complete(ctx context.Context, b *Bus, c schemas.Completion) (schemas.Completion, error) {
	err := Completions.Publish(ctx, b, c)
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
func FindCompletion(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.JobID) (schemas.Completion, error) {
	m, err := b.getLast(ctx, streamJobs, completionSubject(a, id))
	if err != nil {
		return schemas.Completion{}, err
	}
	data, err := b.whole(ctx, streamJobs, m.headers, m.data, m.time)
	if err != nil {
		return schemas.Completion{}, err
	}
	return decodeCompletion(m.subject, nil, data)
}

// HasEvent reports whether an event with this id is on a conversation, looking at what was stored from
// since on. It costs a read of the conversation: for those who come again after a crash.
func HasEvent(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, id string, since time.Time) (bool, error) {
	seq, err := findEvent(ctx, b, a, c, id, since)
	return seq > 0, err
}

// Schedule stores v to be handed out at a time, instead of whatever was scheduled for the same subject,
// and returns when the log has confirmed it. It comes up to a quarter of a second late, and at once
// when the time has passed. Code unsupported: the topic has no timers.
func (t Topic[T]) Schedule(ctx context.Context, b *Bus, v T, at time.Time) error {
	if t.timer == nil {
		return schemas.Errorf(schemas.Unsupported, "schedule", "this topic has no timers")
	}
	subject, err := t.subject(b, v)
	if err != nil {
		return err
	}
	data, err := t.encode(v)
	if err != nil {
		return err
	}
	m := nats.NewMsg(t.timer(subject))
	m.Data = data
	if err := b.offload(ctx, t.stream, m); err != nil {
		return err
	}
	return b.schedule(ctx, m, subject, at)
}

// Ask sends a request to a subject of [JobControlSubject]'s kind and returns the answer: of exactly one
// who listens. Codes: unavailable (nobody listens, or no answer came before ctx ended), and those of
// the answer itself.
func (b *Bus) Ask(ctx context.Context, subject string, data []byte) ([]byte, error) {
	m, err := b.bulk.RequestWithContext(deadlined(ctx), subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, schemas.Wrap(schemas.Unavailable, "ask", "nobody is there to answer: try again", err)
	case err != nil:
		return nil, coded("ask", err)
	}
	if m.Header.Get(headerFailed) != "" {
		e := new(schemas.Error)
		if err := json.Unmarshal(m.Data, e); err != nil || e.Code == "" {
			return nil, schemas.Errorf(schemas.Internal, "ask", "the answer is not understood")
		}
		return nil, e
	}
	return m.Data, nil
}

const headerFailed = "Sandjet-Failed" // marks an answer that is an error

// Answer answers the requests to a subject until ctx ends, each in a goroutine of its own, and returns
// when all are answered. An error of handle is the answer, as [schemas.Public]. Ready is called when
// requests arrive; nil: nobody waits for that.
func (b *Bus) Answer(ctx context.Context, subject string, ready func(), handle func(context.Context, []byte) ([]byte, error)) error {
	const slots, backlog = 64, 1024
	requests := make(chan *nats.Msg, backlog)
	sub, err := b.work.ChanSubscribe(subject, requests)
	if err != nil {
		return coded("answer on "+subject, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // nothing follows from it
	if err := b.work.FlushWithContext(deadlined(ctx)); err != nil && ctx.Err() == nil {
		b.log.Debug("requests are not heard yet", "subject", subject, "error", err) // they are when the connection is back
	}
	if ready != nil {
		ready()
	}
	hard := context.WithoutCancel(ctx)
	places := make(chan struct{}, slots)
	defer func() {
		for range slots {
			places <- struct{}{}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-requests:
			places <- struct{}{}
			go func() {
				defer func() { <-places }()
				b.answerOne(hard, m, handle)
			}()
		}
	}
}

func (b *Bus) answerOne(ctx context.Context, m *nats.Msg, handle func(context.Context, []byte) ([]byte, error)) {
	answer := nats.NewMsg(m.Reply)
	data, err := handle(ctx, m.Data)
	if err != nil {
		answer.Header.Set(headerFailed, "1")
		data, _ = json.Marshal(schemas.Public(err)) //nolint:errchkjson // a type of ours that always encodes
	}
	answer.Data = data
	if m.Reply == "" {
		return
	}
	if err := b.work.PublishMsg(answer); err != nil {
		b.log.Info("a request could not be answered", "subject", m.Subject, "error", err)
	}
}

// JobControlSubject is where a worker answers questions about the jobs that it looks after.
func JobControlSubject(worker string) string { return "sandjet.rpc.jobs." + worker }
