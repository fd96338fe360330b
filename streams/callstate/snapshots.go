package callstate

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/outputs"
)

// Snapshots returns for each piece of output what its call had printed before it. It reads the conversation once for all, from about the
// first acceptance of their calls on. It waits while the log is unavailable.
func (s *Reader) Snapshots(ctx context.Context, a schemas.AccountID, c schemas.ConversationID, of []outputs.PlacedPiece) ([]outputs.Snapshot, error) {
	var since time.Time
	whole := false // a call is no longer known: the whole conversation is read
	calls := map[schemas.CallID]bool{}
	for _, p := range of {
		if calls[p.Call] {
			continue
		}
		calls[p.Call] = true
		call, err := s.o.Calls.Find(ctx, a, p.Call)
		switch {
		case schemas.CodeOf(err) == schemas.NotFound:
			whole = true
		case err != nil:
			return nil, err
		default:
			if at := call.Accepted.Add(-logclock.ServersApart); since.IsZero() || at.Before(since) {
				since = at
			}
		}
	}
	from := &since
	if _, known := s.o.Clock.Age(since); whole || since.IsZero() || !known { // or the log's clock was set back
		from = nil
	}
	g := outputs.NewGathering(of)
	if err := s.eachEvent(ctx, a, c, 1, g.Last, from, 0, g.Add); err != nil {
		return nil, err
	}
	return g.End(), nil
}

// eachEvent reads the events of a conversation from a sequence, or a time, to before a sequence, 0 for the end, and
// most of them at most, 0 for all. What is no event is skipped.
func (s *Reader) eachEvent(
	ctx context.Context, a schemas.AccountID, c schemas.ConversationID, from, before uint64, since *time.Time, most int,
	f func(schemas.Event, uint64),
) error {
	stream, subject := s.o.EventsOf(a, c)
	for n := 0; most == 0 || n < most; {
		type result struct {
			page []direct.Message
			more bool
		}
		r, err := direct.Persist(ctx, s.o.Log, func() (result, error) {
			page, more, err := s.o.Reader.GetPage(ctx, stream, subject, from, since, 0)
			return result{page, more}, err
		})
		if err != nil {
			return err
		}
		for _, m := range r.page {
			if before > 0 && m.Seq >= before {
				return nil
			}
			from, since = m.Seq+1, nil
			n++
			e, err := s.o.Event(ctx, m)
			if err == nil {
				f(e, m.Seq)
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
