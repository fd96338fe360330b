package streams

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// judgeUnseen decides, for those calls of one conversation of which no event was found, whether that is reliable: see [CallState]. It
// reads only for those.
func judgeUnseen(ctx context.Context, group []*callReader) error {
	var of *history
	for _, r := range group {
		if !r.unseen() {
			continue
		}
		if of == nil {
			var err error
			if of, err = historyOf(ctx, r.bus, r.stream, r.subject); err != nil {
				return err
			}
		}
		r.state.Forgotten = !of.wholeSince(r.since, r.stored)
	}
	return nil
}

// unseen reports whether no event of the call was found although the log may have had it for long. A second publish of an event of a
// younger call is detected by its message id, even if the first was removed.
func (r *callReader) unseen() bool {
	return !r.asked && r.state.unseen() && !r.bus.Recognises(r.stored)
}

func (s *CallState) unseen() bool { return !s.Accepted && len(s.Started) == 0 && s.Result == nil }

// history is what is known about events removed from a conversation.
type history struct {
	first  time.Time // when the first event that is there was stored; zero: there is none
	before uint64    // what is there is behind it
	all    bool      // nothing was ever removed from its shard
	made   time.Time // when its shard was
	aged   time.Time // up to when events were removed from its shard for their age; zero: it is not known
	beyond time.Time // the same of it for their number; zero: none were
}

func historyOf(ctx context.Context, b *Bus, stream, subject string) (*history, error) {
	var h history
	first, err := b.reader.GetNewest(ctx, stream, direct.Request{Seq: 1, Next: subject})
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		return nil, err
	}
	h.first = first.Time
	h.before = max(first.Seq, 1) - 1
	info, err := b.reader.Info(ctx, stream)
	if err != nil {
		return nil, err
	}
	if h.first.IsZero() {
		h.before = info.State.LastSeq
	}
	h.all, h.made = info.State.Msgs == info.State.LastSeq, info.Created
	if h.aged, err = b.trimmings.through(ctx, shardKey(stream)); err == nil {
		h.beyond, err = b.trimmings.through(ctx, conversationKey(subject))
	}
	return &h, err
}

// wholeSince reports whether a conversation certainly has all that was published on it since a time, by the log's clock, of what was
// stored at another. Events are only ever removed from the beginning of a conversation: so it has all where one is left that is older
// than that. It has all, too, where nothing was ever removed from its shard, if that is not younger, and where the marks of retention say
// that what was removed is older. False says that it is not known. It is pure.
func (h *history) wholeSince(since, stored time.Time) bool {
	switch {
	case !h.first.IsZero() && !h.first.After(since):
		return true
	case h.all && !h.made.After(stored):
		return true
	}
	return !h.aged.IsZero() && h.aged.Before(since) && h.beyond.Before(since)
}

// Acknowledged reports whether the log will not deliver a call again: its worker has acknowledged it, which it does after the result, or
// the call is no longer on the log. False may be wrong while an earlier call is unacknowledged; [Retention] then removes nothing of the
// call. parked reports that the call waits, or waited, for a person and was delivered to no worker.
func Acknowledged(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.CallID) (is, parked bool, err error) {
	q, err := readQueues(ctx, b)
	if err != nil {
		return false, false, err
	}
	return q.acknowledged(ctx, b, a, id)
}

// queues are the acknowledgement floors of all providers' consumers at one moment.
type queues struct {
	last      uint64            // of the log of calls, before that
	oldest    time.Time         // when the first of them was stored; zero: there is none
	ackFloors map[string]uint64 // all calls of a provider up to here are acknowledged
	empty     map[string]bool   // all calls of a provider up to last are
	aside     bool              // some calls wait for their turn elsewhere: they are acknowledged in form only
}

// readQueues reads the acknowledgement floors of all providers. It costs three requests, and one more for each 256 providers.
func readQueues(ctx context.Context, b *Bus) (*queues, error) {
	const op = "look at the queues"
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamCalls)
	if err != nil {
		return nil, natserr.Coded(op, err)
	}
	state := s.CachedInfo().State
	q := &queues{last: state.LastSeq, ackFloors: map[string]uint64{}, empty: map[string]bool{}}
	if state.Msgs > 0 {
		q.oldest = state.FirstTime
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		if provider, is := strings.CutPrefix(info.Name, queuePrefix); is && provider != "" {
			q.ackFloors[provider] = info.AckFloor.Stream
			q.empty[provider] = info.NumPending == 0 && info.NumAckPending == 0
		}
	}
	if err := list.Err(); err != nil {
		return nil, natserr.Coded(op, err)
	}
	// After the ack floors: a message that is redelivered in between is behind last, and so does not count as acknowledged.
	q.aside, err = b.reader.Has(ctx, streamCalls, direct.Request{Seq: 1, Next: subjects.CallTimers + "*.*.*"})
	return q, err
}

// past reports whether a call that ended at a time can no longer be on the log: a call that is stored again because it waited for its turn
// is stored within a day.
func (q *queues) past(ended time.Time) bool {
	return q.oldest.IsZero() || ended.Before(q.oldest.Add(-day))
}

// acknowledged is [Acknowledged] as of q, for a call that was on the log before that.
func (q *queues) acknowledged(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.CallID) (is, isParked bool, err error) {
	if q.aside {
		timer := subjects.CallTimers + "*." + string(a) + "." + subjects.Token(string(id))
		if aside, err := b.reader.Has(ctx, streamCalls, direct.Request{Last: timer}); aside || err != nil {
			return false, false, err
		}
	}
	m, err := b.reader.GetNewest(ctx, streamCalls, direct.Request{Last: subjects.Call("*", a, id)})
	if errors.Is(err, schemas.ErrNotFound) { // who removes calls knows that they have their end
		return true, false, nil
	}
	if err != nil {
		return false, false, err
	}
	provider := subjects.Provider(m.Subject)
	return m.Seq <= q.ackFloors[provider] || q.empty[provider] && m.Seq <= q.last, provider == subjects.Parked, nil
}
