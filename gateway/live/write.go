package live

import (
	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/wsconn"
	"github.com/sandjet/sandjet/schemas"
)

// largeEvent is the size from which an event is not put into a batch, in bytes.
const largeEvent = wsconn.FlushAbove / 2

// Gather implements [wsconn.Handler]: it appends the steps of the conversations' readers, which take turns when the client cannot receive
// everything at once. Attachments may be added meanwhile; only Gather and goroutines with the right to write remove them.
func (s *session) Gather(out *wsconn.Out) (more bool) {
	s.mu.Lock()
	attached, first := s.attached, s.first
	s.mu.Unlock()
	n := len(attached)
	for i := range n {
		at := attached[(first+i)%n]
		if !at.ready.Swap(false) {
			continue
		}
		for step := range at.reader.Ready() {
			if s.writeStep(out, at, step); out.Full() {
				more = true
				break
			}
		}
		s.batch.end(out)
		if more { // the next ones are first in the next round
			at.ready.Store(true)
			first = (first + i + 1) % n
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first = first
	s.drop()
	return more
}

// writeStep appends one step of a conversation to the output.
func (s *session) writeStep(out *wsconn.Out, at *attachment, step replay.Step) {
	if step.Kind != replay.StepEvent {
		s.batch.end(out)
	}
	conv := string(at.conv)
	switch step.Kind {
	case replay.StepEvent:
		s.event(out, at, step)
	case replay.StepAttached:
		s.answered(at, false)
		op := serverOp{Op: "attached", ID: at.id, Conv: conv, Head: step.At.String(), Recovered: new(step.Gap == nil)}
		if step.Gap != nil {
			op.Gap = step.Gap
		}
		s.add(out, op)
	case replay.StepGap:
		s.add(out, serverOp{Op: "gap", Conv: conv, Recovered: new(false), Gap: step.Gap})
	case replay.StepLive:
		s.add(out, serverOp{Op: "live", Conv: conv, Cur: step.At.String(), Skipped: step.Skipped})
	case replay.StepFailed: // the conversation is detached by it; the client attaches again after its cursor
		s.answered(at, true)
		if s.server.Draining.Err() == nil {
			s.add(out, serverOp{Op: "error", ID: at.id, Conv: conv, Error: schemas.Public(step.Err)})
		}
	}
}

// event appends an event to the output. A replayed event may be compressed, or put into a batch.
func (s *session) event(out *wsconn.Out, at *attachment, step replay.Step) {
	if step.Snapshot != nil { // seldom, and large
		s.batch.end(out)
		s.large(out, step.Replay, nil, step.Snapshot.Op())
	}
	size := step.EventSize()
	switch {
	case size > largeEvent:
		s.batch.end(out)
		s.large(out, step.Replay, step.AppendHead(nil), step.Frame.Body())
	case at.batch && step.Replay:
		s.batch.add(out, at.conv, step)
	default:
		s.batch.end(out)
		out.TextOf(size, step.AppendEvent)
	}
}

// large appends a message of two parts, compressed if it is replayed.
func (s *session) large(out *wsconn.Out, replayed bool, head, body []byte) {
	if replayed {
		out.Compressed(head, body)
		return
	}
	out.Text(head, body)
}

// drop removes the attachments that have failed. The caller holds mu and has the right to write. A goroutine with a copy of the list still
// sees the removed ones.
func (s *session) drop() {
	kept := s.attached[:0]
	for _, at := range s.attached {
		if at.failed {
			s.forget(at)
		} else {
			kept = append(kept, at)
		}
	}
	clear(s.attached[len(kept):])
	s.attached = kept
}

// add appends a message that is not an event.
func (s *session) add(out *wsconn.Out, op serverOp) {
	if text := s.encode(op); text != nil {
		out.Text(text)
	}
}

func (s *session) encode(op serverOp) []byte {
	text, err := schemas.EncodeJSON(op)
	if err != nil {
		s.server.Log.Error("message not encoded", "op", op.Op, "error", err)
		return nil
	}
	return text
}

// say sends an answer. It blocks while the client does not read. It must not be called with mu held.
func (s *session) say(op serverOp) {
	s.conn.Write(func(out *wsconn.Out) { s.add(out, op) })
}

// close ends the session with a close frame that has the code and the reason.
func (s *session) close(code CloseCode, reason string) {
	var last [][]byte
	if code == CloseDrain {
		last = append(last, s.encode(serverOp{Op: "bye", Code: code, RetryMS: web.ComeBack().Milliseconds()}))
	}
	s.conn.Close(wsconn.CloseError{Code: wsconn.CloseCode(code), Reason: reason}, last...)
}
