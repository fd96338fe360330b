package gateway

import (
	"encoding/binary"
	"errors"
	"sync"
	"unicode/utf8"

	"github.com/gorilla/websocket"
)

// frame is one WebSocket frame from a client.
type frame struct {
	last     bool // of its message
	deflated bool // it begins a compressed message
	opcode   byte
	body     []byte
}

const (
	opcodeContinuation = 0
	maxControl         = 125     // bytes of a control frame's body
	readSize           = 4 << 10 // bytes that one read takes; a larger frame gets a larger buffer
	maxHeader          = 14
)

var (
	errTooLarge  = errors.New("a frame is larger than 65536 bytes: use POST /v1/calls")
	errMalformed = errors.New("a frame is not of the WebSocket protocol")
)

// splitFrame takes the first frame off what was read, and unmasks its body in place. Size is how many
// bytes it took; 0: it is not all there. A message may be compressed only where that was agreed.
func splitFrame(b []byte, deflates bool) (f frame, size int, err error) {
	const (
		head, mask      = 2, 4
		fin, masked     = 0x80, 0x80
		reserved, codes = 0x30, 0x0f
		control         = 0x08
		two, eight      = 126, 127
	)
	if len(b) < head {
		return frame{}, 0, nil
	}
	f = frame{last: b[0]&fin != 0, deflated: b[0]&wsDeflated != 0, opcode: b[0] & codes}
	n, at := uint64(b[1]&^masked), head
	switch {
	case b[0]&reserved != 0, b[1]&masked == 0: // no other extension is agreed on, and clients mask
		return frame{}, 0, errMalformed
	case f.deflated && (!deflates || f.opcode&control != 0 || f.opcode == opcodeContinuation): // it is said of whole messages
		return frame{}, 0, errMalformed
	case f.opcode&control != 0 && (n > maxControl || !f.last):
		return frame{}, 0, errMalformed
	case n == two:
		if at += 2; len(b) < at {
			return frame{}, 0, nil
		}
		n = uint64(binary.BigEndian.Uint16(b[head:]))
	case n == eight:
		if at += 8; len(b) < at {
			return frame{}, 0, nil
		}
		n = binary.BigEndian.Uint64(b[head:])
	}
	if n > MaxFrame {
		return frame{}, 0, errTooLarge
	}
	if at += mask; len(b) < at+int(n) {
		return frame{}, 0, nil
	}
	f.body = b[at : at+int(n)]
	for i := range f.body {
		f.body[i] ^= b[at-mask+i%mask]
	}
	return f, at + int(n), nil
}

// message puts the frames of a message together.
type message struct {
	open     bool // more of it is to come
	deflated bool
	kind     byte
	text     []byte
}

// add takes a frame that is no control frame. It reports true once the message is whole.
func (m *message) add(f frame) (whole bool, err error) {
	switch {
	case m.open != (f.opcode == opcodeContinuation):
		return false, errMalformed
	case !m.open:
		m.kind, m.deflated, m.text = f.opcode, f.deflated, f.body
		if !f.last { // what follows is read over it
			m.text = append([]byte(nil), f.body...)
		}
	case len(m.text)+len(f.body) > MaxFrame:
		return false, errTooLarge
	default:
		m.text = append(m.text, f.body...)
	}
	m.open = !f.last
	return f.last, nil
}

// read takes frames until the socket ends. It waits for the first byte of one with next to nothing on
// its stack, which many idle sockets keep; whatever a frame needs lives on the stack of another
// goroutine, that goes with it.
func (s *session) read() {
	for {
		if n, err := s.net.Read(s.ahead[:]); n == 0 || err != nil {
			return
		}
		done := make(chan bool)
		go func() { done <- s.take() }()
		if !<-done {
			return
		}
	}
}

// take reads what the client sends now and does what it asks, one operation after the other, until
// nothing is left of it. It reports false when the socket has ended.
func (s *session) take() bool {
	buf := s.g.upgrades.frames.get()
	defer s.g.upgrades.frames.put(buf)
	b := append(*buf, s.ahead[0])
	var m message
	for at := 0; ; {
		f, size, err := splitFrame(b[at:], s.deflates)
		switch {
		case err != nil:
			s.close(&closed{CloseProtocol, err.Error()})
			return false
		case size > 0:
			at += size
			s.heard.Store(int64(s.g.uptime()))
			if s.closing.Load() || !s.frame(f, &m) {
				return false
			}
			if at == len(b) && !m.open {
				return true
			}
			continue
		}
		b = append(b[:0], b[at:]...)
		at = 0
		if len(b) == cap(b) {
			b = append(make([]byte, 0, MaxFrame+maxHeader), b...) // as much as one may need
		}
		n, err := s.net.Read(b[len(b):cap(b)])
		if n == 0 && err != nil {
			return false
		}
		b = b[:len(b)+n]
	}
}

// frame takes one frame. It reports false when the socket has ended.
func (s *session) frame(f frame, m *message) bool {
	switch f.opcode {
	case websocket.PingMessage:
		s.control(wsPong, f.body)
		return true
	case websocket.PongMessage:
		return true
	case websocket.CloseMessage:
		if !isCloseBody(f.body) {
			s.close(&closed{CloseProtocol, errMalformed.Error()})
			return false
		}
		s.control(wsClose, f.body[:min(len(f.body), 2)]) // the same code
		return false
	case opcodeContinuation, websocket.TextMessage, websocket.BinaryMessage:
		whole, err := m.add(f)
		text := m.text
		if whole && m.deflated {
			text, err = s.g.upgrades.inflaters.message(text)
		}
		switch {
		case err != nil:
			s.close(&closed{CloseProtocol, err.Error()})
			return false
		case !whole:
			return true
		case m.kind != websocket.TextMessage:
			s.close(&closed{CloseProtocol, "frames must be text"})
			return false
		}
		return s.serve(text)
	}
	s.close(&closed{CloseProtocol, errMalformed.Error()})
	return false
}

// isCloseBody reports whether a client may send b as the body of a close frame (RFC 6455 §5.5.1 and §7.4).
func isCloseBody(b []byte) bool {
	const codeSize = 2
	if len(b) < codeSize {
		return len(b) == 0
	}
	switch code := int(binary.BigEndian.Uint16(b)); code {
	case 1004, websocket.CloseNoStatusReceived, websocket.CloseAbnormalClosure, websocket.CloseTLSHandshake: // they are never sent
		return false
	default:
		const standard, endOfStandard, ours, end = 1000, 1015, 3000, 5000
		return (standard <= code && code < endOfStandard || ours <= code && code < end) && utf8.Valid(b[codeSize:])
	}
}

// frames are what is read into. Only sockets from which something comes have one.
type frames struct{ pool sync.Pool }

func (p *frames) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, readSize))
}

func (p *frames) put(b *[]byte) { p.pool.Put(b) }
