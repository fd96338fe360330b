package callstore

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/payloads"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Old returns the range of calls that are older than [Kept] by more than slack: the sequence of the first, and the sequence before which
// they end. Both are 0 if there are none.
func (s *Store) Old(ctx context.Context, slack time.Duration) (first, before uint64, err error) {
	oldest, err := s.o.Reader.Get(ctx, s.o.Stream, direct.Request{Seq: 1, Next: Filter("")})
	if errors.Is(err, schemas.ErrNotFound) || err == nil && s.o.Now().Sub(oldest.Time) < Kept+slack {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	from := s.o.Now().Add(-Kept)
	page, _, err := s.o.Reader.GetPage(ctx, s.o.Stream, Filter(""), 1, &from, 1)
	if err != nil {
		return 0, 0, err
	}
	if len(page) > 0 {
		return oldest.Seq, page[0].Seq, nil
	}
	info, err := s.o.Reader.Info(ctx, s.o.Stream)
	if err != nil {
		return 0, 0, err
	}
	if info.State.LastTime.After(from) { // stored since
		return 0, 0, nil
	}
	return oldest.Seq, info.State.LastSeq + 1, nil
}

// Parked stands in the place of a provider for [Store.Between]: the calls that wait for a person.
const Parked = subjects.Parked

// Placed is a call with its stream sequence.
type Placed struct {
	Call schemas.Call // without its input where that is gone
	Seq  uint64
	Due  time.Time // see [Due]
	// Unread says that it cannot be read and has no dead letter: it may have no end, and Call is empty.
	Unread bool
}

// Between yields the calls of a provider from one sequence to before another. It skips a call that cannot be read if it has a dead letter,
// because the call is ended for that.
func (s *Store) Between(ctx context.Context, provider string, from, before uint64) iter.Seq2[Placed, error] {
	return func(yield func(Placed, error) bool) {
		for next := from; next < before; {
			page, more, err := s.o.Reader.GetPage(ctx, s.o.Stream, Filter(provider), next, nil, 0)
			if err != nil {
				yield(Placed{}, err)
				return
			}
			for _, m := range page {
				if next = m.Seq + 1; m.Seq >= before {
					return
				}
				p, skip, err := s.placed(ctx, m)
				if skip {
					continue
				}
				if !yield(p, err) || err != nil {
					return
				}
			}
			if !more || len(page) == 0 {
				return
			}
		}
	}
}

// at returns a stored call with its stream sequence.
func at(m direct.Message, c schemas.Call) Placed {
	return Placed{Call: c, Seq: m.Seq, Due: Due(c, m.Time, m.Headers)}
}

// FindPlaced is [Store.FindWhole] with the call's stream sequence.
func (s *Store) FindPlaced(ctx context.Context, account schemas.AccountID, id schemas.CallID) (Placed, error) {
	m, err := s.Stored(ctx, account, id)
	if err != nil {
		return Placed{}, err
	}
	c, err := s.whole(ctx, m)
	return at(m, c), err
}

// placed reads a call for [Store.Between]. skip reports that it has a dead letter instead.
func (s *Store) placed(ctx context.Context, m direct.Message) (p Placed, skip bool, err error) {
	c, err := s.whole(ctx, m)
	if err == nil {
		return at(m, c), false, nil
	}
	if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
		return Placed{}, false, err
	}
	if summary := m.Headers.Get(payloads.HeaderSummary); summary != "" && json.Unmarshal([]byte(summary), &c) == nil {
		return at(m, c), false, nil
	}
	dead, err := s.o.HasDeadLetter(ctx, m.Seq)
	return Placed{Seq: m.Seq, Unread: true}, dead, err
}

// Forget removes the calls before a sequence from the log. All of them must have ended. It keeps calls that are scheduled for later, and
// all that follow the first of these.
func (s *Store) Forget(ctx context.Context, before uint64) error {
	switch first, err := s.o.Reader.Get(ctx, s.o.Stream, direct.Request{Seq: 1, Next: subjects.CallTimers + "*.*.*"}); {
	case err == nil:
		before = min(before, first.Seq)
	case !errors.Is(err, schemas.ErrNotFound):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	calls, err := s.o.JS.Stream(ctx, s.o.Stream)
	if err == nil {
		err = calls.Purge(ctx, jetstream.WithPurgeSequence(before))
	}
	return natserr.Coded("forget old calls", err)
}
