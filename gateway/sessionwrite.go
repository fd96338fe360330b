package gateway

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sandjet/sandjet/gateway/replay"
	"github.com/sandjet/sandjet/schemas"
)

const (
	closeWithin = time.Second // of the last frames to a client that may not read
	flushAbove  = 32 << 10    // bytes that are gathered into one write
	largeFrame  = flushAbove / 2
)

// First bytes of the frames that are written: whole messages, never masked.
const (
	wsText  = 0x80 | websocket.TextMessage
	wsClose = 0x80 | websocket.CloseMessage
	wsPing  = 0x80 | websocket.PingMessage
	wsPong  = 0x80 | websocket.PongMessage
)

// appendHeader adds the header of a WebSocket frame with n bytes.
func appendHeader(b []byte, first byte, n int) []byte {
	const short, two, eight = 125, 126, 127
	switch {
	case n <= short:
		return append(b, first, byte(n))
	case n <= 1<<16-1:
		return binary.BigEndian.AppendUint16(append(b, first, two), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, first, eight), uint64(n))
}

// buffers are what writers gather frames in. Only those at work have one.
type buffers struct{ pool sync.Pool }

func (p *buffers) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, flushAbove+largeFrame+largeFrame/4)
	return &b
}

func (p *buffers) put(b *[]byte) {
	if cap(*b) > 2*(flushAbove+largeFrame) { // a very large event was compressed into it
		return
	}
	*b = (*b)[:0]
	p.pool.Put(b)
}

// wake has the writer look whether there is something to write. It never waits.
func (s *session) wake() { s.writer.wake(s.drain) }

// drain writes until nothing is left.
func (s *session) drain() {
	buf := s.g.upgrades.buffers.get()
	defer s.g.upgrades.buffers.put(buf)
	for {
		for more := true; more; {
			more = s.round(buf)
			s.pace()
		}
		if !s.writer.again() {
			return
		}
	}
}

// round gathers what fits into one write and writes it. It reports whether there may be more.
func (s *session) round(buf *[]byte) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := (*buf)[:0]
	if s.pingDue.Swap(false) {
		b = appendHeader(b, wsPing, 0)
	}
	n := len(s.attached)
	for i := range n {
		at := s.attached[(s.first+i)%n]
		if !at.ready.Swap(false) {
			continue
		}
		for step := range at.reader.Ready() {
			if b = s.tell(b, at, step); len(b) >= flushAbove || s.closing.Load() {
				more = true
				break
			}
		}
		b = s.seal(b)
		if more { // the next ones are first in the next round
			at.ready.Store(true)
			s.first = (s.first + i + 1) % n
			break
		}
	}
	s.drop()
	*buf = b[:0]
	return s.write(b) && more
}

// tell adds one step of a conversation.
func (s *session) tell(b []byte, at *attachment, step replay.Step) []byte {
	if step.Kind != replay.StepEvent {
		b = s.seal(b)
	}
	conv := string(at.conv)
	switch step.Kind {
	case replay.StepEvent:
		return s.event(b, at, step)
	case replay.StepAttached:
		s.placeOf(at)
		op := serverOp{Op: "attached", ID: at.id, Conv: conv, Head: step.At.String(), Recovered: new(step.Gap == nil)}
		if step.Gap != nil {
			op.Gap = step.Gap
		}
		return s.encode(b, op)
	case replay.StepGap:
		return s.encode(b, serverOp{Op: "gap", Conv: conv, Recovered: new(false), Gap: step.Gap})
	case replay.StepLive:
		return s.encode(b, serverOp{Op: "live", Conv: conv, Cur: step.At.String(), Skipped: step.Skipped})
	case replay.StepFailed: // the conversation is detached by it; the client attaches again after its cursor
		at.failed = true
		s.placeOf(at)
		if s.g.draining.Err() == nil {
			return s.encode(b, serverOp{Op: "error", ID: at.id, Conv: conv, Error: schemas.Public(step.Err)})
		}
	}
	return b
}

