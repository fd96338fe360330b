package main

import (
	"bytes"
	"strings"
	"sync"
)

// tailBuffer is a writer that retains the last tailBytes. It is safe for concurrent use.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 8 << 10

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if over := len(b.buf) - tailBytes; over > 0 {
		rest := b.buf[over:]
		if i := bytes.IndexByte(rest, '\n'); i >= 0 { // drop an incomplete line, which could look like another
			rest = rest[i+1:]
		}
		b.buf = append(b.buf[:0], rest...)
	}
	return len(p), nil
}

// last returns the retained lines that are no log lines, or everything if there are none.
func (b *tailBuffer) last() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var own []string
	for line := range bytes.Lines(b.buf) {
		if s := strings.TrimSpace(string(line)); s != "" && !strings.HasPrefix(s, "{") && !strings.HasPrefix(s, "time=") {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return strings.TrimSpace(string(b.buf))
	}
	return strings.Join(own, "\n")
}
