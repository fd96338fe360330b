// Package sse reads server-sent events, as the HTML standard has them (html.spec.whatwg.org, "Server-sent events"), within bounds.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// The bounds of a stream.
const (
	MaxEvent  = 8 << 20  // bytes of one event
	MaxStream = 64 << 20 // bytes of all
)

// Errors of a stream that exceeds a bound.
var (
	ErrEvent  = errors.New("an event is larger than 8 MiB")
	ErrStream = errors.New("the stream is larger than 64 MiB")
)

// Event is one event with data.
type Event struct {
	Name string // "": the stream does not say
	Data []byte // until the next call of Next
}

// Reader reads the events of a stream. It must not be used from several goroutines at once.
type Reader struct {
	r      *bufio.Reader
	event  int // bytes of one event at most
	left   int // bytes of all
	line   []byte
	data   []byte
	afterC bool // the last byte was a CR: an LF behind it belongs to it
	begun  bool
}

// NewReader returns a reader of the events in r.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReader(r), event: MaxEvent, left: MaxStream}
}

// Next returns the next event that has data. At the end of the stream the error is io.EOF; an event that is not ended by an empty line is
// then dropped. If a bound is exceeded it is ErrEvent or ErrStream, otherwise the stream's error. It blocks while r does.
func (r *Reader) Next() (Event, error) {
	var name string
	some := false
	r.data = r.data[:0]
	for {
		line, err := r.next()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if some {
				return Event{name, bytes.TrimSuffix(r.data, []byte("\n"))}, nil
			}
			name, r.data = "", r.data[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if len(r.data)+len(value) >= r.event {
				return Event{}, ErrEvent
			}
			r.data, some = append(append(r.data, value...), '\n'), some || len(value) > 0
		}
	}
}

// next returns the next line without its end, which is LF, CR or both. After a CR it returns at once, without waiting for a possible LF.
func (r *Reader) next() ([]byte, error) {
	r.line = r.line[:0]
	for {
		b, err := r.r.ReadByte()
		if err != nil {
			return nil, err
		}
		if r.left--; r.left < 0 {
			return nil, ErrStream
		}
		after := r.afterC
		r.afterC = b == '\r'
		switch {
		case b == '\n' && after:
			continue
		case b == '\n' || b == '\r':
			if !r.begun {
				r.begun, r.line = true, bytes.TrimPrefix(r.line, []byte("\uFEFF"))
			}
			return r.line, nil
		case len(r.line) >= r.event:
			return nil, ErrEvent
		}
		r.line = append(r.line, b)
	}
}
