package streams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// headerUntil says until when who asks waits for the answer, by the log's clock.
const headerUntil = "Sandjet-Until"

// Ask sends a request to a subject such as [JobControlSubject] and returns the answer of exactly one listener. The listener's context ends
// when ctx ends here. Codes: unavailable (no process listens, or no answer came before ctx ended), and those of the answer.
func (b *Bus) Ask(ctx context.Context, subject string, data []byte) ([]byte, error) {
	ctx = deadlined(ctx)
	q := nats.NewMsg(subject)
	q.Data = data
	if at, ok := ctx.Deadline(); ok {
		q.Header.Set(headerUntil, b.Now().Add(time.Until(at)).Format(time.RFC3339Nano))
	}
	m, err := b.bulk.RequestMsgWithContext(ctx, q)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, schemas.Wrap(schemas.Unavailable, "ask", "no process answers: try again", err)
	case err != nil:
		return nil, natserr.Coded("ask", err)
	}
	if m.Header.Get(headerFailed) != "" {
		e := new(schemas.Error)
		if err := json.Unmarshal(m.Data, e); err != nil || e.Code == "" {
			return nil, schemas.OpErrorf(schemas.Internal, "ask", "the answer is not understood")
		}
		return nil, e
	}
	return m.Data, nil
}

// concurrentAsks bounds the questions of accounts, of one kind, that this process waits for; one account has three quarters of them.
const concurrentAsks = 64

// AskFor is [Bus.Ask] for an account. Accounts take turns, so that one that asks without pause cannot fill the listener's queue.
func (b *Bus) AskFor(ctx context.Context, a schemas.AccountID, subject string, data []byte) ([]byte, error) {
	return askFor(ctx, b, b.asks, a, subject, data)
}

// AskAboutFiles is [Bus.AskFor] about files at a place. These requests have turns of their own, since they take longer.
func (b *Bus) AskAboutFiles(ctx context.Context, a schemas.AccountID, p FilesPlace, data []byte) ([]byte, error) {
	return askFor(ctx, b, b.fileAsks, a, FilesSubject(p), data)
}

func askFor(ctx context.Context, b *Bus, turns *fair.Semaphore, a schemas.AccountID, subject string, data []byte) ([]byte, error) {
	if err := turns.Acquire(ctx, a); err != nil {
		return nil, natserr.Coded("ask", err)
	}
	defer turns.Release(a)
	return b.Ask(ctx, subject, data)
}

const headerFailed = "Sandjet-Failed" // marks an answer that is an error

// Answer answers the requests to a subject until ctx ends, each in its own goroutine, and returns when all are answered. An error of
// handle is sent as [schemas.Public]. ready is called once requests can arrive; it may be nil.
func (b *Bus) Answer(ctx context.Context, subject string, ready func(), handle func(context.Context, []byte) ([]byte, error)) error {
	const slots, backlog = 64, 1024
	requests := make(chan *nats.Msg, backlog)
	sub, err := b.work.ChanSubscribe(subject, requests)
	if err != nil {
		return natserr.Coded("answer on "+subject, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // nothing follows from it
	if err := b.work.FlushWithContext(deadlined(ctx)); err != nil && ctx.Err() == nil {
		b.log.Debug("requests not subscribed yet", "subject", subject, "error", err) // they are when the connection is back
	}
	if ready != nil {
		ready()
	}
	hard := context.WithoutCancel(ctx)
	r := newResponder(b, handle)
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
				r.answer(hard, m)
			}()
		}
	}
}

// StillAwaited reports whether the requester still waits for the answer. A handler calls it, with its context, right before it changes
// something: its process may have been suspended, and the requester may have done something else meanwhile. Code: timeout.
func StillAwaited(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(at) {
		return schemas.Errorf(schemas.Timeout, "the caller waits for the answer no more: nothing was done")
	}
	return nil
}

// responder answers requests of one kind. It is safe for concurrent use.
type responder struct {
	conn   *nats.Conn
	log    *slog.Logger
	now    func() time.Time // the log's
	handle func(context.Context, []byte) ([]byte, error)
}

func newResponder(b *Bus, handle func(context.Context, []byte) ([]byte, error)) *responder {
	return &responder{conn: b.work, log: b.log, now: b.Now, handle: handle}
}

