package callstate

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// judgeUnseen sets Forgotten of those calls of a conversation of which no event was found, see [State]. It reads nothing if there are
// none.
func judgeUnseen(ctx context.Context, group []*Reading) error {
	var of *History
	for _, r := range group {
		if !r.unseen() {
			continue
		}
		if of == nil {
			var err error
			if of, err = r.of.History(ctx, r.Stream, r.Subject); err != nil {
				return err
			}
		}
		r.State.Forgotten = !of.WholeSince(r.Since, r.Stored)
	}
	return nil
}

// unseen reports whether no event of the call was found although the log may have had it for long. A second publish of an event of a
// younger call is detected by its message id, even if the first was removed.
func (r *Reading) unseen() bool {
	return !r.asked && r.State.Unseen() && !r.of.o.Recognises(r.Stored)
}

// History is what is known about events removed from a conversation.
type History struct {
	first  time.Time // when the first event that is there was stored; zero: there is none
	Before uint64    // what is there is behind this sequence
	all    bool      // nothing was ever removed from its shard
	made   time.Time // when its shard was
	aged   time.Time // up to when events were removed from its shard for their age; zero: it is not known
	beyond time.Time // the same of it for their number; zero: none were
}

// History reads what is known about events removed from a conversation, by the stream and subject of its events. Code: unavailable.
func (s *Reader) History(ctx context.Context, stream, subject string) (*History, error) {
	var h History
	first, err := s.o.Reader.GetNewest(ctx, stream, direct.Request{Seq: 1, Next: subject})
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return nil, err
	}
	h.first = first.Time
	h.Before = max(first.Seq, 1) - 1
	info, err := s.o.Reader.Info(ctx, stream)
	if err != nil {
		return nil, err
	}
	if h.first.IsZero() {
		h.Before = info.State.LastSeq
	}
	h.all, h.made = info.State.Msgs == info.State.LastSeq, info.Created
	if h.aged, err = s.o.Trimmed(ctx, subjects.ShardKey(stream)); err == nil {
		h.beyond, err = s.o.Trimmed(ctx, subjects.ConversationKey(subject))
	}
	return &h, err
}

// WholeSince reports whether a conversation certainly has all events that were published since a time, by the log's clock, about what was
// stored at another. Events are removed only from the beginning of a conversation, so it has them if an event older than that is left, if
// nothing was ever removed from its shard and the shard is not younger, or if the marks of retention prove that only older events were
// removed. False means that it is unknown. It is pure.
func (h *History) WholeSince(since, stored time.Time) bool {
	switch {
	case !h.first.IsZero() && !h.first.After(since):
		return true
	case h.all && !h.made.After(stored):
		return true
	}
	return !h.aged.IsZero() && h.aged.Before(since) && h.beyond.Before(since)
}
