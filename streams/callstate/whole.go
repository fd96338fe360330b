package callstate

import (
	"context"
	"slices"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
)

// complete adds to the states of calls of one conversation, which was read from a time on, what such a read may have missed, because
// the log's clock was set back, and judges those of which nothing is there. A read that has found a call's acceptance has missed nothing
// of it: that is the first event of a call. It reads at most so many pages, 0 for all, and reports whether that was enough.
func complete(ctx context.Context, group []*Reading, pages int) (bool, error) {
	var open []*Reading
	for _, r := range group {
		if !r.begun() && r.State.Result == nil {
			open = append(open, r)
		}
	}
	if len(open) == 0 {
		return true, nil
	}
	found, err := open[0].of.o.Clock.FoundSince(ctx, earliest(open).Since)
	enough := true
	if err == nil && !found {
		enough, err = readWhole(ctx, open, pages)
	}
	if err != nil || !enough {
		return enough, err
	}
	return true, judgeUnseen(ctx, group)
}

func earliest(group []*Reading) *Reading {
	return slices.MinFunc(group, func(a, b *Reading) int { return a.Since.Compare(b.Since) })
}

// readWhole reads a conversation from its beginning, for calls of it. What it finds counts for those whose acceptance it finds; of the
// others that was never published, or is no longer kept. It reads at most so many pages, 0 for all, and reports whether that was enough.
func readWhole(ctx context.Context, group []*Reading, pages int) (bool, error) {
	again := make([]*Reading, len(group))
	for i, r := range group {
		again[i] = &Reading{Stream: r.Stream, Subject: r.Subject, Stored: r.Stored, Since: r.Since,
			State: State{Call: r.State.Call}, of: r.of, short: r.short, whole: true}
	}
	first, next := group[0], uint64(1)
	for n, more := 0, true; more; n++ {
		if pages > 0 && n == pages {
			return false, nil
		}
		var page []direct.Message
		var err error
		if page, more, err = first.of.o.Reader.GetPage(ctx, first.Stream, first.Subject, next, nil, 0); err != nil {
			return false, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			next = m.Seq + 1
			for _, r := range again {
				r.Last = m.Seq
				if err := r.take(ctx, m); err != nil {
					return false, err
				}
			}
		}
	}
	for i, r := range again {
		if r.begun() {
			*group[i] = *r
		}
	}
	return true, nil
}

// begun reports whether the beginning of the call was read, before which nothing of it lies.
func (r *Reading) begun() bool { return r.State.Accepted || r.asked }

// accepts reports whether an event is that of a call's acceptance, and not of another use of its id.
func accepts(e schemas.Event, c schemas.Call) bool {
	return e.Type == schemas.CallAccepted && e.Subject == string(c.ID) && (c.Accepted.IsZero() || e.Time.Equal(c.Accepted))
}
