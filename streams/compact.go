package streams

import (
	"context"
	"iter"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Compact passes on what [Follow] tells of a conversation, for a reader who wants finished things whole:
// in the replay, pieces of output are left out where the event with the whole result follows, and before
// the first piece of a call whose beginning the reader was not told comes a [Snapshot] of it. Each item
// says how many events were left out before it. After the replay everything is told.
//
// It reads the conversation once more to its end, ahead of the reader, when it meets the first piece.
func Compact(
	ctx context.Context, b *Bus, account schemas.AccountID, conversation schemas.ConversationID, seq iter.Seq2[Item, error],
) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		c := &compactor{bus: b, account: account, conversation: conversation, rules: NewCompaction()}
		for item, err := range seq {
			told := true
			if err == nil {
				item, told, err = c.next(ctx, item)
			}
			if told && !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// compactor is one Compact.
type compactor struct {
	bus          *Bus
	account      schemas.AccountID
	conversation schemas.ConversationID
	rules        *Compaction

	end     schemas.Cursor // of the replay
	seen    bool           // everything up to end is known
	live    bool
	skipped int  // since the last item that was told
	gap     *Gap // before what was left out
}

// next decides about an item and adds what belongs before it.
func (c *compactor) next(ctx context.Context, i Item) (Item, bool, error) {
	if i.Gap == nil {
		i.Gap = c.gap
	} else if c.gap != nil {
		i.Gap = &Gap{From: c.gap.From, To: i.Gap.To} // between the two only pieces were left out
	}
	c.gap = nil
	switch i.Kind {
	case ItemAttached:
		c.end = i.Head
	case ItemLive:
		c.live = true
	case ItemEvent:
		if err := c.look(ctx, i.Entry); err != nil {
			return i, true, err
		}
		switch c.rules.Next(i.Entry.Value) {
		case LeftOut:
			c.skipped++
			c.gap = i.Gap
			return i, false, nil
		case AfterSnapshot:
			s, err := c.bus.snapshotBefore(ctx, c.account, c.conversation, i.Entry)
			if err != nil {
				return i, true, err
			}
			i.Snapshot = s
		case Told:
		}
	}
	i.Skipped, c.skipped = c.skipped, 0
	return i, true, nil
}

// look reads ahead to the end of the replay, once, if e needs it.
func (c *compactor) look(ctx context.Context, e Entry[schemas.Event]) error {
	if c.live || c.seen || !c.rules.Undecided(e.Value) {
		return nil
	}
	c.seen = true
	return c.bus.each(ctx, c.account, c.conversation, e.Cursor.Seq+1, c.end.Seq+1, nil, 0, func(e schemas.Event, _ uint64) { c.rules.Ahead(e) })
}

// CompactPage does for the events of a page what [Compact] does for a sequence; the last of them may be left
// out too, so the next page begins at p.Next as ever. It looks ahead over at most 10,000 events behind the
// page: a piece whose whole lies further away is told.
func CompactPage(
	ctx context.Context, b *Bus, account schemas.AccountID, conversation schemas.ConversationID, p PageResult,
) ([]Item, error) {
	const most = 10_000
	rules := NewCompaction()
	for _, e := range p.Events {
		rules.Ahead(e.Value)
	}
	var kept []Item
	looked, skipped := p.UpToDate, 0
	for _, e := range p.Events {
		if !looked && rules.Undecided(e.Value) {
			looked = true
			if err := b.each(ctx, account, conversation, p.Next.Seq+1, 0, nil, most, func(e schemas.Event, _ uint64) { rules.Ahead(e) }); err != nil {
				return nil, err
			}
		}
		i := Item{Kind: ItemEvent, Entry: e, Head: e.Cursor, Skipped: skipped}
		switch rules.Next(e.Value) {
		case LeftOut:
			skipped++
			continue
		case AfterSnapshot:
			s, err := b.snapshotBefore(ctx, account, conversation, e)
			if err != nil {
				return nil, err
			}
			i.Snapshot = s
		case Told:
		}
		kept, skipped = append(kept, i), 0
	}
	return kept, nil
}

// snapshotBefore is what the call of a piece has printed before it.
func (b *Bus) snapshotBefore(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, e Entry[schemas.Event]) (*Snapshot, error) {
	p, ok := PieceOf(e.Value)
	if !ok {
		return nil, schemas.Errorf(schemas.Internal, "read output", "a piece cannot be decoded")
	}
	s, err := Snapshots(ctx, b, a, c, []PlacedPiece{{p, e.Cursor.Seq}})
	if err != nil {
		return nil, err
	}
	return &s[0], nil
}

// PlacedPiece is a piece and its place on the log.
type PlacedPiece struct {
	Piece

	Seq uint64
}

// Snapshots tells for each piece what its call has printed before it. They cost one pass over the conversation
// together, from about the first acceptance of their calls on. While the log is away it waits.
func Snapshots(ctx context.Context, b *Bus, a schemas.AccountID, c schemas.ConversationID, of []PlacedPiece) ([]Snapshot, error) {
	var since time.Time
	whole := false // a call is no longer known: the whole conversation is read
	calls := map[schemas.CallID]bool{}
	for _, p := range of {
		if calls[p.Call] {
			continue
		}
		calls[p.Call] = true
		call, err := FindCall(ctx, b, a, p.Call)
		switch {
		case schemas.CodeOf(err) == schemas.NotFound:
			whole = true
		case err != nil:
			return nil, err
		default:
			if at := call.Accepted.Add(-clocksApart); since.IsZero() || at.Before(since) {
				since = at
			}
		}
	}
	from := &since
	if whole || since.IsZero() {
		from = nil
	}
	g := newGathering(of)
	if err := b.each(ctx, a, c, 1, g.last, from, 0, g.add); err != nil {
		return nil, err
	}
	return g.end(), nil
}

// each reads the events of a conversation from a sequence, or a time, to before a sequence, 0 for the end, and
// most of them at most, 0 for all. What is no event is passed over.
func (b *Bus) each(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, from, before uint64, since *time.Time, most int, f func(schemas.Event, uint64),
) error {
	shard := shardOf(c, b.Shards())
	stream, subject := eventStream(shard), eventSubject(shard, a, c)
	for n := 0; most == 0 || n < most; {
		type result struct {
			page []stored
			more bool
		}
		r, err := persist(ctx, b, func() (result, error) {
			page, more, err := b.getPage(ctx, stream, subject, from, since, 0)
			return result{page, more}, err
		})
		if err != nil {
			return err
		}
		for _, m := range r.page {
			if before > 0 && m.seq >= before {
				return nil
			}
			from, since = m.seq+1, nil
			n++
			e, err := Events.entry(ctx, b, "", m)
			if err == nil {
				f(e.Value, m.seq)
			} else if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
				return err
			}
		}
		if !r.more || len(r.page) == 0 {
			return nil
		}
	}
	return nil
}
