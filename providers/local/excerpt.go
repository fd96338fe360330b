//go:build linux

package local

import (
	"fmt"
	"unicode/utf8"
)

// excerpt keeps the first and the last bytes of a stream, together at most limit, whatever its
// length.
type excerpt struct {
	limit int
	head  []byte
	tail  []byte // at most twice what is kept of it, cut now and then
	total int64
}

func newExcerpt(limit int) *excerpt { return &excerpt{limit: limit} }

func (e *excerpt) add(p []byte) {
	e.total += int64(len(p))
	if room := e.limit/2 - len(e.head); room > 0 {
		n := min(room, len(p))
		e.head = append(e.head, p[:n]...)
		p = p[n:]
	}
	most := e.limit - e.limit/2
	if len(p) >= most {
		e.tail = append(e.tail[:0], p[len(p)-most:]...)
		return
	}
	if len(e.tail)+len(p) > 2*most {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-most:]...)
	}
	e.tail = append(e.tail, p...)
}

func (e *excerpt) truncated() bool { return e.total > int64(e.limit) }

// bytes returns a copy of the stream, or of its head and tail with a line between them that says how
// many bytes are missing. No character is cut in two.
func (e *excerpt) bytes() []byte {
	if !e.truncated() {
		return append(append(make([]byte, 0, e.total), e.head...), e.tail...)
	}
	head, tail := e.head, e.tail
	if most := e.limit - e.limit/2; len(tail) > most {
		tail = tail[len(tail)-most:]
	}
	head, tail = wholeEnd(head), wholeStart(tail)
	out := make([]byte, 0, len(head)+len(tail)+40)
	out = append(out, head...)
	out = fmt.Appendf(out, "\n[%d bytes dropped]\n", e.total-int64(len(head)+len(tail)))
	return append(out, tail...)
}

// wholeEnd leaves out a character that is not complete at the end of p.
func wholeEnd(p []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if at := len(p) - back; utf8.RuneStart(p[at]) {
			if !utf8.FullRune(p[at:]) {
				return p[:at]
			}
			return p
		}
	}
	return p
}

// wholeStart leaves out the rest of a character at the start of p. What is no text stays as it is.
func wholeStart(p []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(p); i++ {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	if len(p) < utf8.UTFMax { // nothing but the rest of one
		return nil
	}
	return p
}
