package sse

import "io"

// Bounded returns a reader with other bounds.
func Bounded(r io.Reader, event, stream int) *Reader {
	s := NewReader(r)
	s.event, s.left = event, stream
	return s
}
