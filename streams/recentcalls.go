package streams

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// RecentCall is a call as lists show it.
type RecentCall struct {
	Call    schemas.Call // its input is null
	Summary string       // of its input; see [schemas.Summary]
	Parked  bool         // it waits for a person

	seq    uint64
	stored time.Time
}

// Bounds of one look at recent calls, whatever the log holds. A read is one page of the log.
const (
	recentReads = 24
	recentCalls = 2000
)

// RecentCalls reads calls of an account, the newest first, from before a call on (empty: from the newest on), and returns those that
// want accepts, until there are limit of them. Last is the last call that it looked at: more are asked for before that one. More
// says that there may be older ones. What it costs is bounded by limit, not by what the log holds: where nearly nothing is wanted it
// ends early, with more. Few of them run at the same time, in turn between accounts. Codes: not_found (before is not there), unavailable.
func RecentCalls(
	ctx context.Context, b *Bus, a schemas.AccountID, before schemas.CallID, limit int, want func(schemas.Call) bool,
) (list []RecentCall, last schemas.CallID, more bool, err error) {
	if err := b.lists.Acquire(ctx, a); err != nil {
		return nil, "", false, natserr.Coded("list calls", err)
	}
	defer b.lists.Release(a)
	end, err := recentEnd(ctx, b, a, before)
	if err != nil || end == 0 {
		return nil, "", false, err
	}
	last = before
	w := backward{end: end, width: uint64(max(limit, 1)) * 2}
	seen := map[schemas.CallID]bool{}
	for range recentReads {
		page, err := w.read(ctx, b, callSubjects(a))
		if err != nil {
			return nil, "", false, err
		}
		for _, m := range slices.Backward(page) {
			if len(list) == limit || len(seen) == recentCalls {
				return list, last, true, nil
			}
			c, err := listedCall(m)
			if err != nil || seen[c.ID] { // a worker puts what cannot be read to the dead letters
				continue
			}
			seen[c.ID], last = true, c.ID
			if want(c) {
				list = append(list, recentCall(m, c))
			}
		}
		if w.end <= 1 {
			return list, last, false, nil
		}
	}
	return list, last, true, nil
}

// ListedCall returns one call of an account as lists show it. Code: not_found.
func ListedCall(ctx context.Context, b *Bus, a schemas.AccountID, id schemas.CallID) (RecentCall, error) {
	m, err := storedCall(ctx, b, a, id)
	if err != nil {
		return RecentCall{}, err
	}
	c, err := listedCall(m)
	return recentCall(m, c), err
}

func recentCall(m direct.Message, c schemas.Call) RecentCall {
	summary := schemas.Summary(c.Tool, c.Input)
	c.Input = nil
	return RecentCall{Call: c, Summary: summary, Parked: strings.HasPrefix(m.Subject, subjects.Calls+subjects.Parked+"."), seq: m.Seq, stored: m.Time}
}

// callSubjects are the subjects of an account's calls, also of those that wait for a person.
func callSubjects(a schemas.AccountID) string { return subjects.Calls + "*." + string(a) + ".*" }

// recentEnd returns the sequence after an account's newest call, or that of a call; 0: there is none.
func recentEnd(ctx context.Context, b *Bus, a schemas.AccountID, before schemas.CallID) (uint64, error) {
	if err := a.Validate(); err != nil {
		return 0, err
	}
	if before != "" {
		m, err := storedCall(ctx, b, a, before)
		return m.Seq, err
	}
	m, err := b.reader.GetNewest(ctx, streamCalls, direct.Request{Last: callSubjects(a)})
	if errors.Is(err, schemas.ErrNotFound) {
		return 0, nil
	}
	return m.Seq + 1, err
}

// listedCall reads a call without fetching a payload from the object store.
func listedCall(m direct.Message) (schemas.Call, error) {
	summary := m.Headers.Get(headerSummary)
	if summary == "" {
		return decodeCall(m.Subject, nil, m.Data)
	}
	var c schemas.Call
	err := json.Unmarshal([]byte(summary), &c)
	return c, err
}

// backward reads a stream from its end to its beginning, which the log itself cannot: a range of sequences at a time, wider where little
// is found, narrower where there is more than fits into a page.
type backward struct {
	end   uint64 // what is before it was not read yet
	width uint64 // of the next range, in sequences
}

