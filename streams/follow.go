package streams

import (
	"context"
	"errors"
	"iter"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// ItemKind says what an [Item] is.
type ItemKind int

// The kinds.
const (
	ItemAttached ItemKind = iota // the first: the replay begins
	ItemEvent                    // an event
	ItemLive                     // the replay has reached the present; comes once
)

// Gap is a range of a conversation that no longer exists: after From, up to and including To.
type Gap struct {
	From schemas.Cursor `json:"from"`
	To   schemas.Cursor `json:"to"`
}

// Item is one step of following a conversation.
type Item struct {
	Kind  ItemKind
	Entry Entry[schemas.Event] // of an ItemEvent
	// Head is where the conversation's end was when the reader attached, or is at ItemLive.
	Head schemas.Cursor
	// Recovered is false at ItemAttached when not everything after the given cursor is there.
	Recovered bool
	// Gap is what is missing before this item; nil: nothing is.
	Gap *Gap
}

// Follow replays a conversation from after the cursor and continues live until ctx ends, without a gap and without repeating: events come
// in the order of the log, each once. The first item is ItemAttached; one ItemLive stands between the replay and what came later.
//
// It waits for a server that is unavailable, and reads the events that it missed meanwhile. A slow reader delays no other: events that do
// not fit its buffer are read from the log when it is ready. The sequence ends without an error when ctx ends; an error ends it, and only
// comes before the first item or when the log fails for good.
func Follow(
	ctx context.Context, b *Bus, account schemas.AccountID, conversation schemas.ConversationID, after schemas.Cursor,
) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		f := &follower{bus: b}
		err := f.run(ctx, account, conversation, after, yield)
		if err != nil && !errors.Is(err, ErrEnough) && ctx.Err() == nil {
			yield(Item{}, err)
		}
	}
}

// ErrEnough says that the reader wants no more: a watch that meets it ends without an error.
var ErrEnough = errors.New("the reader has enough")

// follower is one Follow.
type follower struct {
	bus     *Bus
	stream  string
	subject string
	epoch   string
	last    uint64 // everything up to here was passed to the reader
	gap     *Gap   // to be passed on with the next item
	yield   func(Item, error) bool
}

func (f *follower) run(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, after schemas.Cursor, yield func(Item, error) bool,
) error {
	if err := errors.Join(a.Validate(), c.Validate()); err != nil {
		return err
	}
	shard := subjects.ShardOf(c, f.bus.Shards())
	f.stream, f.subject, f.yield = subjects.EventStream(shard), subjects.Event(shard, a, c), yield
	feed, err := f.bus.tail.open(ctx, subjects.LiveSubject(a, c)) // first the tail, then the past
	if err != nil {
		return err
	}
	defer feed.Close()
	at, err := resolve(ctx, f.bus.reader, f.stream, f.subject, after)
	if err != nil {
		return err
	}
	f.epoch, f.last = at.epoch, at.last
	head, err := f.head(ctx, at)
	if err != nil {
		return err
	}
	if !yield(Item{Kind: ItemAttached, Head: head, Recovered: at.gap == nil, Gap: at.gap}, nil) {
		return ErrEnough
	}
	if err := f.catchUp(ctx, 0); err != nil {
		return err
	}
	if err := f.deliver(Item{Kind: ItemLive, Head: f.cursor(f.last)}); err != nil {
		return err
	}
	return f.live(ctx, feed)
}

// head returns the cursor of the conversation's last event, or the position from which reading will start.
func (f *follower) head(ctx context.Context, at place) (schemas.Cursor, error) {
	last, err := f.bus.reader.GetNewest(ctx, f.stream, direct.Request{Last: f.subject})
	switch {
	case err == nil:
		return f.cursor(max(last.Seq, at.last)), nil
	case errors.Is(err, schemas.ErrNotFound):
		return f.cursor(at.last), nil
	}
	return schemas.Cursor{}, err
}

func (f *follower) cursor(seq uint64) schemas.Cursor { return schemas.Cursor{Epoch: f.epoch, Seq: seq} }

// deliver passes an item to the reader, after the gap before it, if any.
func (f *follower) deliver(i Item) error {
	if i.Gap == nil {
		i.Gap, f.gap = f.gap, nil
	}
	if !f.yield(i, nil) {
		return ErrEnough
	}
	return nil
}

