// Package capture stores the output of commands: the head and the tail for a result, and all of it in a file of the workspace.
package capture

import (
	"fmt"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// Excerpt stores the first and the last bytes of a stream, together at most limit bytes. Not safe for concurrent use.
type Excerpt struct {
	limit int
	head  []byte
	tail  []byte // at most twice its final size; trimmed now and then
	total int64
}

// NewExcerpt returns an excerpt that stores at most limit bytes.
func NewExcerpt(limit int) *Excerpt { return &Excerpt{limit: limit} }

// Add appends the next bytes of the stream. It copies them.
func (e *Excerpt) Add(p []byte) {
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

// Total returns how many bytes were added so far.
func (e *Excerpt) Total() int64 { return e.total }

// Limit returns how many bytes are stored at most.
func (e *Excerpt) Limit() int64 { return int64(e.limit) }

// Truncated reports whether bytes were dropped.
func (e *Excerpt) Truncated() bool { return e.total > int64(e.limit) }

// Bytes returns a copy of the stream, or of its head and tail with a line between them that says how
// many bytes are missing. No character is cut in two.
func (e *Excerpt) Bytes() []byte {
	if !e.Truncated() {
		return append(append(make([]byte, 0, e.total), e.head...), e.tail...)
	}
	head, tail := e.head, e.tail
	if most := e.limit - e.limit/2; len(tail) > most {
		tail = tail[len(tail)-most:]
	}
	head, tail = head[:schemas.WholeText(head)], wholeStart(tail)
	out := make([]byte, 0, len(head)+len(tail)+40)
	out = append(out, head...)
	out = fmt.Appendf(out, "\n[%d bytes dropped]\n", e.total-int64(len(head)+len(tail)))
	return append(out, tail...)
}

// wholeStart drops the remainder of a character at the start of p. Bytes that are no text stay.
func wholeStart(p []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(p); i++ {
		if utf8.RuneStart(p[i]) {
			return p[i:]
		}
	}
	if len(p) < utf8.UTFMax { // only the rest of one character
		return nil
	}
	return p
}
