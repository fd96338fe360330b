package streams

import (
	"context"
	"errors"

	"github.com/sandjet/sandjet/schemas"
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

// Page reads at most limit events (1 to MaxPage; 0: 100) of a conversation after the cursor. A page
// may be shorter than limit though there is more, when its events are large.
func Page(
	ctx context.Context, b *Bus, account schemas.AccountID, conversation schemas.ConversationID, after schemas.Cursor, limit int,
) (PageResult, error) {
	const common = 100
	if err := errors.Join(account.Validate(), conversation.Validate()); err != nil {
		return PageResult{}, err
	}
	limit = min(orDefault(limit, common), MaxPage)
	shard := shardOf(conversation, b.Shards())
	stream, subject := eventStream(shard), eventSubject(shard, account, conversation)
	at, err := b.resolve(ctx, stream, subject, after)
	if err != nil {
		return PageResult{}, err
	}
	r := PageResult{Recovered: at.gap == nil, Gap: at.gap, Next: schemas.Cursor{Epoch: at.epoch, Seq: at.last}}
	for more := true; more && len(r.Events) < limit; {
		var page []stored
		page, more, err = b.getPage(ctx, stream, subject, r.Next.Seq+1, nil, limit-len(r.Events))
		if err != nil {
			return PageResult{}, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			r.Next.Seq = m.seq
			e, err := Events.entry(ctx, b, at.epoch, m)
			if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
				return PageResult{}, err
			}
			if err != nil {
				b.log.Error("a stored message is no event and is passed over", "stream", stream, "seq", m.seq, "error", err)
				continue
			}
			r.Events = append(r.Events, e)
		}
		r.UpToDate = !more
	}
	return r, nil
}
