package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams/direct"
	"github.com/sandjet/sandjet/streams/subjects"
)

// FindCall returns an admitted call by its id, for 24 hours from its admission, also one that waits for an approval. A large input is left
// out ([schemas.Call.WithoutInput]); [FindWholeCall] reads it. Code: not_found.
func FindCall(ctx context.Context, b *Bus, account schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	m, err := storedCall(ctx, b, account, id)
	if err != nil {
		return schemas.Call{}, err
	}
	if m.Headers.Get(headerSummary) != "" {
		if c, err := listedCall(m); err == nil && c.InputLeftOut() {
			c.Input = nil // it was written as null
			return c, nil
		}
	}
	c, err := wholeCall(ctx, b, m)
	return c.WithoutInput(), err
}

// FindWholeCall is [FindCall] with the whole input: many megabytes, where the call has them.
func FindWholeCall(ctx context.Context, b *Bus, account schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	m, err := storedCall(ctx, b, account, id)
	if err != nil {
		return schemas.Call{}, err
	}
	return wholeCall(ctx, b, m)
}

// wholeCall reads a stored call with its input, also from the object store.
func wholeCall(ctx context.Context, b *Bus, m direct.Message) (schemas.Call, error) {
	data, err := b.payloads.whole(ctx, streamCalls, m.Headers, m.Data, m.Time)
	if err != nil {
		return schemas.Call{}, err
	}
	return decodeCall(m.Subject, nil, data)
}

// storedCall reads the message of a call. Code: not_found.
func storedCall(ctx context.Context, b *Bus, account schemas.AccountID, id schemas.CallID) (direct.Message, error) {
	if err := errors.Join(account.Validate(), id.Validate()); err != nil {
		return direct.Message{}, err
	}
	m, err := b.reader.GetLast(ctx, streamCalls, subjects.Call("*", account, id))
	if errors.Is(err, schemas.ErrNotFound) {
		return direct.Message{}, schemas.Errorf(schemas.NotFound, "there is no call %q: ids are known for 24 hours", schemas.Quotable(string(id)))
	}
	return m, err
}

// CallState is what the events of a conversation say about one call.
type CallState struct {
	Call     schemas.Call
	Accepted bool                  // call.accepted is there
	Started  []schemas.StartedData // one for each start, oldest first
	Last     time.Time             // when the last start was, by the clock of the worker that started it
	Result   *schemas.Result       // nil while there is none
	// Forgotten says that nothing of the call is on its conversation and that retention may have removed it: the call is older
	// than the log recognises what is published twice, and nothing proves that its conversation is whole since it was stored.
	// It is then not known whether the call was started or ended. See [Acknowledged].
	Forgotten bool
}

// ReadCallState reads the state of c from the events of its conversation, from its acceptance on.
func ReadCallState(ctx context.Context, b *Bus, c schemas.Call) (CallState, error) {
	r, err := readCall(ctx, b, c)
	if err != nil {
		return CallState{}, err
	}
	return r.state, nil
}

// readCall is [ReadCallState] with what else is known of the call.
func readCall(ctx context.Context, b *Bus, c schemas.Call) (*callReader, error) {
	r, err := newCallReader(ctx, b, c)
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx); err != nil {
		return nil, err
	}
	_, err = complete(ctx, []*callReader{r}, 0)
	return r, err
}

// callReader gathers the state of one call.
type callReader struct {
	bus     *Bus
	stream  string
	subject string
	stored  time.Time // when the log stored the call, or when it was accepted if that was earlier or is all that is known
	since   time.Time
	last    uint64
	asked   bool // the question about it is there
	state   CallState
	short   bool // of a result it keeps what a list needs
	// whole says that the conversation is read from its beginning, where another use of the call's id may lie.
	whole bool
}

