// Package sse writes server-sent events, as the HTML standard has them.
package sse

import (
	"bytes"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Append appends one server-sent event to b. Each line of data gets its own field, and line ends are removed from id and name, so that
// their content cannot forge a field or an event. An empty id or name is omitted. The id comes last, since many clients store it as soon
// as they read it: if the connection is cut, they must not resume after an event of which they have only the id.
func Append(b []byte, id, name string, data []byte) []byte {
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, oneLine(name)...)
		b = append(b, '\n')
	}
	for line := range Lines(data) {
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
	}
	if id != "" {
		b = append(b, "id: "...)
		b = append(b, oneLine(id)...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}

// Lines yields the lines of data, which end with LF, CR or both; at least one.
func Lines(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			i := bytes.IndexAny(data, "\r\n")
			if i < 0 {
				yield(data)
				return
			}
			line := data[:i]
			if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
				i++
			}
			data = data[i+1:]
			if !yield(line) {
				return
			}
		}
	}
}

// AppendRetry appends the field that sets how long the client waits before it reconnects.
func AppendRetry(b []byte, d time.Duration) []byte {
	b = append(b, "retry: "...)
	b = strconv.AppendInt(b, d.Milliseconds(), 10)
	return append(b, '\n', '\n')
}

// Comment is sent on an idle stream, so that no proxy takes it for dead.
const Comment = ": still here\n\n"

func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n\x00") {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == 0 {
			return -1
		}
		return r
	}, s)
}
