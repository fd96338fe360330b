package streams

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/internal/inturn"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/runs"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Bounds of a sweep.
const (
	conversationsListed = 32 << 10 // of all shards, at a time: about 10 MB; and some that were handled before
	leastListed         = 512      // of one shard
	seenOfListed        = 4        // as many that were handled are known, of which some hundred bytes are held
	slicesOfRound       = 512      // of a shard, before it is another one's turn
	readsOfSlice        = 16       // pages of a conversation, or questions about its calls, before it is another one's turn
	betweenRounds       = 100 * time.Millisecond
	// mostLargeOnes is how many conversations may be half read at a time, of all shards together. What is known of each is some 100 bytes for
	// each call of it.
	mostLargeOnes = 8
)

// sweep is one look at one shard, round by round. What is due of one account holds up what is due of another by a slice: conversations are
// handled in turn between accounts, a bounded number of reads of each at a time, and shards take turns too. Finding out what is due is one
// walk over the old messages of a shard, without their data, and one list of the numbers of its conversations; from each, as many
// conversations of every account are held as there is room for.
type sweep struct {
	bus    *Bus
	log    *slog.Logger
	stream string
	all    string // the filter for all conversations
	now    time.Time
	first  uint64          // of the stream
	behind uint64          // its last, when the look began: what is stored from here on stays
	cut    uint64          // what is before it is older than is kept
	tenure *Tenure         // nil: held
	queues *callstore.Acks // nil: not asked for yet

	begin func(context.Context, jetstream.StreamState) error // says which lists there are; nil: it has
	lists []func(context.Context, *dueList) error            // the first is to be made, until it leaves nothing out
	most  int                                                // conversations of a list
	from  uint64                                             // where the walk over old messages continues
	seen  map[string]bool                                    // conversations of the same list that were due before
	due   []*trimming
	large *largeOnes
}

func newSweep(b *Bus, log *slog.Logger, stream, all string, t *Tenure) *sweep {
	return &sweep{bus: b, log: log, stream: stream, all: all, tenure: t, most: max(conversationsListed/b.Shards(), leastListed), seen: map[string]bool{}}
}

// round handles a slice of what is due, and reports whether something is left.
func (s *sweep) round(ctx context.Context) (left bool, err error) {
	if s.begin != nil {
		info, err := s.bus.reader.Info(ctx, s.stream)
		if err != nil || info.State.Msgs == 0 {
			return false, err
		}
		s.first, s.behind, s.cut = info.State.FirstSeq, info.State.LastSeq+1, info.State.LastSeq+1
		s.from = s.first
		if err := s.begin(ctx, info.State); err != nil {
			return false, err
		}
		s.begin = nil
	}
	for handled, waiting := 0, 0; handled < slicesOfRound && waiting <= len(s.due); handled++ {
		if len(s.due) == 0 {
			if len(s.lists) == 0 {
				return false, nil
			}
			if err := s.list(ctx); err != nil {
				return false, err
			}
			continue
		}
		c := s.due[0]
		s.due = s.due[1:]
		if c.large && !s.large.take(c) { // until another is read
			waiting++
			s.due = append(s.due, c)
			continue
		}
		waiting = 0
		done, err := s.trim(ctx, c)
		if err != nil || done {
			s.large.give(c)
		}
		if err != nil {
			return false, err
		}
		if !done {
			c.large = true
			if !s.large.take(c) {
				c.forget()
			}
			s.due = append(s.due, c)
		}
	}
	return true, nil
}

// end frees the sweep's share of the common limits.
func (s *sweep) end() {
	for _, c := range s.due {
		s.large.give(c)
	}
}

// list finds what is due next. A list that had no room for all is made again, without those that were due already.
func (s *sweep) list(ctx context.Context) error {
	found := &dueList{most: s.most, each: s.most, of: map[schemas.AccountID][]*trimming{}, listed: map[string]bool{}, seen: s.seen}
	if err := s.lists[0](ctx, found); err != nil {
		return err
	}
	s.due = found.inTurn()
	for _, c := range s.due {
		s.seen[c.subject] = true
	}
	switch {
	case !found.leftOut:
		s.lists, s.seen = s.lists[1:], map[string]bool{}
	case found.next > s.from: // what is seen again for want of memory is behind the beginning of the next walk, which moves on
		if s.from = found.next; len(s.seen) > seenOfListed*s.most {
			clear(s.seen)
		}
	case len(s.seen) > seenOfListed*s.most: // the next look has the rest
		s.lists, s.seen = s.lists[1:], map[string]bool{}
	}
	return nil
}

// listOld lists conversations with messages before the cut.
func (s *sweep) listOld(ctx context.Context, due *dueList) error {
	return s.bus.reader.Each(ctx, s.stream, []string{s.all}, s.from, true, func(m jetstream.Msg) bool {
		meta, err := m.Metadata()
		if err != nil {
			return true // there are none without
		}
		if meta.Sequence.Stream >= s.cut {
			return false
		}
		due.add(s.trimming(m.Subject(), meta.Sequence.Stream))
		return meta.Sequence.Stream+1 < s.cut
	})
}

