package streams

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
)

// Defaults and limits of [Retention].
const (
	DefaultKeepEvents      = eventsKept
	DefaultKeepEventsCount = 100_000
	// MaxKeepEvents is where the streams themselves end what is older, whatever runs: the longest life of
	// a job and a week.
	MaxKeepEvents = eventsLongest
	// MaxKeepEventsCount is the same for the number of a conversation's events.
	MaxKeepEventsCount = eventsPerSubject

	defaultRetentionEvery = 10 * time.Minute
)

// Retention removes what is old of conversations: events of more than an age, and the first of more than
// a number. What runs is left whole: nothing is removed from the first event of a call, job or turn on
// that has no end yet. Readers whose cursor is before the cut are told of the gap. Of an account that is gone everything is old.
//
// One in a deployment is enough, more do no harm: each removal is one step that may be repeated, and is of
// what can run no more.
type Retention struct {
	Bus *Bus
	Log *slog.Logger // nil: silent
	// Keep is the age, at most MaxKeepEvents. Default [DefaultKeepEvents].
	Keep time.Duration
	// Count is the number, at most MaxKeepEventsCount. Default [DefaultKeepEventsCount].
	Count int
	// Gone reports whether there certainly is no such account any more. Nil: all are there.
	Gone func(context.Context, schemas.AccountID) bool
	// Every is the time between two looks. Default 10 min.
	Every time.Duration

	clock steadyClock
}

// Run looks until ctx ends, and returns nil then. It may be called once.
func (r *Retention) Run(ctx context.Context) error {
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	r.Keep, r.Count = min(cmp.Or(r.Keep, DefaultKeepEvents), MaxKeepEvents), min(cmp.Or(r.Count, DefaultKeepEventsCount), MaxKeepEventsCount)
	r.now() // from here on a jump shows
	tick := time.NewTicker(cmp.Or(r.Every, defaultRetentionEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.look(ctx, r.now())
		}
	}
}

func (r *Retention) now() time.Time {
	said := r.Bus.Now()
	now, doubted := r.clock.now(said, r.Bus.clock.elapsed())
	if doubted {
		r.Log.Warn("the log's clock has jumped ahead: what would be old by it is kept for a day", "clock", said, "taken", now)
	}
	return now
}

// look removes once what is old in every shard.
func (r *Retention) look(ctx context.Context, now time.Time) {
	for shard := range r.Bus.Shards() {
		if err := r.shard(ctx, shard, now); err != nil && ctx.Err() == nil {
			r.Log.Warn("old events are not removed: that is tried again", "stream", eventStream(shard), "error", err)
		}
	}
}

// shard removes what is old in one.
func (r *Retention) shard(ctx context.Context, shard int, now time.Time) error {
	all := eventSubjectPrefix(shard) + "*.*"
	s := sweep{bus: r.Bus, stream: eventStream(shard), now: now}
	counts, err := s.counts(ctx, all)
	if err != nil || len(counts) == 0 {
		return err
	}
	if err := s.findCut(ctx, all, now.Add(-r.Keep)); err != nil {
		return err
	}
	old := map[string]bool{}
	if s.cut > s.first {
		if old, err = s.withOld(ctx, all); err != nil {
			return err
		}
	}
	gone := map[schemas.AccountID]bool{}
	for subject, n := range counts {
		beyond := max(int(n)-r.Count, 0) // a number of messages
		if r.isGone(ctx, gone, accountOf(subject)) {
			beyond = int(n)
		}
		if !old[subject] && beyond == 0 {
			continue
		}
		floor, err := s.floor(ctx, subject, beyond)
		if err == nil && floor > 0 {
			err = s.purge(ctx, subject, floor)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isGone asks once about each account.
func (r *Retention) isGone(ctx context.Context, known map[schemas.AccountID]bool, a schemas.AccountID) bool {
	if r.Gone == nil {
		return false
	}
	gone, asked := known[a]
	if !asked {
		gone = r.Gone(ctx, a)
		known[a] = gone
	}
	return gone
}

// sweep is one look at one shard.
type sweep struct {
	bus    *Bus
	stream string
	now    time.Time
	first  uint64 // of the stream
	cut    uint64 // what is before it is older than is kept
}

// counts is how many events each conversation has, by subject.
func (s *sweep) counts(ctx context.Context, all string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 6*requestWithin) // it may take several answers
	defer cancel()
	stream, err := s.bus.jsBulk.Stream(ctx, s.stream)
	if err != nil {
		return nil, coded("look at the stream "+s.stream, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(all))
	if err != nil {
		return nil, coded("count the events of "+s.stream, err)
	}
	s.first, s.cut = info.State.FirstSeq, info.State.LastSeq+1
	return info.State.Subjects, nil
}

// findCut finds the first event that is not old.
func (s *sweep) findCut(ctx context.Context, all string, oldest time.Time) error {
	page, _, err := s.bus.getPage(ctx, s.stream, all, 1, &oldest, 1)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if len(page) > 0 {
		s.cut = page[0].seq
	}
	return nil
}

// withOld are the subjects that have events before the cut.
func (s *sweep) withOld(ctx context.Context, all string) (map[string]bool, error) {
	old := map[string]bool{}
	err := s.each(ctx, all, func(m stored) bool {
		if m.seq < s.cut {
			old[m.subject] = true
		}
		return m.seq+1 < s.cut
	})
	return old, err
}

// floor is the first event of a conversation that is kept: the first that is neither old nor one of so many
// beyond the number, or the first of something that runs. It is 0 if all are kept.
func (s *sweep) floor(ctx context.Context, subject string, beyond int) (uint64, error) {
	state := newRunState()
	cut, n, first := s.cut, 0, uint64(0)
	err := s.each(ctx, subject, func(m stored) bool {
		if n++; n == 1 {
			first = m.seq
		}
		if n <= beyond {
			cut = max(cut, m.seq+1)
		}
		if e, err := Events.entry(ctx, s.bus, "", m); err == nil { // what is no event says nothing of what runs
			state.next(m.seq, e.Value)
		}
		return m.seq < cut || !state.idle()
	})
	floor := state.floor(s.now, cut)
	if first == 0 || floor <= first {
		floor = 0
	}
	return floor, err
}

// each calls f with the events of a subject from the first on, until it wants no more.
func (s *sweep) each(ctx context.Context, subject string, f func(stored) bool) error {
	for next := s.first; ; {
		page, more, err := s.bus.getPage(ctx, s.stream, subject, next, nil, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			if next = m.seq + 1; !f(m) {
				return nil
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}

// purge removes the events of a subject before the floor, in one step.
func (s *sweep) purge(ctx context.Context, subject string, floor uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*requestWithin)
	defer cancel()
	stream, err := s.bus.jsBulk.Stream(ctx, s.stream)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(floor))
	}
	if err != nil {
		return coded("remove old events of "+s.stream, err)
	}
	return nil
}
