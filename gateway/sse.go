package gateway

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// appendSSE writes one server-sent event to b. Each line of data becomes a line of its own, and
// line ends are taken out of id and name, so nothing inside can forge a field or an event.
func appendSSE(b []byte, id, name string, data []byte) []byte {
	if id != "" {
		b = append(b, "id: "...)
		b = append(b, oneLine(id)...)
		b = append(b, '\n')
	}
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, oneLine(name)...)
		b = append(b, '\n')
	}
	for more := true; more; {
		line := data
		if i := bytes.IndexAny(data, "\r\n"); i < 0 {
			more = false
		} else {
			line = data[:i]
			if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
				i++
			}
			data = data[i+1:]
		}
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
	}
	return append(b, '\n')
}

// appendSSERetry tells the client how long to wait before it comes back.
func appendSSERetry(b []byte, d time.Duration) []byte {
	b = append(b, "retry: "...)
	b = strconv.AppendInt(b, d.Milliseconds(), 10)
	return append(b, '\n', '\n')
}

// sseComment is what passes over an idle stream so that no proxy takes it for dead.
const sseComment = ": still here\n\n"

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
