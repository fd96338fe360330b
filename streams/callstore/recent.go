package callstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/natserr"
	"github.com/sandjet/sandjet/streams/subjects"
)

// Listed is a call as lists show it.
type Listed struct {
	Call    schemas.Call // its input is null
	Summary string       // of its input; see [schemas.Summary]
	Parked  bool         // it waits for a person

	Stored time.Time // when the log stored it
}

// Bounds of one look at recent calls, whatever the log holds. A read is one page of the log.
const (
	recentReads = 24
	recentCalls = 2000
)

// Recent returns the calls of an account that want accepts, the newest first, at most limit of them; it reads those before the call
// before, or from the newest on if before is empty. last is the last call that was read: pass it as before for the next page. more reports
// that there may be older calls. The cost is bounded by limit and not by the size of the log, so a page may have few calls, and more. Few
// such reads run at the same time; accounts take turns. Codes: not_found (there is no call before), unavailable.
func (s *Store) Recent(
	ctx context.Context, a schemas.AccountID, before schemas.CallID, limit int, want func(schemas.Call) bool,
) (list []Listed, last schemas.CallID, more bool, err error) {
	if err := s.o.Lists.Acquire(ctx, a); err != nil {
		return nil, "", false, natserr.Coded("list calls", err)
	}
	defer s.o.Lists.Release(a)
	end, err := s.end(ctx, a, before)
	if err != nil || end == 0 {
		return nil, "", false, err
	}
	last = before
	w := backward{s: s, end: end, width: uint64(max(limit, 1)) * 2}
	seen := map[schemas.CallID]bool{}
	for range recentReads {
		page, err := w.read(ctx, callSubjects(a))
		if err != nil {
			return nil, "", false, err
		}
		for _, m := range slices.Backward(page) {
			if len(list) == limit || len(seen) == recentCalls {
				return list, last, true, nil
			}
			c, err := withoutPayload(m)
			if err != nil || seen[c.ID] { // a worker puts what cannot be read to the dead letters
				continue
			}
			seen[c.ID], last = true, c.ID
			if want(c) {
				list = append(list, listed(m, c))
			}
		}
		if w.end <= 1 {
			return list, last, false, nil
		}
	}
	return list, last, true, nil
}

// FindListed returns one call of an account as lists show it. Code: not_found.
func (s *Store) FindListed(ctx context.Context, a schemas.AccountID, id schemas.CallID) (Listed, error) {
	m, err := s.Stored(ctx, a, id)
	if err != nil {
		return Listed{}, err
	}
	c, err := withoutPayload(m)
	return listed(m, c), err
}

func listed(m direct.Message, c schemas.Call) Listed {
	summary := schemas.Summary(c.Tool, c.Input)
	c.Input = nil
	return Listed{Call: c, Summary: summary, Parked: strings.HasPrefix(m.Subject, subjects.Calls+subjects.Parked+"."), Stored: m.Time}
}

// callSubjects are the subjects of an account's calls, also of those that wait for a person.
func callSubjects(a schemas.AccountID) string { return subjects.Calls + "*." + string(a) + ".*" }

// end returns the sequence after an account's newest call, or that of a call; 0: there is none.
func (s *Store) end(ctx context.Context, a schemas.AccountID, before schemas.CallID) (uint64, error) {
	if err := a.Validate(); err != nil {
		return 0, err
	}
	if before != "" {
		m, err := s.Stored(ctx, a, before)
		return m.Seq, err
	}
	m, err := s.o.Reader.GetNewest(ctx, s.o.Stream, direct.Request{Last: callSubjects(a)})
	if errors.Is(err, schemas.ErrNotFound) {
		return 0, nil
	}
	return m.Seq + 1, err
}

// backward reads a stream from its end to its beginning, which the log itself cannot: a range of sequences at a time, wider where little
// is found, narrower where there is more than fits into a page.
type backward struct {
	s     *Store
	end   uint64 // what is before it was not read yet
	width uint64 // of the next range, in sequences
}

// read returns messages of a subject before the end, in order and without a gap up to the end, and moves the end before them. No messages
// mean that the range has none, or that it was too wide.
func (w *backward) read(ctx context.Context, subject string) ([]direct.Message, error) {
	const faster = 8
	from := uint64(1)
	if w.end > w.width {
		from = w.end - w.width
	}
	page, more, err := w.s.o.Reader.GetPage(ctx, w.s.o.Stream, subject, from, nil, 0)
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
