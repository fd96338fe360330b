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
)

// CallsKept is how long a call is the record of its id. It stays on the log for longer while it has no end:
// who gives calls their end forgets them, with [ForgetCalls].
const CallsKept = callsKept

// headerSummary has a call without its input beside a payload in the object store, which ages out sooner.
const headerSummary = "Sandjet-Summary"

// summaryOf is what must be known of a call to end it.
func summaryOf(c schemas.Call) string {
	c.Input, c.InputSize = nil, c.InputBytes()
	b, _ := json.Marshal(c) //nolint:errchkjson // a call was read from JSON or made from what was
	return string(b)
}

// OldCalls says which calls are older than they are the record of their id: those before a sequence, and
// where they begin. Both are 0 when there are none that are older by more than slack.
func OldCalls(ctx context.Context, b *Bus, slack time.Duration) (first, before uint64, err error) {
	oldest, err := b.reader.getOne(ctx, streamCalls, getRequest{Seq: 1, Next: callFilter("")})
	if errors.Is(err, schemas.ErrNotFound) || err == nil && b.Now().Sub(oldest.time) < callsKept+slack {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	from := b.Now().Add(-callsKept)
	page, _, err := b.reader.getPage(ctx, streamCalls, callFilter(""), 1, &from, 1)
	if err != nil {
		return 0, 0, err
	}
	if len(page) > 0 {
		return oldest.seq, page[0].seq, nil
	}
	info, err := b.topology.info(ctx, streamCalls)
	if err != nil {
		return 0, 0, err
	}
	if info.State.LastTime.After(from) { // stored since
		return 0, 0, nil
	}
	return oldest.seq, info.State.LastSeq + 1, nil
}

// ParkedCalls stands in the place of a provider for [CallsBetween]: the calls that wait for a person.
const ParkedCalls = parked

// PlacedCall is a call with its place on the log.
type PlacedCall struct {
	Call schemas.Call // without its input where that is gone
	Seq  uint64
	Due  time.Time // see [Due]
	// Unread says that it cannot be read and has no dead letter: it may have no end, and Call is empty.
	Unread bool
}

// CallsBetween reads the calls of a provider from one sequence to before another. One that cannot be read, and has a dead letter, is
// skipped: it gets its end from that.
func CallsBetween(ctx context.Context, b *Bus, provider string, from, before uint64) iter.Seq2[PlacedCall, error] {
	return func(yield func(PlacedCall, error) bool) {
		for next := from; next < before; {
			page, more, err := b.reader.getPage(ctx, streamCalls, callFilter(provider), next, nil, 0)
			if err != nil {
				yield(PlacedCall{}, err)
				return
			}
			for _, m := range page {
				if next = m.seq + 1; m.seq >= before {
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

// placed is a call with its place.
func (m stored) placed(c schemas.Call) PlacedCall {
	return PlacedCall{Call: c, Seq: m.seq, Due: Due(c, m.time, Headers(m.headers))}
}

// FindPlacedCall is [FindCall] with the call's place.
func FindPlacedCall(ctx context.Context, b *Bus, account schemas.AccountID, id schemas.CallID) (PlacedCall, error) {
	m, err := storedCall(ctx, b, account, id)
	if err != nil {
		return PlacedCall{}, err
	}
	c, err := wholeCall(ctx, b, m)
	return m.placed(c), err
}

// placedCall reads a call of [CallsBetween]. Skip says that it has a dead letter instead.
func placedCall(ctx context.Context, b *Bus, m stored) (p PlacedCall, skip bool, err error) {
	c, err := wholeCall(ctx, b, m)
	if err == nil {
		return m.placed(c), false, nil
	}
	if schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil {
		return PlacedCall{}, false, err
	}
	if summary := m.headers.Get(headerSummary); summary != "" && json.Unmarshal([]byte(summary), &c) == nil {
		return m.placed(c), false, nil
	}
	dead, err := b.reader.has(ctx, streamDead, getRequest{Last: prefixDead + streamCalls + ".*." + strconv.FormatUint(m.seq, 10)})
	return PlacedCall{Seq: m.seq, Unread: true}, dead, err
}

// queuePrefix begins the names of the consumers that are the queues of providers.
const queuePrefix = "w-"

// QueueNames are the providers that were ever served: those with a queue of their own.
func (b *Bus) QueueNames(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamCalls)
	if err != nil {
		return nil, coded("list the queues", err)
	}
	var names []string
	list := s.ConsumerNames(ctx)
	for name := range list.Name() {
		if provider, is := strings.CutPrefix(name, queuePrefix); is && provider != "" {
			names = append(names, provider)
		}
	}
	return names, coded("list the queues", list.Err())
}

// ForgetCalls removes the calls before a sequence from the log: all of them must have their end. What is put aside
// stays, and what is behind it.
func ForgetCalls(ctx context.Context, b *Bus, before uint64) error {
	switch first, err := b.reader.getOne(ctx, streamCalls, getRequest{Seq: 1, Next: prefixCallTimers + "*.*.*"}); {
	case err == nil:
		before = min(before, first.seq)
	case !errors.Is(err, schemas.ErrNotFound):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestWithin)
	defer cancel()
	s, err := b.jsBulk.Stream(ctx, streamCalls)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSequence(before))
	}
	return coded("forget old calls", err)
}