// live delivers live events and reads from the log those that did not arrive.
func (f *follower) live(ctx context.Context, feed direct.Feed) error {
	for {
		m, prev, err := feed.Next(ctx)
		switch {
		case errors.Is(err, direct.ErrBehind):
			if err := f.again(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		case m.Seq <= f.last: // the replay had it
		case prev > f.last: // a hole: this one is stored too, so reading closes it
			if err := f.catchUp(ctx, prev); err != nil {
				return err
			}
			if m.Seq > f.last {
				if err := f.event(ctx, m); err != nil {
					return err
				}
			}
		default:
			if err := f.event(ctx, m); err != nil {
				return err
			}
		}
	}
}

// again resumes after a reconnection. The stream may have been recreated meanwhile.
func (f *follower) again(ctx context.Context) error {
	at, err := direct.Persist(ctx, f.bus.log, func() (place, error) {
		return resolve(ctx, f.bus.reader, f.stream, f.subject, f.cursor(f.last))
	})
	if err != nil {
		return err
	}
	f.epoch, f.last = at.epoch, at.last
	if at.gap != nil {
		f.gap = at.gap
	}
	return f.catchUp(ctx, 0)
}

// catchUp delivers everything that is stored after last. expect is a sequence that must exist, 0 for none: if it does not, it was removed
// before it could be read, and a gap is delivered.
func (f *follower) catchUp(ctx context.Context, expect uint64) error {
	seen := expect == 0
	for {
		type result struct {
			page []direct.Message
			more bool
		}
		r, err := direct.Persist(ctx, f.bus.log, func() (result, error) {
			page, more, err := f.bus.reader.GetPage(ctx, f.stream, f.subject, f.last+1, nil, 0)
			return result{page, more}, err
		})
		if err != nil {
			return err
		}
		for _, m := range r.page {
			if !seen && m.Seq > expect {
				f.gap, seen = &Gap{From: f.cursor(f.last), To: f.cursor(m.Seq - 1)}, true
			}
			seen = seen || m.Seq == expect
			if err := f.event(ctx, m); err != nil {
				return err
			}
		}
		if !r.more || len(r.page) == 0 {
			break
		}
	}
	if !seen && expect > f.last {
		f.gap = &Gap{From: f.cursor(f.last), To: f.cursor(expect)}
		f.last = expect
	}
	return nil
}

// event delivers one event. A message that is not an event is skipped: only a publisher with all rights could have stored it.
func (f *follower) event(ctx context.Context, m direct.Message) error {
	is := false
	e, err := direct.Persist(ctx, f.bus.log, func() (e Entry[schemas.Event], err error) {
		e, is, err = readEvent(ctx, f.bus, f.epoch, m)
		return e, err
	})
	if err != nil {
		return err
	}
	if e.Lost {
		f.gap = &Gap{From: f.cursor(f.last), To: f.cursor(m.Seq)}
	}
	f.last = m.Seq
	if !is || e.Lost {
		return nil
	}
	return f.deliver(Item{Kind: ItemEvent, Entry: e, Head: e.Cursor})
}

// Place is the position at which a reader of a conversation starts.
type Place struct {
	At  schemas.Cursor // everything up to here is behind the reader
	Gap *Gap           // what is missing after the cursor that was asked about, if something is
}

// Locate finds the position at which to continue after a cursor, and whether something is missing after it.
func Locate(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, after schemas.Cursor) (Place, error) {
	stream, subject := b.topology.EventsOf(a, c)
	p, err := resolve(ctx, b.reader, stream, subject, after)
	return Place{At: schemas.Cursor{Epoch: p.epoch, Seq: p.last}, Gap: p.gap}, err
}

// place is the position at which a reader starts.
type place struct {
	epoch string
	last  uint64 // everything up to here is behind the reader
	gap   *Gap
}

// resolve turns a cursor into a position and finds out whether events after it are missing.
func resolve(ctx context.Context, rd *direct.Reader, stream, subject string, after schemas.Cursor) (place, error) {
	epoch, err := rd.Epoch(ctx, stream)
	if err != nil {
		return place{}, err
	}
	p := place{epoch: epoch, last: after.Seq}
	switch {
	case after.IsStart():
		return p, nil
	case after.IsTail():
		info, err := rd.Info(ctx, stream)
		if err != nil {
			return place{}, err
		}
		p.epoch, p.last = direct.EpochOf(stream, info.Created), info.State.LastSeq
		return p, nil
	case after.Epoch != epoch: // the stream was recreated
		p.last, p.gap = 0, &Gap{From: after, To: schemas.Cursor{Epoch: epoch}}
		return p, nil
	case after.Seq == 0:
		return p, nil
	}
	m, err := rd.Get(ctx, stream, direct.Request{Seq: after.Seq})
	if err == nil && after.Mark != 0 && after.Mark != schemas.MarkOf(m.ID) { // the log has lost its end in a crash, and has grown again
		p.last, p.gap = 0, &Gap{From: after, To: schemas.Cursor{Epoch: epoch}}
		return p, nil
	}
	if err == nil {
		return p, nil // what is there has everything behind it: removal begins at the oldest
	}
	if !errors.Is(err, schemas.ErrNotFound) {
		return place{}, err
	}
	info, err := rd.ConnectedInfo(ctx, stream)
	if err != nil {
		return place{}, err
	}
	last := info.State.LastSeq
	if after.Seq > last { // the log has lost its end in a crash, and the reader has seen it
		p.last, p.gap = 0, &Gap{From: after, To: schemas.Cursor{Epoch: epoch}}
		return p, nil
	}
	// Where the stream begins says nothing: each conversation is cut for itself, and another that runs
	// may hold the stream's beginning.
	next, err := rd.Get(ctx, stream, direct.Request{Seq: after.Seq + 1, Next: subject})
	switch {
	case err == nil:
		p.last = next.Seq - 1
	case errors.Is(err, schemas.ErrNotFound):
		p.last = last
	default:
		return place{}, err
	}
	if p.last > after.Seq {
		p.gap = &Gap{From: after, To: schemas.Cursor{Epoch: epoch, Seq: p.last}}
	}
	return p, nil
}
