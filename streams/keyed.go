package streams

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/usage"
)

// Kept is a stored message of a topic. Its value may be in the object store: [Topic.Read] reads it.
type Kept struct{ m direct.Message }

// Seq returns the message's sequence in its stream.
func (k Kept) Seq() uint64 { return k.m.Seq }

// Stored returns when it was stored, by the server's clock.
func (k Kept) Stored() time.Time { return k.m.Time }

// Last returns the stored message of a topic that keeps one message per key. key has the fields that make the key: account and id of a
// call, account and job of a completion. Code: not_found.
func (t Topic[T]) Last(ctx context.Context, b *Bus, key T) (Kept, error) {
	if t.expect == nil {
		return Kept{}, schemas.OpErrorf(schemas.Unsupported, "look up", "messages of this topic have no keys")
	}
	m, err := b.reader.GetLast(ctx, t.stream, t.expect(key))
	return Kept{m}, err
}

// Read decodes the value of a message of the topic.
func (t Topic[T]) Read(ctx context.Context, b *Bus, k Kept) (T, error) {
	e, err := t.entry(ctx, b, "", k.m)
	return e.Value, err
}

// Holds reports whether a stored message has the key of v.
func (t Topic[T]) Holds(b *Bus, k Kept, v T) bool {
	subject, err := t.subject(b, v)
	return err == nil && subject == k.m.Subject
}

// Accepted returns the topic for writes that follow from accepted work, which a nearly full log still takes.
func (t Topic[T]) Accepted() Topic[T] {
	t.work = usage.Accepted
	return t
}

// Requested returns the topic for writes that an account's client asks for: they count against the account's quota, and a nearly full log
// refuses them.
func (t Topic[T]) Requested() Topic[T] {
	t.work = usage.Requested
	return t
}

// Reserved returns the topic for writes for which space is reserved: [Bus.ReserveFor], [Bus.ReserveAccepted].
func (t Topic[T]) Reserved() Topic[T] {
	t.work = usage.Reserved
	return t
}

// Replace stores v if the last message under its key has a sequence; 0: if there is none. Codes: conflict when it has another, and those
// of [Topic.Publish].
func (t Topic[T]) Replace(ctx context.Context, b *Bus, v T, seq uint64) error {
	m, err := t.message(ctx, b, v)
	if err != nil {
		return err
	}
	expectLast(m, seq, t.expect(v))
	_, err = b.writer.store(ctx, m)
	return err
}

// Span is the rest of a walk over messages: those after After, up to Until. The zero Span is all of them.
type Span struct {
	After, Until uint64
	Epoch        string // of the stream
}

// Walk reads the messages of one account that were stored since a time, in order; if the log's clock was set back, those from the first
// message on that is stamped so. filter is that of Consume; key is the last part of their subjects, or empty for any. A message that cannot
// be decoded is logged and left out; an error is the last of the sequence.
//
// It reads a span, so that it can be continued: it sets Until to the end of the stream when the first walk begins, and moves After forward
// as it reads. Code conflict: the stream was recreated since.
func (t Topic[T]) Walk(ctx context.Context, b *Bus, filter string, a schemas.AccountID, key string, since time.Time,
	span *Span) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		if err := t.allOf(ctx, b, filter, a, key, since, span, yield); err != nil && !errors.Is(err, ErrEnough) {
			yield(Entry[T]{}, err)
		}
	}
}

func (t Topic[T]) allOf(ctx context.Context, b *Bus, filter string, a schemas.AccountID, key string, since time.Time,
	span *Span, yield func(Entry[T], error) bool) error {
	if t.of == nil {
		return schemas.OpErrorf(schemas.Unsupported, "read", "this topic is not read by account")
	}
	subject := t.of(filter, string(a))
	if key != "" {
		subject = subject[:len(subject)-1] + key
	}
	info, err := b.reader.Info(ctx, t.stream)
	if err != nil {
		return err
	}
	epoch := direct.EpochOf(t.stream, info.Created)
	switch {
	case span.Until == 0: // what is stored meanwhile is behind it: without an end the walk could meet what follows from it
		*span = Span{Until: info.State.LastSeq, Epoch: epoch}
	case span.Epoch != epoch:
		return schemas.OpErrorf(schemas.Conflict, "read", "the stream was recreated: begin at its beginning")
	}
	found, err := b.clock.FoundSince(ctx, since)
	if err != nil {
		return err
	}
	from, at, reached := span.After+1, &since, span.After > 0
	if since.IsZero() || !found || reached {
		at = nil
	}
	for {
		page, more, err := b.reader.GetPage(ctx, t.stream, subject, from, at, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			if m.Seq > span.Until {
				return nil
			}
			from, at = m.Seq+1, nil
			if reached = reached || !m.Time.Before(since); !reached {
				continue
			}
			e, err := t.entry(ctx, b, "", m)
			if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
				return err
			}
			span.After = m.Seq
			switch {
			case err != nil:
				b.log.Error("stored message not read", "stream", t.stream, "seq", m.Seq, "error", err)
			case !yield(e, nil):
				return ErrEnough
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}
