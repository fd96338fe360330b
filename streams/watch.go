package streams

import (
	"context"
	"errors"
	"iter"

	"github.com/sandjet/sandjet/schemas"
)

// Watch replays the topic from after the cursor and goes on live until ctx ends; it is for topics
// that every process wants to know whole, which is [Cancels]. It calls caughtUp once, when the
// replay has reached the present. What is stored comes at least once and in order; after the log was
// away, nothing is missing. What cannot be decoded is skipped. An error ends it, and means that
// the log refuses.
func (t Topic[T]) Watch(ctx context.Context, b *Bus, after schemas.Cursor, caughtUp func()) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		err := t.watch(ctx, b, after, caughtUp, yield)
		if err != nil && !errors.Is(err, ErrEnough) && ctx.Err() == nil {
			yield(Entry[T]{}, err)
		}
	}
}

func (t Topic[T]) watch(ctx context.Context, b *Bus, after schemas.Cursor, caughtUp func(), yield func(Entry[T], error) bool) error {
	if t.live == "" {
		return schemas.Errorf(schemas.Unsupported, "watch", "this topic is not published live")
	}
	feed, err := persist(ctx, b, func() (feed, error) { return b.tail.open(ctx, t.live) })
	if err != nil {
		return err
	}
	defer feed.close()
	last := after
	read := func() error {
		_, err := persist(ctx, b, func() (struct{}, error) {
			epoch, err := b.epoch(ctx, t.stream)
			if err != nil {
				return struct{}{}, err
			}
			if last.Epoch != epoch { // made anew
				last = schemas.Cursor{Epoch: epoch}
			}
			for e, err := range t.Replay(ctx, b, "", last) {
				if err != nil && (e.Cursor.Seq == 0 || schemas.CodeOf(err) == schemas.Unavailable) {
					return struct{}{}, err
				}
				last = e.Cursor
				if err == nil && !yield(e, nil) {
					return struct{}{}, ErrEnough
				}
			}
			return struct{}{}, nil
		})
		return err
	}
	if err := read(); err != nil {
		return err
	}
	caughtUp()
	for {
		m, _, err := feed.next(ctx)
		switch {
		case errors.Is(err, errBehind):
			err = read()
		case err == nil && m.seq > last.Seq+1: // the whole stream is published live: this is a hole
			err = read()
		case err == nil && m.seq == last.Seq+1:
			last.Seq = m.seq
			var e Entry[T]
			if e, err = t.entry(ctx, b, last.Epoch, m); err == nil && !yield(e, nil) {
				return ErrEnough
			} else if schemas.CodeOf(err) == schemas.Unavailable {
				last.Seq--
				err = read()
			} else {
				err = nil
			}
		}
		if err != nil {
			return err
		}
	}
}