// answer runs the handler for a request and sends the answer.
func (r *responder) answer(ctx context.Context, m *nats.Msg) {
	answer := nats.NewMsg(m.Reply)
	ctx, cancel := r.awaited(ctx, m)
	defer cancel()
	err := StillAwaited(ctx)
	var data []byte
	if err == nil {
		data, err = r.guarded(ctx, m)
	}
	if err != nil {
		answer.Header.Set(headerFailed, "1")
		data, _ = schemas.EncodeJSON(schemas.Public(err)) // a type of ours that always encodes
	}
	answer.Data = data
	if m.Reply == "" {
		return
	}
	if err := r.conn.PublishMsg(answer); err != nil {
		r.log.Info("request not answered", "subject", m.Subject, "error", err)
	}
}

// guarded returns the answer of the handler, and an error if it panics.
func (r *responder) guarded(ctx context.Context, m *nats.Msg) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.Error("request handler panicked", "subject", m.Subject, "panic", p, "stack", string(debug.Stack()))
			data, err = nil, schemas.Errorf(schemas.Internal, "the request could not be handled")
		}
	}()
	return r.handle(ctx, m.Data)
}

// awaited returns a handler's context, which ends when the requester stops waiting. Requests of older versions lack the headers for that.
func (r *responder) awaited(ctx context.Context, m *nats.Msg) (context.Context, context.CancelFunc) {
	until, err := time.Parse(time.RFC3339Nano, m.Header.Get(headerUntil))
	if err != nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, until.Sub(r.now()))
}

// JobControlSubject is where a worker answers questions about the jobs that it manages.
func JobControlSubject(worker string) string { return "sandjet.rpc.jobs." + worker }

// ArtifactsSubject is where the workers of a provider are asked for the artifacts of jobs that have ended: one of them answers.
func ArtifactsSubject(provider string) string { return "sandjet.rpc.artifacts.provider." + provider }

// ArtifactsSubjectOf is where one worker is asked.
func ArtifactsSubjectOf(worker string) string { return "sandjet.rpc.artifacts.worker." + worker }

// SweepSubject is where the workers of a provider are asked to compare its boxes with their records: one of them answers.
func SweepSubject(provider string) string { return "sandjet.rpc.instances." + provider }

// FilesPlace is where files of workspaces are. Not every worker reaches each.
type FilesPlace string

// The places that are not [FilesInFolders].
const (
	FilesInBucket    FilesPlace = "s3"     // the operator's
	FilesInOwnBucket FilesPlace = "s3-own" // the account's
)

// FilesInFolders is where a provider keeps files of workspaces: each has folders of its own.
func FilesInFolders(provider string) FilesPlace { return FilesPlace("folder." + provider) }

// FilesPlaceOf returns where the files of a workspace are.
func FilesPlaceOf(w schemas.WorkspaceFiles) FilesPlace {
	switch {
	case w.Storage == "":
		return FilesInFolders(w.Provider)
	case w.Bucket.Name == "":
		return FilesInBucket
	}
	return FilesInOwnBucket
}

// FilesSubject is the subject on which workers that reach a place answer questions about files there. Each question gets one worker.
func FilesSubject(p FilesPlace) string { return "sandjet.rpc.files." + string(p) }

// Sharing configures [Bus.Share].
type Sharing struct {
	Slots   int // requests at a time
	Each    int // of these, of one account
	Waiting int // requests that wait for a slot, of which each is held in memory
	// Account is whose a request is.
	Account func(data []byte) schemas.AccountID
}

// Share answers requests to a subject until ctx ends, together with other processes that do so: each request goes to one process. Accounts
// take turns. When ctx ends it takes no more, waits for those in progress and returns nil. An error of handle is sent as [schemas.Public].
func (b *Bus) Share(ctx context.Context, subject string, o Sharing, handle func(context.Context, []byte) ([]byte, error)) error {
	hard := context.WithoutCancel(ctx)
	held, turns := make(chan struct{}, o.Slots+o.Waiting), fair.NewSemaphore(o.Slots, o.Each)
	var inFlight sync.WaitGroup
	r := newResponder(b, func(ctx context.Context, data []byte) ([]byte, error) {
		a := o.Account(data)
		if err := turns.Acquire(ctx, a); err != nil {
			return nil, natserr.Coded("wait for a turn", err)
		}
		defer turns.Release(a)
		return handle(ctx, data)
	})
	sub, err := b.work.QueueSubscribe(subject, subjects.SharedQueue, func(m *nats.Msg) {
		held <- struct{}{}
		inFlight.Go(func() {
			defer func() { <-held }()
			r.answer(hard, m)
		})
	})
	if err != nil {
		return natserr.Coded("answer on "+subject, err)
	}
	<-ctx.Done()
	err = sub.Unsubscribe()
	inFlight.Wait()
	if err != nil && b.work.Status() == nats.CONNECTED {
		return natserr.Coded("stop answering on "+subject, err)
	}
	return nil
}
