package streams

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/sandjet/sandjet/schemas"
)

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

// concurrentAsks bounds the questions of accounts that this process waits for; one account has three quarters of them.
const concurrentAsks = 64

// AskFor is [Bus.Ask] for an account: questions take turns between accounts, so that one that asks without end does not fill the queue
// of who answers.
func (b *Bus) AskFor(ctx context.Context, a schemas.AccountID, subject string, data []byte) ([]byte, error) {
	if err := b.asks.take(ctx, a); err != nil {
		return nil, coded("ask", err)
	}
	defer b.asks.give(a)
	return b.Ask(ctx, subject, data)
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
		b.log.Debug("requests not subscribed yet", "subject", subject, "error", err) // they are when the connection is back
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
	data, err := b.guardedAnswer(ctx, m, handle)
	if err != nil {
		answer.Header.Set(headerFailed, "1")
		data, _ = schemas.EncodeJSON(schemas.Public(err)) // a type of ours that always encodes
	}
	answer.Data = data
	if m.Reply == "" {
		return
	}
	if err := b.work.PublishMsg(answer); err != nil {
		b.log.Info("request not answered", "subject", m.Subject, "error", err)
	}
}

// guardedAnswer is what handle answers, and an error where it panics.
func (b *Bus) guardedAnswer(ctx context.Context, m *nats.Msg, handle func(context.Context, []byte) ([]byte, error)) (
	data []byte, err error,
) {
	defer func() {
		if p := recover(); p != nil {
			b.log.Error("request handler panicked", "subject", m.Subject, "panic", p, "stack", string(debug.Stack()))
			data, err = nil, schemas.Errorf(schemas.Internal, "", "the request could not be handled")
		}
	}()
	return handle(ctx, m.Data)
}

// JobControlSubject is where a worker answers questions about the jobs that it looks after.
func JobControlSubject(worker string) string { return "sandjet.rpc.jobs." + worker }

// SweepSubject is where the workers of a provider are asked to compare its boxes with their records: one of them answers.
func SweepSubject(provider string) string { return "sandjet.rpc.instances." + provider }

// FilesPlace is where files of workspaces are. Not every worker reaches each.
type FilesPlace string

// The places.
const (
	FilesInFolders   FilesPlace = "folder"
	FilesInBucket    FilesPlace = "s3"     // the operator's
	FilesInOwnBucket FilesPlace = "s3-own" // the account's
)

// FilesPlaceOf is where the files of a workspace are.
func FilesPlaceOf(w schemas.Workspace) FilesPlace {
	switch {
	case w.Storage == "":
		return FilesInFolders
	case w.Bucket.Name == "":
		return FilesInBucket
	}
	return FilesInOwnBucket
}

// FilesSubject is where workers that reach a place answer for the files there: one of them each question.
func FilesSubject(p FilesPlace) string { return "sandjet.rpc.files." + string(p) }

// Share answers the requests to a subject until ctx ends, at most slots at a time, together with others that do so: each request is
// one's. It takes no more then, lets those in hand end and returns nil. An error of handle is the answer, as [schemas.Public].
func (b *Bus) Share(ctx context.Context, subject string, slots int, handle func(context.Context, []byte) ([]byte, error)) error {
	hard := context.WithoutCancel(ctx)
	places := make(chan struct{}, slots)
	var inHand sync.WaitGroup
	sub, err := b.work.QueueSubscribe(subject, sharedQueue, func(m *nats.Msg) {
		places <- struct{}{}
		inHand.Go(func() {
			defer func() { <-places }()
			b.answerOne(hard, m, handle)
		})
	})
	if err != nil {
		return coded("answer on "+subject, err)
	}
	<-ctx.Done()
	err = sub.Unsubscribe()
	inHand.Wait()
	if err != nil && b.work.Status() == nats.CONNECTED {
		return coded("stop answering on "+subject, err)
	}
	return nil
}