// dueList is what is due of many accounts, so many conversations at most. However many are due of one account, others find room.
type dueList struct {
	most, each int // of all accounts, and of one
	n          int
	of         map[schemas.AccountID][]*trimming
	listed     map[string]bool
	seen       map[string]bool // conversations that were due before

	leftOut bool
	next    uint64 // the earliest place at which one was left out that has a place
}

// add lists a conversation, unless it is there or was due before. Where there is no room, the latest of the accounts with the most make it.
func (l *dueList) add(c *trimming) {
	if l.listed[c.subject] || l.seen[c.subject] {
		return
	}
	for l.n >= l.most && l.each > 1 {
		l.each = (l.each + 1) / 2
		for a, list := range l.of {
			for len(list) > l.each {
				last := list[len(list)-1]
				list = list[:len(list)-1]
				delete(l.listed, last.subject)
				l.n--
				l.leave(last)
			}
			l.of[a] = list
		}
	}
	if l.n >= l.most || len(l.of[c.account]) >= l.each {
		l.leave(c)
		return
	}
	l.of[c.account] = append(l.of[c.account], c)
	l.listed[c.subject] = true
	l.n++
}

func (l *dueList) leave(c *trimming) {
	if l.leftOut = true; l.next == 0 || c.at < l.next {
		l.next = c.at
	}
}

// inTurn is what is listed, in the order in which it is handled.
func (l *dueList) inTurn() []*trimming {
	all := make([]*trimming, 0, l.n)
	for _, list := range l.of {
		all = append(all, list...)
	}
	return inturn.Order(all, func(c *trimming) schemas.AccountID { return c.account }, func(a, b *trimming) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.subject, b.subject))
	})
}

// largeOnes are the conversations that are half read: one of an account, and so many of all. Others wait until one of them is read.
type largeOnes struct {
	of map[schemas.AccountID]*trimming
}

// take reports whether what is read of a conversation may be kept.
func (l *largeOnes) take(c *trimming) bool {
	other, has := l.of[c.account]
	if !has && len(l.of) < mostLargeOnes {
		l.of[c.account], other = c, c
	}
	return other == c
}

func (l *largeOnes) give(c *trimming) {
	if l.of[c.account] == c {
		delete(l.of, c.account)
	}
}

// trimming finds out which events of a conversation are kept, and removes those before. Kept are those from the first on that is neither old
// nor one of so many beyond the number, or the first of something that runs.
type trimming struct {
	account schemas.AccountID
	subject string
	at      uint64 // where the walk has found it; 0: a list has
	beyond  int    // of its first events go whatever their age
	mark    bool   // note up to when they go
	whole   bool   // all goes, whatever runs

	large bool // it takes more than one slice
	read  bool // as far as it matters: then the calls that have ended are gone through
	reading
}

// reading is what is known of a conversation that is read.
type reading struct {
	state   *runs.State
	next    uint64
	n       int // events
	first   uint64
	cut     uint64
	through time.Time // when the last of those beyond the number was stored, or later
	upTo    uint64
	ended   []runs.EndedCall // that have to be asked about
}

func (s *sweep) trimming(subject string, at uint64) *trimming {
	return &trimming{account: subjects.AccountOf(subject), subject: subject, at: at}
}

// forget lets a conversation be read from its beginning.
func (c *trimming) forget() { c.read, c.reading = false, reading{} }

