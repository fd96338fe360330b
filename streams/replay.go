package streams

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Entry is a stored message with its place.
type Entry[T any] struct {
	Cursor  schemas.Cursor
	Value   T
	Stored  time.Time // by the server's clock
	Subject string
	// Lost says that the payload of an event is gone, so that Value is empty. Only [ReadEvents] returns such events.
	Lost bool
}

// Replay reads the topic from after a cursor to its present end. Filter is that of Consume; for
// [Events] it is "<account>/<conversation>". A message that cannot be decoded, and a failure of the
// log, is an error in the sequence; only the latter ends it. What is stored while it reads may or
// may not be seen. A cursor of another incarnation of the stream is an error of code conflict.
func (t Topic[T]) Replay(ctx context.Context, b *Bus, filter string, after schemas.Cursor) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		stream, subject, err := t.source(b, filter)
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		epoch, err := b.reader.Epoch(ctx, stream)
		if err == nil && !after.IsStart() && after.Epoch != epoch {
			err = schemas.OpErrorf(schemas.Conflict, "replay", "the cursor %s is of another stream: begin at -1", after)
		}
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		for next := after.Seq + 1; ; {
			page, more, err := b.reader.GetPage(ctx, stream, subject, next, nil, 0)
			if err != nil {
				yield(Entry[T]{}, err)
				return
			}
			for _, m := range page {
				next = m.Seq + 1
				if !yield(t.entry(ctx, b, epoch, m)) {
					return
				}
			}
			if !more || len(page) == 0 {
				return
			}
		}
	}
}

// source is where the messages of a filter lie.
func (t Topic[T]) source(b *Bus, filter string) (stream, subject string, err error) {
	if t.stream != "" {
		if filter != "" && !subjects.IsToken(filter) {
			return "", "", schemas.Invalidf("filter", "%q cannot be one", schemas.Quotable(filter))
		}
		return t.stream, t.filter(filter), nil
	}
	account, conversation, ok := strings.Cut(filter, "/")
	a, c := schemas.AccountID(account), schemas.ConversationID(conversation)
	if !ok {
		return "", "", schemas.Invalidf("filter", "events are read by <account>/<conversation>")
	}
	if err := errors.Join(a.Validate(), c.Validate()); err != nil {
		return "", "", err
	}
	shard := subjects.ShardOf(c, b.Shards())
	return subjects.EventStream(shard), subjects.Event(shard, a, c), nil
}

// entry decodes a stored message.
func (t Topic[T]) entry(ctx context.Context, b *Bus, epoch string, m direct.Message) (Entry[T], error) {
	e := Entry[T]{Cursor: schemas.Cursor{Epoch: epoch, Seq: m.Seq, Mark: schemas.MarkOf(m.ID)}, Stored: m.Time, Subject: m.Subject}
	data, err := b.payloads.Whole(ctx, m.Stream, m.Headers, m.Data, m.Time)
	if err != nil {
		return e, err
	}
	e.Value, err = t.decode(m.Subject, copyHeaders(m.Headers), data)
	return e, err
}
