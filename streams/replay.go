package streams

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
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
		epoch, err := b.reader.epoch(ctx, stream)
		if err == nil && !after.IsStart() && after.Epoch != epoch {
			err = schemas.OpErrorf(schemas.Conflict, "replay", "the cursor %s is of another stream: begin at -1", after)
		}
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		for next := after.Seq + 1; ; {
			page, more, err := b.reader.getPage(ctx, stream, subject, next, nil, 0)
			if err != nil {
				yield(Entry[T]{}, err)
				return
			}
			for _, m := range page {
				next = m.seq + 1
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
		if filter != "" && !plain(filter) {
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
	shard := shardOf(c, b.Shards())
	return eventStream(shard), eventSubject(shard, a, c), nil
}

// entry decodes a stored message.
func (t Topic[T]) entry(ctx context.Context, b *Bus, epoch string, m stored) (Entry[T], error) {
	e := Entry[T]{Cursor: schemas.Cursor{Epoch: epoch, Seq: m.seq, Mark: schemas.MarkOf(m.id)}, Stored: m.time, Subject: m.subject}
	data, err := b.payloads.whole(ctx, m.stream, m.headers, m.data, m.time)
	if err != nil {
		return e, err
	}
	e.Value, err = t.decode(m.subject, copyHeaders(m.headers), data)
	return e, err
}
