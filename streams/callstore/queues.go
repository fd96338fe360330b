package callstore

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

// queuePrefix begins the names of the consumers that are the queues of providers.
const queuePrefix = "w-"

// Queues returns the providers that ever had a worker: those with a consumer.
func (s *Store) Queues(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	calls, err := s.o.JS.Stream(ctx, s.o.Stream)
	if err != nil {
		return nil, natserr.Coded("list the queues", err)
	}
	var names []string
	list := calls.ConsumerNames(ctx)
	for name := range list.Name() {
		if provider, is := strings.CutPrefix(name, queuePrefix); is && provider != "" {
			names = append(names, provider)
		}
	}
	return names, natserr.Coded("list the queues", list.Err())
}

// Acknowledged reports whether the log will not deliver a call again: its worker has acknowledged it, which it does after storing the
// result, or the call is no longer on the log. It may return false for an acknowledged call while an earlier call is unacknowledged;
// retention then removes nothing of the call. parked reports that the call waits, or waited, for a person and was delivered to no worker.
func (s *Store) Acknowledged(ctx context.Context, a schemas.AccountID, id schemas.CallID) (is, parked bool, err error) {
	q, err := s.ReadAcks(ctx)
	if err != nil {
		return false, false, err
	}
	return q.Acknowledged(ctx, a, id)
}

// Acks are the acknowledgement floors of all providers' consumers at one moment. Make them with [Store.ReadAcks].
type Acks struct {
	store     *Store
	last      uint64            // of the log of calls, before that
	oldest    time.Time         // when the first of them was stored; zero: there is none
	ackFloors map[string]uint64 // all calls of a provider up to here are acknowledged
	empty     map[string]bool   // all calls of a provider up to last are
	aside     bool              // some calls wait for their turn elsewhere: they are acknowledged in form only
}

// ReadAcks reads the acknowledgement floors of all providers. It costs three requests, and one more for each 256 providers.
func (s *Store) ReadAcks(ctx context.Context) (*Acks, error) {
	const op = "read how far the queues are acknowledged"
	ctx, cancel := context.WithTimeout(ctx, direct.RequestTime)
	defer cancel()
	calls, err := s.o.JS.Stream(ctx, s.o.Stream)
	if err != nil {
		return nil, natserr.Coded(op, err)
	}
	state := calls.CachedInfo().State
	q := &Acks{store: s, last: state.LastSeq, ackFloors: map[string]uint64{}, empty: map[string]bool{}}
	if state.Msgs > 0 {
		q.oldest = state.FirstTime
	}
	list := calls.ListConsumers(ctx)
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
	q.aside, err = s.o.Reader.Has(ctx, s.o.Stream, direct.Request{Seq: 1, Next: subjects.CallTimers + "*.*.*"})
	return q, err
}

// Past reports whether a call that ended at a time can no longer be on the log: a call that is stored again because it waited for its turn
// is stored within a day.
func (q *Acks) Past(ended time.Time) bool {
	return q.oldest.IsZero() || ended.Before(q.oldest.Add(-Kept))
}

// Acknowledged is [Store.Acknowledged] as of q, for a call that was on the log before that.
func (q *Acks) Acknowledged(ctx context.Context, a schemas.AccountID, id schemas.CallID) (is, isParked bool, err error) {
	if q.aside {
		timer := subjects.CallTimers + "*." + string(a) + "." + subjects.Token(string(id))
		if aside, err := q.store.o.Reader.Has(ctx, q.store.o.Stream, direct.Request{Last: timer}); aside || err != nil {
			return false, false, err
		}
	}
	m, err := q.store.o.Reader.GetNewest(ctx, q.store.o.Stream, direct.Request{Last: subjects.Call("*", a, id)})
	if errors.Is(err, schemas.ErrNotFound) { // who removes calls knows that they have their end
		return true, false, nil
	}
	if err != nil {
		return false, false, err
	}
	provider := subjects.Provider(m.Subject)
	return m.Seq <= q.ackFloors[provider] || q.empty[provider] && m.Seq <= q.last, provider == subjects.Parked, nil
}
