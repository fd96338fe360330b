package streams

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/subjects"
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

// Retention removes what is old of conversations: events of more than an age, and the first of more than a number. What runs is left whole:
// nothing is removed from the first event of a call, job or turn on that has no end yet, nor of a finished call that its worker has not
// acknowledged: the call is redelivered then, and the worker must find how far it came. Readers whose cursor is before the cut get a gap.
// Of an account that is gone everything is old.
//
// Artifacts go a day after events of their age, whatever runs.
//
// Of all that run, one does the work at a time. Two would do no harm: each removal is one step that may be
// repeated, and is of what can run no more.
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

	clock logclock.Steady
}

// Run looks until ctx ends, and returns nil then. It may be called once.
func (r *Retention) Run(ctx context.Context) error {
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	r.Keep, r.Count = min(cmp.Or(r.Keep, DefaultKeepEvents), MaxKeepEvents), min(cmp.Or(r.Count, DefaultKeepEventsCount), MaxKeepEventsCount)
	r.now() // from here on a jump shows
	r.Every = cmp.Or(r.Every, defaultRetentionEvery)
	duty := Duty{Bus: r.Bus, Name: "retention", Every: r.Every, Log: r.Log, Begin: func() func(context.Context, *Tenure) { return r.look }}
	return duty.Run(ctx)
}

func (r *Retention) now() time.Time {
	said := r.Bus.Now()
	now, doubted := r.clock.Now(said, r.Bus.clock.Elapsed())
	if doubted {
		r.Log.Warn("log clock jumped ahead, nothing removed by it for a day", "clock", said, "taken", now)
	}
	return now
}

// look removes once what is old in every shard: a slice of each, over a quarter of the time between two looks, and then a slice of each in
// turn until nothing is left.
func (r *Retention) look(ctx context.Context, t *Tenure) {
	now, shards := r.now(), r.Bus.Shards()
	large := &largeOnes{of: map[schemas.AccountID]*trimming{}}
	var left []*sweep
	for shard := range shards {
		if shard > 0 && !wait.Sleep(ctx, r.Every/time.Duration(4*shards)) {
			return
		}
		for _, s := range []*sweep{r.events(shard, now, t), r.goneTranscripts(shard, t)} {
			if s.large = large; r.round(ctx, s) {
				left = append(left, s)
			}
		}
	}
	if err := removeOldArtifacts(ctx, r.Bus, now.Add(-r.Keep-artifactsLonger), t); err != nil && ctx.Err() == nil {
		r.Log.Warn("old artifacts not removed, retrying", "error", err)
	}
	for len(left) > 0 && wait.Sleep(ctx, betweenRounds) {
		left = slices.DeleteFunc(left, func(s *sweep) bool { return !r.round(ctx, s) })
	}
}

// round handles a slice of a sweep, and reports whether something is left.
func (r *Retention) round(ctx context.Context, s *sweep) bool {
	left, err := s.round(ctx)
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("old messages not removed, retrying", "stream", s.stream, "error", err)
	}
	if left = left && err == nil; !left {
		s.end()
	}
	return left
}

// events is the sweep of a shard of events: by age, and then by number.
func (r *Retention) events(shard int, now time.Time, t *Tenure) *sweep {
	s := newSweep(r.Bus, r.Log, subjects.EventStream(shard), subjects.EventsOf(shard)+"*.*", t)
	s.now = now
	s.begin = func(ctx context.Context, state jetstream.StreamState) error {
		oldest := now.Add(-r.Keep)
		if err := s.findCut(ctx, oldest); err != nil {
			return err
		}
		if err := r.Bus.trimmings.note(ctx, subjects.ShardKey(s.stream), oldest); err != nil {
			return err
		}
		if s.cut > s.first {
			s.lists = append(s.lists, s.listOld)
		}
		if r.Gone == nil && state.Msgs < state.NumSubjects+uint64(r.Count) { // then none can have more
			return nil
		}
		gone := map[schemas.AccountID]bool{}
		s.lists = append(s.lists, func(ctx context.Context, due *dueList) error {
			return s.eachCount(ctx, func(subject string, n int) {
				c := s.trimming(subject, 0)
				c.beyond, c.mark = n-r.Count, true
				if r.isGone(ctx, gone, c.account) {
					c.beyond, c.mark = n, false
				}
				if c.beyond > 0 {
					due.add(c)
				}
			})
		})
		return nil
	}
	return s
}

// goneTranscripts is the sweep for transcripts of accounts that are gone. Others go with their age.
func (r *Retention) goneTranscripts(shard int, t *Tenure) *sweep {
	s := newSweep(r.Bus, r.Log, subjects.TranscriptStream(shard), subjects.TranscriptsOf(shard)+"*.*", t)
	s.begin = func(context.Context, jetstream.StreamState) error {
		if r.Gone == nil {
			return nil
		}
		gone := map[schemas.AccountID]bool{}
		s.lists = append(s.lists, func(ctx context.Context, due *dueList) error {
			return s.eachCount(ctx, func(subject string, _ int) {
				if c := s.trimming(subject, 0); r.isGone(ctx, gone, c.account) {
					c.whole = true
					due.add(c)
				}
			})
		})
		return nil
	}
	return s
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
