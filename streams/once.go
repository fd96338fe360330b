package streams

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// StoreOnce stores an event and returns its position, so that receivers can continue reading from there.
//
// Within ten minutes the log itself recognises an event that is already stored. A caller that comes later, or was suspended since it knew
// that the event was absent, has the conversation read from that time on, and an event that is found is not stored again. Whether that is
// needed is decided right before the event is stored.
//
// If the event is not found, and events may have been removed from the conversation since, it is unknown whether it was stored. A cautious
// caller then stores nothing, and gets the position before the first remaining event.
func StoreOnce(ctx context.Context, b *Bus, e schemas.Event, absent Absence) (schemas.Cursor, error) {
	shard := subjects.ShardOf(e.Conversation, b.Shards())
	epoch, err := b.reader.Epoch(ctx, subjects.EventStream(shard))
	if err != nil {
		return schemas.Cursor{}, err
	}
	if !absent.detected(b) {
		seq, err := findEvent(ctx, b, e, absent.at)
		if err != nil {
			return schemas.Cursor{}, err
		}
		if seq > 0 {
			return schemas.Cursor{Epoch: epoch, Seq: seq, Mark: schemas.MarkOf(e.ID)}, nil
		}
		if absent.cautious {
			stream, subject := b.topology.EventsOf(e.Account, e.Conversation)
			of, err := b.states.History(ctx, stream, subject)
			if err != nil {
				return schemas.Cursor{}, err
			}
			if !of.WholeSince(absent.at.Add(-ClocksApart), absent.at) {
				return schemas.Cursor{Epoch: epoch, Seq: of.Before}, nil
			}
		}
	}
	sure := b.Certainty()
	stored, err := Events.Store(ctx, b, e)
	if err == nil && e.Type == schemas.CallAccepted {
		b.announced.add(e.ID, sure)
	}
	return schemas.Cursor{Epoch: epoch, Seq: stored.Cursor.Seq, Mark: schemas.MarkOf(e.ID)}, err
}

// Prove stores the event that proves a start, over the connection by which the call was delivered. A server that has considered this
// process gone has closed that connection; the confirmation then comes over another one, and [Bus.Generation] has changed. first is stored
// before it: the log stores messages of one connection in order.
func Prove(ctx context.Context, b *Bus, e schemas.Event, first ...schemas.Event) (Stored, error) {
	return storeEvent(ctx, b, b.workWriter, e, e.ID, first)
}

// StoreFenced stores an event unless the log knows fence as the id of another one, and makes the log know fence for the next ten minutes.
// So only one of two events with the same fence can be stored, by any processes. first is as with [Prove].
func StoreFenced(ctx context.Context, b *Bus, e schemas.Event, fence string, first ...schemas.Event) (Stored, error) {
	return storeEvent(ctx, b, b.writer, e, fence, first)
}

func storeEvent(ctx context.Context, b *Bus, by *writer, e schemas.Event, id string, first []schemas.Event) (Stored, error) {
	m, err := Events.message(ctx, b, e)
	if err != nil {
		return Stored{}, err
	}
	for _, f := range first {
		if err := precede(ctx, b, by.acks.Conn, f); err != nil {
			return Stored{}, err
		}
	}
	m.Header.Set(jetstream.MsgIDHeader, id)
	return by.store(ctx, m)
}

// Precede sends an event, which is usually stored already, before others that the same Bus publishes, and does not wait: the confirmation
// of a later one counts for it too.
func Precede(ctx context.Context, b *Bus, e schemas.Event) error {
	return precede(ctx, b, b.publish, e)
}

func precede(ctx context.Context, b *Bus, conn *nats.Conn, e schemas.Event) error {
	m, err := Events.message(ctx, b, e)
	if err != nil {
		return err
	}
	return natserr.Coded("publish", conn.PublishMsg(m))
}

// findEvent returns the sequence of an event in its stream, 0 if it is not there.
func findEvent(ctx context.Context, b *Bus, e schemas.Event, since time.Time) (uint64, error) {
	from := since.Add(-ClocksApart)
	seq, err := scan(ctx, b, e, &from)
	if err != nil || seq > 0 {
		return seq, err
	}
	if found, err := b.clock.FoundSince(ctx, from); found || err != nil {
		return 0, err
	}
	return scan(ctx, b, e, nil)
}

// scan finds an event in what was stored since a time, or in the whole conversation, where another use of a call's id may lie: what
// is before the acceptance of the newest is of another, and an acceptance is that of the call which was accepted at its time.
func scan(ctx context.Context, b *Bus, e schemas.Event, since *time.Time) (seq uint64, err error) {
	stream, subject := b.topology.EventsOf(e.Account, e.Conversation)
	whole, accepted := since == nil, schemas.AcceptedID(e.Account, schemas.CallID(e.Subject))
	for from, more := uint64(1), true; more; since = nil {
		var page []direct.Message
		if page, more, err = b.reader.GetPage(ctx, stream, subject, from, since, 0); err != nil {
			return 0, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			from = m.Seq + 1
			switch {
			case m.ID == e.ID && !whole:
				return m.Seq, nil
			case m.ID == e.ID && e.ID == accepted:
				is, err := isOf(ctx, b, m, e.Time)
				if err != nil {
					return 0, err
				}
				if is {
					seq = m.Seq
				}
			case m.ID == e.ID:
				seq = m.Seq
			case m.ID == accepted:
				seq = 0
			}
		}
	}
	return seq, nil
}

// isOf reports whether a message is an event with a time. Code: unavailable.
func isOf(ctx context.Context, b *Bus, m direct.Message, at time.Time) (bool, error) {
	e, err := Events.entry(ctx, b, "", m)
	if err != nil && (schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil) {
		return false, err
	}
	return err == nil && e.Value.Time.Equal(at), nil
}

// HasEvent reports whether an event with this id is on a conversation, looking at what was stored from
// since on. It costs a read of the conversation: for those who come again after a crash.
func HasEvent(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, id string, since time.Time) (bool, error) {
	seq, err := findEvent(ctx, b, schemas.Event{ID: id, Account: a, Conversation: c}, since)
	return seq > 0, err
}