// event adds an event. What is large is written at once, without being copied.
func (s *session) event(b []byte, at *attachment, step replay.Step) []byte {
	if step.Snapshot != nil { // seldom, and large
		b = s.large(s.seal(b), step.Replay, nil, step.Snapshot.Op())
	}
	size := step.EventSize()
	switch packs := at.batch && step.Replay; {
	case size > largeFrame:
		return s.large(s.seal(b), step.Replay, step.AppendHead(nil), step.Frame.Body())
	case packs:
		return s.pack(b, at, step)
	}
	return step.AppendEvent(appendHeader(s.seal(b), wsText, size))
}

// drop removes the attachments that have failed.
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

// encode adds a frame of the gateway's own.
func (s *session) encode(b []byte, op serverOp) []byte {
	text, err := json.Marshal(op)
	if err != nil {
		s.g.Log.Error("a frame could not be encoded", "op", op.Op, "error", err)
		return b
	}
	return append(appendHeader(b, wsText, len(text)), text...)
}

// say answers, and waits while the client does not read.
func (s *session) say(op serverOp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(op)
}

func (s *session) sayLocked(op serverOp) { s.write(s.encode(nil, op)) }

// control writes a control frame.
func (s *session) control(first byte, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(append(appendHeader(nil, first, len(data)), data...))
}

// write writes whole frames, in the hands of who holds mu. A client that does not take them within
// the stall is dropped: it reports false from then on.
func (s *session) write(b []byte) bool {
	if len(b) == 0 {
		return !s.closing.Load()
	}
	_ = s.net.SetWriteDeadline(time.Now().Add(s.g.Stall)) // shows at the write
	if s.closing.Load() {                                 // by now its own deadline may have been overwritten
		return false
	}
	s.said.Store(int64(s.g.uptime()))
	s.sent += len(b)
	if _, err := s.net.Write(b); err != nil {
		s.broken = true
		if !s.closing.Load() {
			s.g.metrics.dropped.WithLabelValues("websocket").Inc()
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.g.Log.Info("a socket was dropped: a write stood still", "stall", s.g.Stall)
			}
		}
		s.close(&closed{0, "the client does not read"})
		return false
	}
	return true
}

// close ends the session: with code 0 at once, else after saying why. What it reads after that is
// read away for a moment: closing with unread bytes would reset the connection, and the client might
// never see why it was closed.
func (s *session) close(why *closed) {
	if !s.closing.CompareAndSwap(false, true) {
		return
	}
	s.end(why)
	if why.code == 0 {
		_ = s.net.Close() // nothing can be done about it
		return
	}
	deadline := time.Now().Add(closeWithin)
	_ = s.net.SetWriteDeadline(deadline) // a write that stands still ends by it
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		_ = s.net.Close() // as above
		return
	}
	var b []byte
	if why.code == CloseDrain {
		b = s.encode(b, serverOp{Op: "bye", Code: why.code, RetryMS: comeBack().Milliseconds()})
	}
	msg := websocket.FormatCloseMessage(int(why.code), why.text)
	b = append(appendHeader(b, wsClose, len(msg)), msg...)
	deadline = time.Now().Add(closeWithin) // anew: waiting for the lock, or for a busy machine, is not the client's fault
	_ = s.net.SetWriteDeadline(deadline)   // shows at the write
	_ = s.net.SetReadDeadline(deadline)    // as above
	_, _ = s.net.Write(b)                  // the client may have gone
	if half, ok := s.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it is closed whole in a moment
	}
}

// linger reads away what the client still sends until it closes too, for a moment.
func (s *session) linger() {
	_, _ = io.Copy(io.Discard, onlyReader{s.net}) // it ends by the deadline, or because it is closed
	_ = s.net.Close()                             // nothing can be done about it
}

// onlyReader hides what else a connection can do, which would cost a large buffer.
type onlyReader struct{ net.Conn }
