package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// question is one operation that has no answer yet. After a reconnect it is sent again, which is safe: calls have an id, and the other
// operations can be repeated.
type question struct {
	id    int64
	frame map[string]any
	sent  int
	reply chan answered
}

type answered struct {
	frame wsFrame
	err   error
}

// Send sends a call on the socket and returns when it is accepted; its result comes as an event. Codes: as [Client.Call].
func (s *Socket) Send(ctx context.Context, r schemas.Request) (State, error) {
	if r.ID == "" {
		r.ID = schemas.NewCallID()
	}
	request, err := json.Marshal(r)
	if err != nil {
		return State{}, schemas.Wrap(schemas.Invalid, "encode", "the request cannot be encoded: is its input JSON?", err)
	}
	f, err := s.ask(ctx, map[string]any{"op": "send", "request": json.RawMessage(request)})
	if err != nil {
		return State{}, err
	}
	st := State{ID: f.Call, Conversation: f.Conversation, Status: f.Status, Approval: f.Approval}
	if st.Status == "" {
		st.Status = "queued"
	}
	return st, nil
}

// Cancel requests the cancellation of a call on the socket. Codes: as [Client.Cancel].
func (s *Socket) Cancel(ctx context.Context, id schemas.CallID, reason string) error {
	op := map[string]any{"op": "cancel", "call": id}
	if reason != "" {
		op["reason"] = reason
	}
	_, err := s.ask(ctx, op)
	return err
}

// Approve decides an approval. Codes: not_found, conflict (it was decided otherwise, or the call does not wait for it any more).
func (s *Socket) Approve(ctx context.Context, id schemas.ApprovalID, a schemas.ApprovalAnswer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return schemas.Wrap(schemas.Invalid, "encode", "the answer cannot be written as JSON", err)
	}
	op := map[string]any{}
	if err := json.Unmarshal(b, &op); err != nil {
		return fmt.Errorf("read the answer again: %w", err)
	}
	op["op"], op["approval"] = "approve", id
	_, err = s.ask(ctx, op)
	return err
}

// ask sends an operation and returns its answer, over as many connections as needed.
func (s *Socket) ask(ctx context.Context, frame map[string]any) (wsFrame, error) {
	s.mu.Lock()
	if s.over != nil {
		s.mu.Unlock()
		return wsFrame{}, s.over
	}
	s.lastID++
	q := &question{id: s.lastID, frame: frame, reply: make(chan answered, 1)}
	frame["id"] = q.id
	s.questions[q.id] = q
	s.put(q)
	s.mu.Unlock()
	select {
	case a := <-q.reply:
		return a.frame, a.err
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.questions, q.id)
		s.mu.Unlock()
		return wsFrame{}, fmt.Errorf("%s: %w", frame["op"], ctx.Err())
	}
}

// put sends a question if there is a connection. The caller holds the mutex.
func (s *Socket) put(q *question) {
	if s.write(q.frame) {
		q.sent++
	}
}

// answer handles a message with the id of a question: it passes the answer on, or sends the question again after a temporary error. The
// caller holds the mutex.
func (s *Socket) answer(id int64, w wsFrame) {
	q := s.questions[id]
	switch {
	case q == nil:
	case w.Op != "error" || w.Error == nil:
		s.answered(id, answered{frame: w})
	case w.Error.Code == schemas.Unavailable || w.Error.Code == schemas.Interrupted:
		conn := s.conn
		time.AfterFunc(attachAgain, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.conn == conn && s.questions[id] == q { // a new connection has asked it again by itself
				s.put(q)
			}
		})
	case q.frame["op"] == "cancel" && q.sent > 1 && w.Error.Code == schemas.Conflict:
		s.answered(id, answered{}) // the first try ended it, and its answer was lost
	default:
		s.answered(id, answered{err: w.Error})
	}
}

func (s *Socket) answered(id int64, a answered) {
	s.questions[id].reply <- a
	delete(s.questions, id)
}
