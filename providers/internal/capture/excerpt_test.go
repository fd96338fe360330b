package capture

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("hello"), 3, 2)
	f.Add([]byte("äöüᚱᛖ🚀🚀🚀"), 7, 1)
	f.Fuzz(func(t *testing.T, data []byte, limit, step int) {
		limit, step = 1+limit&0xff, 1+step&0x1f
		e := NewExcerpt(limit)
		for rest := data; len(rest) > 0; {
			n := min(step, len(rest))
			e.Add(rest[:n])
			rest = rest[n:]
		}
		got := e.Bytes()
		if e.Truncated() != (len(data) > limit) || e.Total() != int64(len(data)) {
			t.Fatalf("truncated %v, total %d, of %d bytes at %d", e.Truncated(), e.Total(), len(data), limit)
		}
		if !e.Truncated() && !bytes.Equal(got, data) {
			t.Fatalf("%q became %q", data, got)
		}
		if len(got) > limit+64 {
			t.Fatalf("%d bytes at a limit of %d", len(got), limit)
		}
		if utf8.Valid(data) && !utf8.Valid(got) {
			t.Fatalf("%q is cut to %q", data, got)
		}
	})
}
