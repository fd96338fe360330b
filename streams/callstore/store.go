// Package callstore reads the calls that lie on the log: one by its id, the newest of an account, those of a provider's queue, and how far
// the queues were acknowledged. What has happened to a call is read by package callstate.
package callstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/fair"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Options say where the calls are. All are required.
type Options struct {
	Stream string // of the calls
	Reader *direct.Reader
	JS     jetstream.JetStream
	Lists  *fair.Semaphore // bounds how many lists are made at the same time
	Now    func() time.Time
	// Payload returns the payload of a message of the stream, also from the object store.
	Payload func(ctx context.Context, m direct.Message) ([]byte, error)
	// HasDeadLetter reports whether a message of the stream has a dead letter.
	HasDeadLetter func(ctx context.Context, seq uint64) (bool, error)
}

// Store reads the calls of a log. It is safe for concurrent use.
type Store struct{ o Options }

// New returns the Store of a log.
func New(o Options) *Store { return &Store{o: o} }

// Kept is how long a call is the record of its id. It stays on the log for longer while it has no end: who gives calls their end removes
// them with [Store.Forget].
const Kept = 24 * time.Hour

// Find returns an admitted call by its id, for 24 hours from its admission, also one that waits for an approval. A large input is left
// out ([schemas.Call.WithoutInput]); [Store.FindWhole] reads it. Code: not_found.
func (s *Store) Find(ctx context.Context, account schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	m, err := s.Stored(ctx, account, id)
	if err != nil {
		return schemas.Call{}, err
	}
	if m.Headers.Get(payloads.HeaderSummary) != "" {
		if c, err := withoutPayload(m); err == nil && c.InputLeftOut() {
			c.Input = nil // it was written as null
			return c, nil
		}
	}
	c, err := s.whole(ctx, m)
	return c.WithoutInput(), err
}

// FindWhole is [Store.Find] with the whole input: many megabytes, where the call has them.
func (s *Store) FindWhole(ctx context.Context, account schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	m, err := s.Stored(ctx, account, id)
	if err != nil {
		return schemas.Call{}, err
	}
	return s.whole(ctx, m)
}

// whole reads a stored call with its input, also from the object store.
func (s *Store) whole(ctx context.Context, m direct.Message) (schemas.Call, error) {
	data, err := s.o.Payload(ctx, m)
	if err != nil {
		return schemas.Call{}, err
	}
	return schemas.DecodeCall(data)
}

// Stored reads the message of a call. Code: not_found.
func (s *Store) Stored(ctx context.Context, account schemas.AccountID, id schemas.CallID) (direct.Message, error) {
	if err := errors.Join(account.Validate(), id.Validate()); err != nil {
		return direct.Message{}, err
	}
	m, err := s.o.Reader.GetLast(ctx, s.o.Stream, subjects.Call("*", account, id))
	if errors.Is(err, schemas.ErrNotFound) {
		return direct.Message{}, schemas.Errorf(schemas.NotFound, "there is no call %q: ids are known for 24 hours", schemas.Quotable(string(id)))
	}
	return m, err
}

// withoutPayload reads a call without fetching a payload from the object store.
func withoutPayload(m direct.Message) (schemas.Call, error) {
	summary := m.Headers.Get(payloads.HeaderSummary)
	if summary == "" {
		return schemas.DecodeCall(m.Data)
	}
	var c schemas.Call
	err := json.Unmarshal([]byte(summary), &c)
	return c, err
}

// Summary returns what stays readable of a call whose large payload is gone: all but its input. It is enough to end the call.
func Summary(c schemas.Call) string {
	c.Input, c.InputSize = nil, c.InputBytes()
	b, _ := json.Marshal(c) //nolint:errchkjson // a call was read from JSON or made from what was
	return string(b)
}

// Filter returns the subjects of a provider's calls; empty: of all providers.
func Filter(provider string) string {
	if provider == "" {
		provider = "*"
	}
	return subjects.Calls + provider + ".*.*"
}
