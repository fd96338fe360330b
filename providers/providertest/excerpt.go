package providertest

import (
	"fmt"
	"unicode/utf8"
)

// excerpt keeps the first and the last bytes of a stream, together at most limit.
type excerpt struct {
	limit int
	head  []byte
	tail  []byte // at most twice what is kept, cut now and then
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
	e.tail = append(e.tail, p...)
	if most := e.limit - e.limit/2; len(e.tail) > 2*most {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-most:]...)
	}
}

func (e *excerpt) truncated() bool { return e.total > int64(e.limit) }

// bytes returns the stream, or its head and tail with a line between them that says how many bytes
// are missing.
func (e *excerpt) bytes() []byte {
	if !e.truncated() {
		return append(append([]byte{}, e.head...), e.tail...)
	}
	tail := e.tail
	if most := e.limit - e.limit/2; len(tail) > most {
		tail = tail[len(tail)-most:]
	}
	head := wholeEnd(e.head)
	tail = wholeStart(tail)
	dropped := e.total - int64(len(head)+len(tail))
	out := fmt.Appendf(append([]byte{}, head...), "\n[%d bytes dropped]\n", dropped)
	return append(out, tail...)
}

// wholeEnd cuts a character off that is not complete at the end of p.
func wholeEnd(p []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if c := p[len(p)-back]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-back:]) {
				return p[:len(p)-back]
			}
			break
		}
	}
	return p
}

// wholeStart cuts the rest of a character off at the start of p.
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
