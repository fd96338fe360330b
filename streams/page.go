package streams

import (
	"context"
	"errors"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// PageResult is a part of a conversation.
type PageResult struct {
	Events []Entry[schemas.Event]
	// Next is where the next page begins: ask for what is after it.
	Next schemas.Cursor
	// UpToDate says that there was nothing more.
	UpToDate bool
	// Recovered is false when not everything after the given cursor is there; Gap says what is not.
	Recovered bool
	Gap       *Gap
}

// MaxPage is the most events of one page.
const MaxPage = 1000

// Page reads at most limit events (1 to MaxPage; 0: 100) of a conversation after the cursor. It returns fewer, although there are more, if
// they would exceed 1 MiB together.
func Page(
	ctx context.Context, b *Bus, account schemas.AccountID, conversation schemas.ConversationID, after schemas.Cursor, limit int,
) (PageResult, error) {
	const common = 100
	if err := errors.Join(account.Validate(), conversation.Validate()); err != nil {
		return PageResult{}, err
	}
	limit = min(orDefault(limit, common), MaxPage)
	stream, subject := b.topology.EventsOf(account, conversation)
	at, err := resolve(ctx, b.reader, stream, subject, after)
	if err != nil {
		return PageResult{}, err
	}
	r := PageResult{Recovered: at.gap == nil, Gap: at.gap, Next: schemas.Cursor{Epoch: at.epoch, Seq: at.last}}
	if after.Place() == r.Next {
		r.Next = after // it is proven
	}
	ctx, release, err := b.reader.Acquire(ctx, stream, subject)
	if err != nil {
		return PageResult{}, err
	}
	defer release()
	size := 0
	for more, full := true, false; more && !full && len(r.Events) < limit; {
		var page []direct.Message
		page, more, err = b.reader.GetPage(ctx, stream, subject, r.Next.Seq+1, nil, limit-len(r.Events))
		if err != nil {
			return PageResult{}, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			if size += b.payloads.Size(m); size > direct.PageBytes && len(r.Events) > 0 {
				more, full = true, true
				break
			}
			before := r.Next
			r.Next = schemas.Cursor{Epoch: at.epoch, Seq: m.Seq, Mark: schemas.MarkOf(m.ID)}
			e, is, err := readEvent(ctx, b, at.epoch, m)
			switch {
			case err != nil:
				return PageResult{}, err
			case e.Lost && r.Gap == nil:
				r.Recovered, r.Gap = false, &Gap{From: before, To: r.Next}
			case is && !e.Lost:
				r.Events = append(r.Events, e)
			}
		}
		r.UpToDate = !more
	}
	return r, nil
}

// EventPage is a part of a conversation as stored. Lost events are included.
type EventPage struct {
	Epoch  string
	Events []Entry[schemas.Event]
	// First and Last are the sequences between which the page lies, 0 if nothing is there. What is no
	// event counts too, though it is skipped.
	First, Last uint64
	More        bool // there is more behind it
}

// ReadEvents reads at most limit events (0: as many as a page has) of a conversation from a sequence
// on, in one round trip. A page of several is not larger than 1 MiB.
func ReadEvents(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, from uint64, limit int) (EventPage, error) {
	stream, subject := b.topology.EventsOf(a, c)
	epoch, err := b.reader.Epoch(ctx, stream)
	if err != nil {
		return EventPage{}, err
	}
	ctx, release, err := b.reader.Acquire(ctx, stream, subject)
	if err != nil {
		return EventPage{}, err
	}
	defer release()
	page, more, err := b.reader.GetPage(ctx, stream, subject, from, nil, limit)
	if err != nil {
		return EventPage{}, err
	}
	page, more = b.payloads.WithinPage(page, more)
	r := EventPage{Epoch: epoch, More: more && len(page) > 0, Events: make([]Entry[schemas.Event], 0, len(page))}
	if len(page) > 0 {
		r.First, r.Last = page[0].Seq, page[len(page)-1].Seq
	}
	for _, m := range page {
		e, is, err := readEvent(ctx, b, epoch, m)
		if err != nil {
			return EventPage{}, err
		}
		if is {
			r.Events = append(r.Events, e)
		}
	}
	return r, nil
}

// readEvent reads a stored event. is is false if a publisher with all rights stored something else there; the entry is lost if its payload is
// gone for good. A payload that is only not there yet is an error of code unavailable.
func readEvent(ctx context.Context, b *Bus, epoch string, m direct.Message) (e Entry[schemas.Event], is bool, err error) {
	e, err = Events.entry(ctx, b, epoch, m)
	switch {
	case err == nil:
		return e, true, nil
	case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
		return e, false, err
	case schemas.CodeOf(err) == schemas.NotFound:
		b.log.Error("payload of an event is missing, readers get a gap", "stream", m.Stream, "seq", m.Seq, "error", err)
		e.Lost = true
		return e, true, nil
	}
	b.log.Error("stored message is not an event, skipped", "stream", m.Stream, "seq", m.Seq, "error", err)
	return e, false, nil
}

// LastEvent is the cursor of a conversation's last event; its sequence is 0 if there is none.
func LastEvent(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID) (schemas.Cursor, error) {
	stream, subject := b.topology.EventsOf(a, c)
	epoch, err := b.reader.Epoch(ctx, stream)
	if err != nil {
		return schemas.Cursor{}, err
	}
	last, err := b.reader.GetNewest(ctx, stream, direct.Request{Last: subject})
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return schemas.Cursor{}, err
	}
	return schemas.Cursor{Epoch: epoch, Seq: last.Seq, Mark: schemas.MarkOf(last.ID)}, nil
}

// ShardState is the state of a shard of the events at one moment.
type ShardState struct {
	Epoch       string
	First, Last uint64
	// Server is the process that this one is connected to: while it is the same, the stream cannot have lost its end in a crash.
	Server string
}

// ShardOf is the number of the shard that a conversation lies in.
func (b *Bus) ShardOf(c schemas.ConversationID) int { return subjects.ShardOf(c, b.Shards()) }

// ReadShard asks the server for the state of a shard, and remembers its epoch.
func ReadShard(ctx context.Context, b *Bus, shard int) (ShardState, error) {
	stream := subjects.EventStream(shard)
	info, err := b.reader.ConnectedInfo(ctx, stream)
	if err != nil {
		return ShardState{}, err
	}
	return ShardState{Epoch: b.reader.NoteEpoch(stream, info), First: info.State.FirstSeq, Last: info.State.LastSeq, Server: b.live.ConnectedServerId()}, nil
}
