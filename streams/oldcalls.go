package streams

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// CallsKept is how long a call is the record of its id. It stays on the log for longer while it has no end:
// who gives calls their end forgets them, with [ForgetCalls].
const CallsKept = callsKept

// headerSummary has a call without its input beside a payload in the object store, which ages out sooner.
const headerSummary = "Sandjet-Summary"

// summaryOf is the part of a call that is needed to end it.
func summaryOf(c schemas.Call) string {
	c.Input, c.InputSize = nil, c.InputBytes()
	b, _ := json.Marshal(c) //nolint:errchkjson // a call was read from JSON or made from what was
	return string(b)
}

// OldCalls returns the range of calls that are older, by more than slack, than the time for which ids are kept: from first to before a
// sequence. Both are 0 if there are none.
func OldCalls(ctx context.Context, b *Bus, slack time.Duration) (first, before uint64, err error) {
	oldest, err := b.reader.Get(ctx, streamCalls, direct.Request{Seq: 1, Next: callFilter("")})
	if errors.Is(err, schemas.ErrNotFound) || err == nil && b.Now().Sub(oldest.Time) < callsKept+slack {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	from := b.Now().Add(-callsKept)
	page, _, err := b.reader.GetPage(ctx, streamCalls, callFilter(""), 1, &from, 1)
	if err != nil {
		return 0, 0, err
	}
	if len(page) > 0 {
		return oldest.Seq, page[0].Seq, nil
	}
	info, err := b.reader.Info(ctx, streamCalls)
	if err != nil {
		return 0, 0, err
	}
	if info.State.LastTime.After(from) { // stored since
		return 0, 0, nil
	}
	return oldest.Seq, info.State.LastSeq + 1, nil
}

// ParkedCalls stands in the place of a provider for [CallsBetween]: the calls that wait for a person.
const ParkedCalls = subjects.Parked

// PlacedCall is a call with its stream sequence.
type PlacedCall struct {
	Call schemas.Call // without its input where that is gone
	Seq  uint64
	Due  time.Time // see [Due]
	// Unread says that it cannot be read and has no dead letter: it may have no end, and Call is empty.
	Unread bool
}

// CallsBetween yields the calls of a provider from one sequence to before another. A call that cannot be read and has a dead letter is
// skipped: it is ended because of that.
func CallsBetween(ctx context.Context, b *Bus, provider string, from, before uint64) iter.Seq2[PlacedCall, error] {
	return func(yield func(PlacedCall, error) bool) {
		for next := from; next < before; {
			page, more, err := b.reader.GetPage(ctx, streamCalls, callFilter(provider), next, nil, 0)
			if err != nil {
				yield(PlacedCall{}, err)
				return
			}
			for _, m := range page {
				if next = m.Seq + 1; m.Seq >= before {
					return
				}
				p, skip, err := placedCall(ctx, b, m)
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

// placed returns a stored call with its stream sequence.
func placed(m direct.Message, c schemas.Call) PlacedCall {
	return PlacedCall{Call: c, Seq: m.Seq, Due: Due(c, m.Time, Headers(m.Headers))}
}

// FindPlacedCall is [FindCall] with the call's stream sequence.
func FindPlacedCall(ctx context.Context, b *Bus, account schemas.AccountID, id schemas.CallID) (PlacedCall, error) {
	m, err := storedCall(ctx, b, account, id)
	if err != nil {
		return PlacedCall{}, err
	}
	c, err := wholeCall(ctx, b, m)
	return placed(m, c), err
}

// placedCall reads a call for [CallsBetween]. skip reports that it has a dead letter instead.
func placedCall(ctx context.Context, b *Bus, m direct.Message) (p PlacedCall, skip bool, err error) {
	c, err := wholeCall(ctx, b, m)
	if err == nil {
		return placed(m, c), false, nil
	}
	if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
		return PlacedCall{}, false, err
	}
	if summary := m.Headers.Get(headerSummary); summary != "" && json.Unmarshal([]byte(summary), &c) == nil {
		return placed(m, c), false, nil
	}
	dead, err := b.reader.Has(ctx, streamDead, direct.Request{Last: subjects.Dead + streamCalls + ".*." + strconv.FormatUint(m.Seq, 10)})
	return PlacedCall{Seq: m.Seq, Unread: true}, dead, err
}

// queuePrefix begins the names of the consumers that are the queues of providers.
const queuePrefix = "w-"

// QueueNames returns the providers that ever had a worker: those with a consumer.
func (b *Bus) QueueNames(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamCalls)
	if err != nil {
		return nil, natserr.Coded("list the queues", err)
	}
	var names []string
	list := s.ConsumerNames(ctx)
	for name := range list.Name() {
		if provider, is := strings.CutPrefix(name, queuePrefix); is && provider != "" {
			names = append(names, provider)
		}
	}
	return names, natserr.Coded("list the queues", list.Err())
}

// ForgetCalls removes the calls before a sequence from the log. All of them must have ended. Calls that are scheduled for later stay, and
// what follows them.
func ForgetCalls(ctx context.Context, b *Bus, before uint64) error {
	switch first, err := b.reader.Get(ctx, streamCalls, direct.Request{Seq: 1, Next: subjects.CallTimers + "*.*.*"}); {
	case err == nil:
		before = min(before, first.Seq)
	case !errors.Is(err, schemas.ErrNotFound):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamCalls)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(before))
	}
	return natserr.Coded("forget old calls", err)
}
