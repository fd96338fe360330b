package wsconn

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// Opcode is the type of a frame or a message.
type Opcode byte

// The types of messages.
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
	bitsUnknown = 0x30 // of extensions, none of which is negotiated
	bitsOpcode  = 0x0f
	bitControl  = 0x08
	bitMasked   = 0x80
)

const (
	maxControl    = 125     // maximum size of a control frame's body
	maxHeader     = 14      // maximum size of a client's frame header
	readSize      = 4 << 10 // initial size of the read buffer; larger frames make it grow
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

// splitFrame returns the first frame in b, whose body it unmasks in place, and the frame's size in bytes; 0 if the frame is incomplete. An
// invalid frame is an error as soon as the bytes that show it have arrived. most is the maximum size of a body; deflates reports whether
// compression was negotiated.
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

// check returns an error if the first two bytes of a frame are invalid.
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

// appendHeader appends the header of a server's frame with a body of n bytes.
func appendHeader(b []byte, first byte, n int) []byte {
	switch {
	case n <= maxControl:
		return append(b, first, byte(n))
	case n <= 1<<16-1:
		return binary.BigEndian.AppendUint16(append(b, first, lengthInTwo), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, first, lengthInEight), uint64(n))
}

// message assembles the frames of a message.
type message struct {
	open     bool // it is incomplete
	deflated bool
	kind     Opcode
	text     []byte
	checked  int // number of bytes of a text message that were checked to be UTF-8
}

// add adds a frame that is no control frame, and returns true when the message is complete. Text is checked frame by frame, so that an
// error is reported as early as possible.
func (m *message) add(f frame, most int) (whole bool, err error) {
	switch {
	case m.open && f.opcode != opContinuation:
		return false, violation("a message begins before the one before it has ended")
	case !m.open && f.opcode == opContinuation:
		return false, violation("a frame continues no message")
	case !m.open:
		*m = message{kind: f.opcode, deflated: f.deflated, text: f.body}
		if !f.last { // the next frames overwrite the read buffer
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

// validPrefix returns how many leading bytes of b are complete, valid UTF-8.
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

// readBuffers is a pool of read buffers. Only connections that receive something use one.
type readBuffers struct{ pool sync.Pool }

func (p *readBuffers) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, readSize))
}

func (p *readBuffers) put(b *[]byte) { p.pool.Put(b) }
