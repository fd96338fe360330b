package streams

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/wait"
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
// that has no end yet, nor of a call that has its end while its worker has not acknowledged it, as it is handed out again then
// and must find how far it came. Readers whose cursor is before the cut get a gap. Of an account that is gone everything is old.
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

	clock steadyClock
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
	now, doubted := r.clock.now(said, r.Bus.clock.elapsed())
	if doubted {
		r.Log.Warn("log clock jumped ahead, nothing removed by it for a day", "clock", said, "taken", now)
	}
	return now
}

// look removes once what is old in every shard, one after the other over a quarter of the time between two looks.
func (r *Retention) look(ctx context.Context, t *Tenure) {
	now, shards := r.now(), r.Bus.Shards()
	for shard := range shards {
		if shard > 0 && !wait.Sleep(ctx, r.Every/time.Duration(4*shards)) {
			return
		}
		if err := r.shard(ctx, shard, now, t); err != nil && ctx.Err() == nil {
			r.Log.Warn("old events not removed, retrying", "stream", eventStream(shard), "error", err)
		}
		if err := r.goneTranscripts(ctx, shard, t); err != nil && ctx.Err() == nil {
			r.Log.Warn("transcripts of removed accounts not removed, retrying", "stream", transcriptStream(shard), "error", err)
		}
	}
	if err := r.Bus.removeOldArtifacts(ctx, now.Add(-r.Keep-artifactsLonger), t); err != nil && ctx.Err() == nil {
		r.Log.Warn("old artifacts not removed, retrying", "error", err)
	}
}

// shard removes what is old in one.
func (r *Retention) shard(ctx context.Context, shard int, now time.Time, t *Tenure) error {
	s := sweep{bus: r.Bus, log: r.Log, stream: eventStream(shard), all: eventSubjectPrefix(shard) + "*.*", now: now, tenure: t}
	info, err := r.Bus.streamInfo(ctx, s.stream)
	if err != nil || info.State.Msgs == 0 {
		return err
	}
	s.first, s.behind, s.cut = info.State.FirstSeq, info.State.LastSeq+1, info.State.LastSeq+1
	oldest := now.Add(-r.Keep)
	if err := s.findCut(ctx, oldest); err != nil {
		return err
	}
	if err := r.Bus.markTrim(ctx, shardKey(s.stream), oldest); err != nil {
		return err
	}
	if err := s.removeOld(ctx, subjectsAtOnce); err != nil {
		return err
	}
	if r.Gone == nil && info.State.Msgs < info.State.NumSubjects+uint64(r.Count) { // then none can have more
		return nil
	}
	gone := map[schemas.AccountID]bool{}
	return s.removeBeyond(ctx, func(subject string, n int) (many int, mark bool) {
		if r.isGone(ctx, gone, accountOf(subject)) {
			return n, false
		}
		return n - r.Count, true
	})
}

