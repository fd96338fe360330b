package sse_test

import (
	"strings"
	"testing"

	"github.com/sandjet/sandjet/gateway/sse"
)

// TestLinesCannotBeForged also holds the order: the id comes last, so that who notes it has the event.
func TestLinesCannotBeForged(t *testing.T) {
	got := string(sse.Append(nil, "1\nid: 2", "a\r\nevent: b", []byte("x\r\ny\rz\n\nevent: evil\n")))
	want := "event: aevent: b\ndata: x\ndata: y\ndata: z\ndata: \ndata: event: evil\ndata: \nid: 1id: 2\n\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// FuzzAppend checks that whatever is put in comes out as one event whose lines all begin with a field
// of ours, and that the data comes back but for the kind of its line ends.
func FuzzAppend(f *testing.F) {
	f.Add("1", "call.output", []byte(`{"a":1}`))
	f.Add("\r", "\n\n", []byte("\r\n\r\r\n\n"))
	f.Add("", "", []byte("data: x\n\nid: 1"))
	f.Fuzz(func(t *testing.T, id, name string, data []byte) {
		out := string(sse.Append(nil, id, name, data))
		body, ok := strings.CutSuffix(out, "\n\n")
		if !ok || strings.Contains(body, "\n\n") || strings.Contains(out, "\r") {
			t.Fatalf("not one event: %q", out)
		}
		var got []string
		for line := range strings.SplitSeq(body, "\n") {
			if d, ok := strings.CutPrefix(line, "data: "); ok {
				got = append(got, d)
			} else if !strings.HasPrefix(line, "id: ") && !strings.HasPrefix(line, "event: ") {
				t.Fatalf("a line of its own: %q", line)
			}
		}
		want := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
		if joined := strings.Join(got, "\n"); joined != want {
			t.Fatalf("data %q came out as %q", want, joined)
		}
	})
}