// read returns messages of a subject before the end, in order and without a hole before the end, and moves the end before them. None
// may mean that there is none in this range, or that the range was too wide.
func (w *backward) read(ctx context.Context, b *Bus, subject string) ([]direct.Message, error) {
	const faster = 8
	from := uint64(1)
	if w.end > w.width {
		from = w.end - w.width
	}
	page, more, err := b.reader.GetPage(ctx, streamCalls, subject, from, nil, 0)
	if err != nil {
		return nil, err
	}
	if n := len(page); more && n > 0 && page[n-1].Seq < w.end-1 { // it does not reach the end
		covered := page[n-1].Seq - from + 1
		w.width = max(1, min(covered/2, (w.end-page[n-1].Seq)/2))
		return nil, nil
	}
	for len(page) > 0 && page[len(page)-1].Seq >= w.end {
		page = page[:len(page)-1]
	}
	w.end = from
	if len(page) < direct.PageMessages/faster {
		w.width *= faster
	}
	return page, nil
}

// RecentStates says how far calls are, by their ids. It reads a few pages of each conversation, however long that is: a call that is
// not found within them is left out. Of results it has no text and nothing that was printed.
func RecentStates(ctx context.Context, b *Bus, calls []RecentCall) (map[schemas.CallID]CallState, error) {
	const atATime = 8
	byConversation := map[schemas.ConversationID][]*callReader{}
	for _, c := range calls {
		byConversation[c.Call.Conversation] = append(byConversation[c.Call.Conversation], recentReader(b, c))
	}
	found := make(map[schemas.CallID]CallState, len(calls))
	for chunk := range slices.Chunk(slices.Collect(maps.Values(byConversation)), atATime) {
		whole, errs := make([]bool, len(chunk)), make([]error, len(chunk))
		var wg sync.WaitGroup
		for i, group := range chunk {
			wg.Go(func() { whole[i], errs[i] = readTogether(ctx, group) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for i, group := range chunk {
			for _, r := range group {
				if whole[i] || r.state.Result != nil {
					found[r.state.Call.ID] = r.state
				}
			}
		}
	}
	return found, nil
}

// listedResult is what a list needs of a result, without what was printed: a hundred of them are held at the same time.
func listedResult(r *schemas.Result) *schemas.Result {
	if r == nil {
		return nil
	}
	l := &schemas.Result{Call: r.Call, Conversation: r.Conversation, Tool: r.Tool, Status: r.Status, Started: r.Started, Finished: r.Finished}
	if r.Output != nil {
		l.Output = &schemas.Output{OK: r.Output.OK, ExitCode: r.Output.ExitCode, TimedOut: r.Output.TimedOut}
	}
	return l
}

// summaryOfEvent is a result as lists need it, beside a payload in the object store; empty for other events.
func summaryOfEvent(e schemas.Event) string {
	if e.Type != schemas.CallFinished {
		return ""
	}
	var r schemas.Result
	if json.Unmarshal(e.Data, &r) != nil {
		return ""
	}
	data, err := schemas.EncodeJSON(listedResult(&r))
	if err != nil {
		return ""
	}
	e.Data = data
	b, err := encodeEvent(e)
	if err != nil {
		return ""
	}
	return string(b)
}

// recentReader is callReader without the question for when the call was stored.
func recentReader(b *Bus, c RecentCall) *callReader {
	stream, subject := b.topology.EventsOf(c.Call.Account, c.Call.Conversation)
	r := &callReader{
		bus: b, stream: stream, subject: subject, stored: c.stored, since: c.stored.Add(-ClocksApart), state: CallState{Call: c.Call},
		short: true,
	}
	if c.Call.Accepted.Before(r.since) { // released by a person, or put aside, since
		r.stored, r.since = c.Call.Accepted, c.Call.Accepted.Add(-ClocksApart)
	}
	return r
}

// readTogether reads the states of calls of one conversation. Whole says that it read until the present or the last result.
func readTogether(ctx context.Context, group []*callReader) (whole bool, err error) {
	const common, perRead = 2, 16 // pages, and calls for which there is one more
	first, most := earliest(group), common+len(group)/perRead
	from, since := uint64(1), &first.since
	for range most {
		page, more, err := first.bus.reader.GetPage(ctx, first.stream, first.subject, from, since, 0)
		if err != nil {
			return false, err
		}
		open := false
		for _, r := range group {
			for _, m := range page {
				if err := r.take(ctx, m); err != nil {
					return false, err
				}
			}
			open = open || r.state.Result == nil
		}
		if !open || !more || len(page) == 0 {
			return complete(ctx, group, most)
		}
		from, since = page[len(page)-1].Seq+1, nil
	}
	return false, nil
}
