package callstate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/callstore"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/logclock"
	"github.com/sandjet/sandjet/streams/payloads"
)

// Options say where events are. All are required.
type Options struct {
	Calls  *callstore.Store
	Reader *direct.Reader
	Clock  *logclock.Clock
	Log    *slog.Logger
	// EventsOf returns where the events of a conversation are.
	EventsOf func(schemas.AccountID, schemas.ConversationID) (stream, subject string)
	// Event reads a stored event, also from the object store. Code unavailable: not now; others: it is no event.
	Event func(context.Context, direct.Message) (schemas.Event, error)
	// Recognises reports whether the log certainly detects a second publish of what it stored at a time.
	Recognises func(time.Time) bool
	// Trimmed returns up to when events were removed, by [subjects.ShardKey] or [subjects.ConversationKey]; the zero time if none were.
	Trimmed func(ctx context.Context, key string) (time.Time, error)
}

// Reader reads the states of calls. It is safe for concurrent use.
type Reader struct{ o Options }

// New returns the Reader of a log.
func New(o Options) *Reader { return &Reader{o: o} }

// farApart is how far the clocks of different hosts may be apart, where only those are known.
const farApart = time.Hour

// Read reads the state of a call from the events of its conversation, from its acceptance on. Code: unavailable.
func (s *Reader) Read(ctx context.Context, c schemas.Call) (State, error) {
	r, err := s.ReadAll(ctx, c)
	if err != nil {
		return State{}, err
	}
	return r.State, nil
}

// ReadAll is [Reader.Read] with what else is known of the call.
func (s *Reader) ReadAll(ctx context.Context, c schemas.Call) (*Reading, error) {
	r, err := s.Begin(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	_, err = complete(ctx, []*Reading{r}, 0)
	return r, err
}

// Reading gathers the state of one call. It is for one goroutine.
type Reading struct {
	Stream, Subject string    // of the events of its conversation
	Stored          time.Time // when the log stored the call, or when it was accepted if that was earlier or is all that is known
	Since           time.Time // no event of the call is older
	Last            uint64    // events up to this sequence were read
	State           State

	of    *Reader
	asked bool // the question about it is there
	short bool // of a result it keeps what a list needs
	// whole says that the conversation is read from its beginning, where another use of the call's id may lie.
	whole bool
}

// Begin returns a Reading of a call that has read no event yet. It asks when the call was stored. Code: unavailable.
func (s *Reader) Begin(ctx context.Context, c schemas.Call) (*Reading, error) {
	if err := errors.Join(c.Account.Validate(), c.Conversation.Validate()); err != nil {
		return nil, err
	}
	r := &Reading{of: s, State: State{Call: c}}
	r.Stream, r.Subject = s.o.EventsOf(c.Account, c.Conversation)
	// By the log's own clock: that of the process that accepted the call may be wrong, and a start that is not seen would be a second start.
	switch m, err := s.o.Calls.Stored(ctx, c.Account, c.ID); {
	case err == nil:
		r.Stored, r.Since = m.Time, m.Time.Add(-logclock.ServersApart)
		if c.Accepted.Before(r.Since) && !c.Accepted.IsZero() { // sent again since
			r.Stored, r.Since = c.Accepted, c.Accepted.Add(-farApart)
		}
	case errors.Is(err, schemas.ErrNotFound):
		r.Stored, r.Since = c.Accepted, c.Accepted.Add(-farApart)
	default:
		return nil, err
	}
	return r, nil
}

// read continues reading where it stopped.
func (r *Reading) read(ctx context.Context) error {
	for {
		since := &r.Since
		if r.Last > 0 {
			since = nil
		}
		page, more, err := r.of.o.Reader.GetPage(ctx, r.Stream, r.Subject, r.Last+1, since, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			r.Last = m.Seq
			if err := r.take(ctx, m); err != nil {
				return err
			}
		}
		if !more || len(page) == 0 {
			return nil
		}
	}
}

// take adds what one message says. For most messages the message id is enough.
func (r *Reading) take(ctx context.Context, m direct.Message) error {
	if c := r.State.Call; m.ID != "" && !EventOf(m.ID, c) {
		r.asked = r.asked || c.Approval != "" && m.ID == schemas.ApprovalRequestedID(c.Account, c.Approval)
		return nil
	}
	if summary := m.Headers.Get(payloads.HeaderSummary); r.short && summary != "" {
		m.Data, m.Headers = []byte(summary), nil
	}
	e, err := r.of.o.Event(ctx, m)
	switch {
	case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
		return err
	case err != nil:
		return nil //nolint:nilerr // a message that is no event says nothing
	case r.whole && !r.begun() && !accepts(e, r.State.Call):
		return nil
	}
	err = r.State.add(e)
	if r.short {
		r.State.Result = listedResult(r.State.Result)
	}
	return err
}
