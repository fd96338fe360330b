package wsconn

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// Opcode says what a message is.
type Opcode byte

// The kinds of messages.
const (
	Text   Opcode = 1
	Binary Opcode = 2
)

// The other opcodes of frames.
const (
	opContinuation Opcode = 0
	opClose        Opcode = 8
	opPing         Opcode = 9
	opPong         Opcode = 10
)

// Bits of a frame's first two bytes.
const (
	bitLast     = 0x80
	bitDeflated = 0x40
	bitsUnknown = 0x30 // of extensions that are never agreed on
	bitsOpcode  = 0x0f
	bitControl  = 0x08
	bitMasked   = 0x80
)

const (
	maxControl    = 125     // bytes of a control frame's body
	maxHeader     = 14      // bytes of a client's header
	readSize      = 4 << 10 // bytes that one read takes; a larger frame gets a larger buffer
	lengthInTwo   = 126
	lengthInEight = 127
)

// frame is one frame from a client, its body unmasked.
type frame struct {
	last     bool // of its message
	deflated bool // it begins a compressed message
	opcode   Opcode
	body     []byte
}

// splitFrame takes the first frame off what was read, and unmasks its body in place. Size is how many bytes it took;
// 0: it is not all there. A wrong one is refused as soon as enough bytes have come to see it. At most is how many bytes a body may have; a
// message may be compressed only where that was agreed.
func splitFrame(b []byte, most int, deflates bool) (f frame, size int, err error) {
	const head, mask = 2, 4
	if len(b) < head {
		return frame{}, 0, nil
	}
	f = frame{last: b[0]&bitLast != 0, deflated: b[0]&bitDeflated != 0, opcode: Opcode(b[0] & bitsOpcode)}
	n, at := uint64(b[1]&^bitMasked), head
	if err := f.check(b, n, deflates); err != nil {
		return frame{}, 0, err
	}
	switch n {
	case lengthInTwo:
		if at += 2; len(b) < at {
			return frame{}, 0, nil
		}
		n = uint64(binary.BigEndian.Uint16(b[head:]))
	case lengthInEight:
		if at += 8; len(b) < at {
			return frame{}, 0, nil
		}
		n = binary.BigEndian.Uint64(b[head:])
	}
	if n > uint64(most) {
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

// check judges what the first two bytes of a frame say.
func (f frame) check(b []byte, length uint64, deflates bool) error {
	control := f.opcode&bitControl != 0
	switch {
	case b[0]&bitsUnknown != 0:
		return violation("a frame has reserved bits set")
	case b[1]&bitMasked == 0:
		return violation("a frame of the client is not masked")
	case f.opcode > opPong, !control && f.opcode > Binary:
		return violation("a frame has the reserved opcode %d", f.opcode)
	case f.deflated && !deflates:
		return violation("a frame is compressed, and compression was not agreed on")
	case f.deflated && (control || f.opcode == opContinuation):
		return violation("a frame is compressed that does not begin a message")
	case control && !f.last:
		return violation("a control frame is fragmented")
	case control && length > maxControl:
		return violation("a control frame has more than %d bytes", maxControl)
	}
	return nil
}

// appendHeader adds the header of a server's frame with n bytes.
func appendHeader(b []byte, first byte, n int) []byte {
	switch {
	case n <= maxControl:
		return append(b, first, byte(n))
	case n <= 1<<16-1:
		return binary.BigEndian.AppendUint16(append(b, first, lengthInTwo), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, first, lengthInEight), uint64(n))
}

// message puts the frames of a message together.
type message struct {
	open     bool // more of it is to come
	deflated bool
	kind     Opcode
	text     []byte
	checked  int // bytes of a text message that are valid UTF-8
}

// add takes a frame that is no control frame. It reports true once the message is whole. Text is checked as it comes, so that
// a client learns of a mistake as soon as it is made.
func (m *message) add(f frame, most int) (whole bool, err error) {
	switch {
	case m.open && f.opcode != opContinuation:
		return false, violation("a message begins before the one before it has ended")
	case !m.open && f.opcode == opContinuation:
		return false, violation("a frame continues no message")
	case !m.open:
		*m = message{kind: f.opcode, deflated: f.deflated, text: f.body}
		if !f.last { // what follows is read over it
			m.text = append([]byte(nil), f.body...)
		}
	case len(m.text)+len(f.body) > most:
		return false, errTooLarge
	default:
		m.text = append(m.text, f.body...)
	}
	m.open = !f.last
	if m.kind == Text && !m.deflated {
		rest := m.text[m.checked:]
		valid := validPrefix(rest)
		m.checked += valid
		if incomplete := len(rest) - valid; incomplete > 0 && (f.last || utf8.FullRune(rest[valid:])) {
			return false, errInvalidText
		}
	}
	return f.last, nil
}

// validPrefix is how many bytes of b are whole, valid UTF-8.
func validPrefix(b []byte) int {
	if utf8.Valid(b) {
		return len(b)
	}
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		n += size
	}
	return n
}

// readBuffers are what is read into. Only connections from which something comes have one.
type readBuffers struct{ pool sync.Pool }

func (p *readBuffers) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, readSize))
}

func (p *readBuffers) put(b *[]byte) { p.pool.Put(b) }