// goneTranscripts removes the transcripts of accounts that are gone. Others go with their age.
func (r *Retention) goneTranscripts(ctx context.Context, shard int, t *Tenure) error {
	s := sweep{bus: r.Bus, stream: transcriptStream(shard), all: transcriptSubjectPrefix(shard) + "*.*", tenure: t}
	info, err := r.Bus.streamInfo(ctx, s.stream)
	if err != nil || info.State.Msgs == 0 || r.Gone == nil {
		return err
	}
	gone := map[schemas.AccountID]bool{}
	return s.eachCount(ctx, func(subject string, _ int) error {
		if !r.isGone(ctx, gone, accountOf(subject)) {
			return nil
		}
		return s.purge(ctx, subject, info.State.LastSeq+1)
	})
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

// subjectsAtOnce is how many conversations with old events are held in memory.
const subjectsAtOnce = 4096

// sweep is one look at one shard.
type sweep struct {
	bus    *Bus
	log    *slog.Logger
	stream string
	all    string // the filter for all conversations
	now    time.Time
	first  uint64  // of the stream
	behind uint64  // its last, when the look began: what is stored from here on stays
	cut    uint64  // what is before it is older than is kept
	tenure *Tenure // nil: held
	queues *queues // nil: not asked for yet
}

// removeOld goes through what is older than the cut, and removes what is old of so many conversations at a time.
func (s *sweep) removeOld(ctx context.Context, atOnce int) error {
	old, stays := map[string]bool{}, map[string]bool{}
	remove := func() error {
		if len(stays) >= atOnce {
			clear(stays) // they are only looked at again
		}
		for subject := range old {
			if err := s.trim(ctx, subject, 0, false); err != nil {
				return err
			}
			stays[subject] = true
		}
		clear(old)
		return nil
	}
	if s.cut <= s.first {
		return nil
	}
	var failed error
	err := s.each(ctx, s.all, func(m stored) bool {
		if m.seq < s.cut && !stays[m.subject] {
			old[m.subject] = true
		}
		if len(old) >= atOnce {
			failed = remove()
		}
		return failed == nil && m.seq+1 < s.cut
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return remove()
}

// trim removes what is old of one conversation, and so many of its first events besides. Nothing is removed of one with an event
// that cannot be read now: it may be the beginning of what runs.
func (s *sweep) trim(ctx context.Context, subject string, beyond int, mark bool) error {
	floor, through, err := s.floor(ctx, subject, beyond)
	if unreadable, is := errors.AsType[*unreadableError](err); is && ctx.Err() == nil {
		s.log.Warn("conversation not trimmed, an event cannot be read now", "stream", s.stream, "seq", unreadable.seq, "error", unreadable.err)
		return nil
	}
	if err != nil || floor == 0 {
		return err
	}
	if mark {
		if err := s.bus.markTrim(ctx, conversationKey(subject), through); err != nil {
			return err
		}
	}
	return s.purge(ctx, subject, floor)
}

// unreadableError says that an event cannot be read now.
type unreadableError struct {
	seq uint64
	err error
}

func (e *unreadableError) Error() string { return e.err.Error() }

// removeBeyond removes so many of the first events of each conversation as beyond says. It holds one page of
// conversations at a time. One that slips from one page into another meanwhile is found by the next look.
func (s *sweep) removeBeyond(ctx context.Context, beyond func(subject string, n int) (many int, mark bool)) error {
	return s.eachCount(ctx, func(subject string, n int) error {
		many, mark := beyond(subject, n)
		if many <= 0 {
			return nil
		}
		return s.trim(ctx, subject, many, mark)
	})
}

// eachCount calls f with each conversation and how many messages it has, one page of them after the other.
func (s *sweep) eachCount(ctx context.Context, f func(subject string, n int) error) error {
	for offset := 0; ; {
		page, total, err := s.counts(ctx, offset)
		if err != nil {
			return err
		}
		for subject, n := range page {
			if err := f(subject, int(n)); err != nil { // a number of messages
				return err
			}
		}
		if offset += len(page); len(page) == 0 || offset >= total {
			return nil
		}
		if !wait.Sleep(ctx, time.Second) {
			return coded("count the events of "+s.stream, ctx.Err())
		}
	}
}

// counts is how many events each conversation has, by subject: one page of them. Total is how many there are.
func (s *sweep) counts(ctx context.Context, offset int) (page map[string]uint64, total int, err error) {
	op := "count the events of " + s.stream
	body, err := json.Marshal(struct {
		Filter string `json:"subjects_filter"`
		Offset int    `json:"offset"`
	}{s.all, offset})
	if err != nil {
		return nil, 0, coded(op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 6*requestWithin) // the server counts them all for each page
	defer cancel()
	m, err := s.bus.bulk.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+s.stream, body)
	if err != nil {
		return nil, 0, coded(op, err)
	}
	page, total, err = parseCounts(m.Data)
	return page, total, coded(op, err)
}

// parseCounts reads a page of counts.
func parseCounts(data []byte) (page map[string]uint64, total int, err error) {
	var got struct {
		Error *jetstream.APIError `json:"error"`
		Total int                 `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return nil, 0, schemas.Wrap(schemas.Internal, "read from the log", "the log's answer is not understood", err)
	}
	if got.Error != nil {
		return nil, 0, got.Error
	}
	return got.State.Subjects, got.Total, nil
}

// findCut finds the first event that is not old.
func (s *sweep) findCut(ctx context.Context, oldest time.Time) error {
	page, _, err := s.bus.getPage(ctx, s.stream, s.all, 1, &oldest, 1)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if len(page) > 0 {
		s.cut = page[0].seq
	}
	return nil
}

// floor is the first event of a conversation that is kept: the first that is neither old nor one of so many
// beyond the number, or the first of something that runs. It is 0 if all are kept. Through is when the last of those beyond the number
// was stored, or later.
func (s *sweep) floor(ctx context.Context, subject string, beyond int) (floor uint64, through time.Time, err error) {
	state := newRunState()
	cut, n, first := s.cut, 0, uint64(0)
	var unreadable *unreadableError
	err = s.each(ctx, subject, func(m stored) bool {
		if n++; n == 1 {
			first = m.seq
		}
		if n <= beyond {
			if m.time.After(through) {
				through = m.time
			}
			cut = min(max(cut, m.seq+1), s.behind)
		}
		e, err := s.event(ctx, m)
		switch code := schemas.CodeOf(err); {
		case err == nil:
			state.next(m.seq, e)
		case code == schemas.Invalid, code == schemas.NotFound: // no event, or one that is lost: it says nothing of what runs
		default:
			unreadable = &unreadableError{m.seq, err}
			return false
		}
		return m.seq < cut || !state.idle()
	})
	if err == nil && unreadable != nil {
		err = unreadable
	}
	if err != nil {
		return 0, through, err
	}
	floor = state.floor(s.now, cut)
	if first != 0 && floor > first {
		floor, err = s.unacknowledged(ctx, subject, state, floor)
	}
	if first == 0 || floor <= first {
		floor = 0
	}
	return floor, through, err
}

// event is an event as far as it says what runs. A payload in the object store is not read for that, but of events from before there were
// outlines.
func (s *sweep) event(ctx context.Context, m stored) (schemas.Event, error) {
	if e, ok := outlined(m); ok {
		return e, nil
	}
	e, err := Events.entry(ctx, s.bus, "", m)
	return e.Value, err
}

// unacknowledged is where the first call before a floor begins that has ended and that its worker has not acknowledged, or the floor.
// Where nothing waits for a worker it reads nothing more than how far the queues are; else it looks each such call up that ended so
// lately that it may be on the log of calls.
func (s *sweep) unacknowledged(ctx context.Context, subject string, state *runState, floor uint64) (uint64, error) {
	ended := state.ended(floor)
	if len(ended) == 0 {
		return floor, nil
	}
	if s.queues == nil { // after the look began: what is stored before it of a call that is acknowledged by now is all there was
		q, err := s.bus.queues(ctx)
		if err != nil {
			return 0, err
		}
		s.queues = q
	}
	for _, call := range ended {
		if s.queues.past(call.at) {
			continue
		}
		is, isParked, err := s.queues.acknowledged(ctx, s.bus, accountOf(subject), schemas.CallID(call.id))
		if err != nil {
			return 0, err
		}
		if !is && !isParked {
			return call.begin, nil
		}
	}
	return floor, nil
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
	if held := s.tenure.Held(); held != nil { // who stood still since it looked may not know what has happened
		return held
	}
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(floor))
	}
	if err != nil {
		return coded("remove old events of "+s.stream, err)
	}
	return nil
}
