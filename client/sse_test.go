package client

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func FuzzSSE(f *testing.F) {
	f.Add([]byte("id: a\nevent: b\ndata: c\ndata: d\n\n: x\n\ndata\n\n"))
	f.Add([]byte("data: a\r\ndata: b\r\n\r\nretry: x\n\nid\n\n"))
	f.Add([]byte("\n\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSSE(bytes.NewReader(b))
		total := 0
		for {
			fr, err := s.next()
			if err != nil {
				if !errors.Is(err, errStreamEnded) && !errors.Is(err, errFrame) {
					t.Fatalf("reading from memory failed: %v", err)
				}
				break
			}
			if strings.Contains(fr.id+fr.name, "\n") {
				t.Fatalf("a field has a line end: %+v", fr)
			}
			total += len(fr.data)
		}
		if total > len(b) {
			t.Fatalf("%d bytes of data from %d", total, len(b))
		}
	})
}
