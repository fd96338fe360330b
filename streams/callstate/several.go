package callstate

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/logclock"
)

// Several reads what a conversation's events say about several of its calls. Each read continues where the last one stopped. It is for
// one goroutine.
type Several struct {
	of      *Reader
	stream  string
	subject string
	since   time.Time
	last    uint64
	read    bool // what was there was read whole: only what has come since is missing
	calls   map[schemas.CallID]*State
	account schemas.AccountID
}

// Several returns the states of calls that were accepted at since, by the log's clock, or later. It reads nothing yet.
func (r *Reader) Several(a schemas.AccountID, c schemas.ConversationID, calls []schemas.CallID, since time.Time) *Several {
	s := &Several{of: r, since: since.Add(-logclock.ServersApart), account: a, calls: make(map[schemas.CallID]*State, len(calls))}
	s.stream, s.subject = r.o.EventsOf(a, c)
	for _, id := range calls {
		s.calls[id] = &State{Call: schemas.Call{ID: id, Account: a, Conversation: c}}
	}
	return s
}

// Of returns the state of one of the calls as read so far.
func (s *Several) Of(id schemas.CallID) State {
	if state := s.calls[id]; state != nil {
		return *state
	}
	return State{}
}

// Read reads the events since the last read. Code: unavailable.
func (s *Several) Read(ctx context.Context) error {
	if err := s.account.Validate(); err != nil {
		return err
	}
	err := s.readOn(ctx, &s.since)
	if err == nil && !s.read {
		err = s.complete(ctx)
	}
	if err == nil {
		s.read = s.last > 0
	} else if !s.read {
		s.restart()
	}
	return err
}

// complete reads again what a read from a time on may have missed because the log's clock was set back.
func (s *Several) complete(ctx context.Context) error {
	if s.begun() {
		return nil
	}
	found, err := s.of.o.Clock.FoundSince(ctx, s.since)
	if found || err != nil {
		return err
	}
	s.restart()
	return s.readOn(ctx, nil)
}

func (s *Several) restart() {
	s.last = 0
	for _, state := range s.calls {
		*state = State{Call: state.Call}
	}
}

// begun reports whether the acceptance of every call was read; no event of them is older.
func (s *Several) begun() bool {
	for _, state := range s.calls {
		if !state.Accepted && state.Result == nil {
			return false
		}
	}
	return true
}

// readOn reads the events since the last read; on the first read, those since a time, or all if since is nil.
func (s *Several) readOn(ctx context.Context, since *time.Time) error {
	for {
		if s.last > 0 {
			since = nil
		}
		page, more, err := s.of.o.Reader.GetPage(ctx, s.stream, s.subject, s.last+1, since, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			if err := s.take(ctx, m); err != nil {
				return err
			}
			s.last = m.Seq
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}

// take adds what one message says. For most messages the message id is enough.
func (s *Several) take(ctx context.Context, m direct.Message) error {
	concerned := m.ID == ""
	for _, state := range s.calls {
		concerned = concerned || EventOf(m.ID, state.Call)
	}
	if !concerned {
		return nil
	}
	e, err := s.of.o.Event(ctx, m)
	switch {
	case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
		return err
	case err != nil:
		return nil //nolint:nilerr // a message that is no event says nothing
	}
	if state := s.calls[schemas.CallID(e.Subject)]; state != nil {
		return state.add(e)
	}
	return nil
}
