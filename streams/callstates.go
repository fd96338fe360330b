package streams

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
)

// CallStates reads what a conversation's events say about several of its calls. Each read continues where the last one stopped. It is for
// one goroutine.
type CallStates struct {
	bus     *Bus
	stream  string
	subject string
	since   time.Time
	last    uint64
	read    bool // what was there was read whole: only what has come since is missing
	of      map[schemas.CallID]*CallState
	account schemas.AccountID
}

// NewCallStates is for calls that were accepted at since, by the log's clock, or later. It reads nothing yet.
func NewCallStates(b *Bus, a schemas.AccountID, c schemas.ConversationID, calls []schemas.CallID, since time.Time) *CallStates {
	s := &CallStates{bus: b, since: since.Add(-ClocksApart), account: a, of: make(map[schemas.CallID]*CallState, len(calls))}
	s.stream, s.subject = b.topology.EventsOf(a, c)
	for _, id := range calls {
		s.of[id] = &CallState{Call: schemas.Call{ID: id, Account: a, Conversation: c}}
	}
	return s
}

// Of returns the state of one of the calls as read so far.
func (s *CallStates) Of(id schemas.CallID) CallState {
	if state := s.of[id]; state != nil {
		return *state
	}
	return CallState{}
}

// Read reads the events since the last read. Code: unavailable.
func (s *CallStates) Read(ctx context.Context) error {
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
func (s *CallStates) complete(ctx context.Context) error {
	if s.begun() {
		return nil
	}
	found, err := s.bus.clock.FoundSince(ctx, s.since)
	if found || err != nil {
		return err
	}
	s.restart()
	return s.readOn(ctx, nil)
}

func (s *CallStates) restart() {
	s.last = 0
	for _, state := range s.of {
		*state = CallState{Call: state.Call}
	}
}

// begun reports whether the acceptance of every call was read; no event of them is older.
func (s *CallStates) begun() bool {
	for _, state := range s.of {
		if !state.Accepted && state.Result == nil {
			return false
		}
	}
	return true
}

// readOn reads the events since the last read; on the first read, those since a time, or all if since is nil.
func (s *CallStates) readOn(ctx context.Context, since *time.Time) error {
	for {
		if s.last > 0 {
			since = nil
		}
		page, more, err := s.bus.reader.GetPage(ctx, s.stream, s.subject, s.last+1, since, 0)
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
func (s *CallStates) take(ctx context.Context, m direct.Message) error {
	concerned := m.ID == ""
	for _, state := range s.of {
		concerned = concerned || ofCall(m.ID, state.Call)
	}
	if !concerned {
		return nil
	}
	e, err := Events.entry(ctx, s.bus, "", m)
	switch {
	case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
		return err
	case err != nil:
		return nil //nolint:nilerr // a message that is no event says nothing
	}
	if state := s.of[schemas.CallID(e.Value.Subject)]; state != nil {
		return state.add(e.Value)
	}
	return nil
}