func newCallReader(ctx context.Context, b *Bus, c schemas.Call) (*callReader, error) {
	if err := errors.Join(c.Account.Validate(), c.Conversation.Validate()); err != nil {
		return nil, err
	}
	shard := subjects.ShardOf(c.Conversation, b.Shards())
	r := &callReader{
		bus: b, stream: subjects.EventStream(shard), subject: subjects.Event(shard, c.Account, c.Conversation), state: CallState{Call: c},
	}
	// By the log's own clock: that of the process that accepted the call may be wrong, and a start that is not seen would be a second start.
	switch m, err := storedCall(ctx, b, c.Account, c.ID); {
	case err == nil:
		r.stored, r.since = m.Time, m.Time.Add(-ClocksApart)
		if c.Accepted.Before(r.since) && !c.Accepted.IsZero() { // sent again since
			r.stored, r.since = c.Accepted, c.Accepted.Add(-clocksFarApart)
		}
	case errors.Is(err, schemas.ErrNotFound):
		r.stored, r.since = c.Accepted, c.Accepted.Add(-clocksFarApart)
	default:
		return nil, err
	}
	return r, nil
}

// read continues reading where it stopped.
func (r *callReader) read(ctx context.Context) error {
	for {
		since := &r.since
		if r.last > 0 {
			since = nil
		}
		page, more, err := r.bus.reader.GetPage(ctx, r.stream, r.subject, r.last+1, since, 0)
		if err != nil {
			return err
		}
		for _, m := range page {
			r.last = m.Seq
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
func (r *callReader) take(ctx context.Context, m direct.Message) error {
	if c := r.state.Call; m.ID != "" && !ofCall(m.ID, c) {
		r.asked = r.asked || c.Approval != "" && m.ID == schemas.ApprovalRequestedID(c.Account, c.Approval)
		return nil
	}
	if summary := m.Headers.Get(headerSummary); r.short && summary != "" {
		m.Data, m.Headers = []byte(summary), nil
	}
	e, err := Events.entry(ctx, r.bus, "", m)
	switch {
	case schemas.CodeOf(err) == schemas.Unavailable || ctx.Err() != nil:
		return err
	case err != nil:
		return nil //nolint:nilerr // a message that is no event says nothing
	case r.whole && !r.begun() && !accepts(e.Value, r.state.Call):
		return nil
	}
	err = r.state.add(e.Value)
	if r.short {
		r.state.Result = listedResult(r.state.Result)
	}
	return err
}

// add adds what an event says, if it is about this call.
func (s *CallState) add(e schemas.Event) error {
	if e.Subject != string(s.Call.ID) || e.Type == schemas.CallFinished && s.Result != nil {
		return nil
	}
	news, err := newsOf(e)
	if err == nil {
		s.learn(news)
	}
	return err
}

// callNews is what an event says about the start or the end of a call.
type callNews struct {
	call     schemas.CallID
	accepted bool
	started  *schemas.StartedData
	time     time.Time       // of the start
	result   *schemas.Result // shared by all that learn of it, and never changed
}

// newsOf reads what an event says.
func newsOf(e schemas.Event) (callNews, error) {
	n := callNews{call: schemas.CallID(e.Subject)}
	switch e.Type {
	case schemas.CallAccepted:
		n.accepted = true
	case schemas.CallStarted:
		var d schemas.StartedData
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return callNews{}, fmt.Errorf("read the start of call %s: %w", e.Subject, err)
		}
		n.started, n.time = &d, e.Time
	case schemas.CallFinished:
		var d schemas.Result
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return callNews{}, fmt.Errorf("read the result of call %s: %w", e.Subject, err)
		}
		n.result = &d
	default: // it says nothing about beginning or end
	}
	return n, nil
}

// learn adds news that concern this call. If there are several results, the first counts.
func (s *CallState) learn(n callNews) {
	if n.call != s.Call.ID {
		return
	}
	s.Accepted = s.Accepted || n.accepted
	if n.started != nil {
		s.Started, s.Last = append(s.Started, *n.started), n.time
	}
	if s.Result == nil {
		s.Result = n.result
	}
}

// ofCall reports whether an event id may be that of a start or end of call c.
func ofCall(id string, c schemas.Call) bool {
	prefix := c.EventID() + "."
	if len(id) < len(prefix) || id[:len(prefix)] != prefix {
		return false
	}
	const output = "output."
	rest := id[len(prefix):]
	return len(rest) < len(output) || rest[:len(output)] != output
}