// trim handles a slice of a conversation, and reports whether it is done. Nothing is removed of one with an event that cannot be read now: it
// may be the beginning of what runs.
func (s *sweep) trim(ctx context.Context, c *trimming) (done bool, err error) {
	if c.whole {
		return true, s.purge(ctx, c.subject, s.behind)
	}
	if c.state == nil {
		c.reading = reading{state: runs.New(), next: s.first, cut: s.cut}
	}
	reads := readsOfSlice
	for ; !c.read; reads-- {
		if reads == 0 {
			return false, nil
		}
		err := s.readPage(ctx, c)
		if unreadable, is := errors.AsType[*unreadableError](err); is && ctx.Err() == nil {
			s.log.Warn("conversation not trimmed, an event cannot be read now", "stream", s.stream, "seq", unreadable.seq, "error", unreadable.err)
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	for ; len(c.ended) > 0; reads-- {
		if reads <= 0 {
			return false, nil
		}
		is, err := s.acknowledged(ctx, c)
		if err != nil {
			return false, err
		}
		if !is {
			c.upTo = c.ended[0].Begin
			break
		}
		c.ended = c.ended[1:]
	}
	if c.first == 0 || c.upTo <= c.first {
		return true, nil
	}
	if c.mark {
		if err := s.bus.trimmings.note(ctx, subjects.ConversationKey(c.subject), c.through); err != nil {
			return false, err
		}
	}
	return true, s.purge(ctx, c.subject, c.upTo)
}

// readPage reads the next page of a conversation, from its first event on, as far as what is old or beyond the number reaches, and until
// nothing runs.
func (s *sweep) readPage(ctx context.Context, c *trimming) error {
	page, more, err := s.bus.reader.GetPage(ctx, s.stream, c.subject, c.next, nil, 0)
	if err != nil {
		return err
	}
	enough := !more || len(page) == 0
	for _, m := range page {
		if c.n++; c.n == 1 {
			c.first = m.Seq
		}
		if c.n <= c.beyond {
			if m.Time.After(c.through) {
				c.through = m.Time
			}
			c.cut = min(max(c.cut, m.Seq+1), s.behind)
		}
		e, err := s.event(ctx, m)
		switch code := schemas.CodeOf(err); {
		case err == nil:
			c.state.Next(m.Seq, e)
		case code == schemas.Invalid, code == schemas.NotFound: // no event, or one that is lost: it says nothing of what runs
		default:
			return &unreadableError{m.Seq, err}
		}
		if c.next = m.Seq + 1; m.Seq >= c.cut && c.state.Idle() {
			enough = true
			break
		}
	}
	if !enough {
		return nil
	}
	c.read, c.upTo = true, c.state.FirstNeeded(s.now, c.cut)
	if c.first != 0 && c.upTo > c.first {
		c.ended = c.state.Ended(c.upTo)
	}
	return nil
}

// acknowledged reports whether the worker of the first of the calls that have ended has acknowledged it. Where nothing waits for a worker it
// reads nothing more than how far the queues are; else it looks those calls up that ended so lately that they may be on the log of calls.
func (s *sweep) acknowledged(ctx context.Context, c *trimming) (bool, error) {
	if s.queues == nil { // after the look began: what is stored before it of a call that is acknowledged by now is all there was
		q, err := s.bus.calls.ReadAcks(ctx)
		if err != nil {
			return false, err
		}
		s.queues = q
	}
	for len(c.ended) > 1 && s.queues.Past(c.ended[0].At) {
		c.ended = c.ended[1:]
	}
	call := c.ended[0]
	if s.queues.Past(call.At) {
		return true, nil
	}
	is, isParked, err := s.queues.Acknowledged(ctx, c.account, call.ID)
	return is || isParked, err
}

// unreadableError says that an event cannot be read now.
type unreadableError struct {
	seq uint64
	err error
}

func (e *unreadableError) Error() string { return e.err.Error() }

// event is an event as far as it says what runs. A payload in the object store is not read for that, but of events from before there were
// outlines.
func (s *sweep) event(ctx context.Context, m direct.Message) (schemas.Event, error) {
	if e, ok := runs.Outlined(m); ok {
		return e, nil
	}
	e, err := Events.entry(ctx, s.bus, "", m)
	return e.Value, err
}

// eachCount calls f with each conversation and how many messages it has. It holds one page of them at a time, of 100,000 at most. One that
// slips from one page into another meanwhile is found by the next look.
func (s *sweep) eachCount(ctx context.Context, f func(subject string, n int)) error {
	for offset := 0; ; {
		page, total, err := s.counts(ctx, offset)
		if err != nil {
			return err
		}
		for subject, n := range page {
			f(subject, int(n)) // a number of messages
		}
		if offset += len(page); len(page) == 0 || offset >= total {
			return nil
		}
		if !wait.Sleep(ctx, time.Second) {
			return natserr.Coded("count the events of "+s.stream, ctx.Err())
		}
	}
}

// counts is how many events each conversation has, by subject: one page of them. Total is how many there are.
func (s *sweep) counts(ctx context.Context, offset int) (page map[string]uint64, total int, err error) {
	const within = 6 * requestWithin // the server counts them all for each page
	return s.bus.reader.SubjectsPage(ctx, "count the events of "+s.stream, s.stream, s.all, offset, within)
}

// findCut finds the first event that is not old.
func (s *sweep) findCut(ctx context.Context, oldest time.Time) error {
	page, _, err := s.bus.reader.GetPage(ctx, s.stream, s.all, 1, &oldest, 1)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return err
	}
	if len(page) > 0 {
		s.cut = page[0].Seq
	}
	return nil
}

// purge removes the events of a subject before a sequence, in one step.
func (s *sweep) purge(ctx context.Context, subject string, upTo uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 3*requestWithin)
	defer cancel()
	stream, err := s.bus.jsBulk.Stream(ctx, s.stream)
	if held := s.tenure.Held(); held != nil { // a process that was suspended since its read may not know what has happened
		return held
	}
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(upTo))
	}
	if err != nil {
		return natserr.Coded("remove old events of "+s.stream, err)
	}
	return nil
}
