package streams

import (
	"context"
	"slices"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
)

// complete adds to the states of calls of one conversation, which was read from a time on, what such a read may have missed, because
// the log's clock was set back, and judges those of which nothing is there. A read that has found a call's acceptance has missed nothing
// of it: that is the first event of a call. It reads at most so many pages, 0 for all, and reports whether that was enough.
func complete(ctx context.Context, group []*callReader, pages int) (bool, error) {
	var open []*callReader
	for _, r := range group {
		if !r.begun() && r.state.Result == nil {
			open = append(open, r)
		}
	}
	if len(open) == 0 {
		return true, nil
	}
	found, err := open[0].bus.clock.FoundSince(ctx, earliest(open).since)
	enough := true
	if err == nil && !found {
		enough, err = readWhole(ctx, open, pages)
	}
	if err != nil || !enough {
		return enough, err
	}
	return true, judgeUnseen(ctx, group)
}

func earliest(group []*callReader) *callReader {
	return slices.MinFunc(group, func(a, b *callReader) int { return a.since.Compare(b.since) })
}

// readWhole reads a conversation from its beginning, for calls of it. What it finds counts for those whose acceptance it finds; of the
// others that was never published, or is no longer kept. It reads at most so many pages, 0 for all, and reports whether that was enough.
func readWhole(ctx context.Context, group []*callReader, pages int) (bool, error) {
	again := make([]*callReader, len(group))
	for i, r := range group {
		again[i] = &callReader{bus: r.bus, stream: r.stream, subject: r.subject, stored: r.stored, since: r.since,
			state: CallState{Call: r.state.Call}, short: r.short, whole: true}
	}
	first, next := group[0], uint64(1)
	for n, more := 0, true; more; n++ {
		if pages > 0 && n == pages {
			return false, nil
		}
		var page []direct.Message
		var err error
		if page, more, err = first.bus.reader.GetPage(ctx, first.stream, first.subject, next, nil, 0); err != nil {
			return false, err
		}
		more = more && len(page) > 0
		for _, m := range page {
			next = m.Seq + 1
			for _, r := range again {
				r.last = m.Seq
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
func (r *callReader) begun() bool { return r.state.Accepted || r.asked }

// accepts reports whether an event is that of a call's acceptance, and not of another use of its id.
func accepts(e schemas.Event, c schemas.Call) bool {
	return e.Type == schemas.CallAccepted && e.Subject == string(c.ID) && (c.Accepted.IsZero() || e.Time.Equal(c.Accepted))
}
