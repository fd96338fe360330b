package live

import (
	"bytes"
	"io"
	"net/http/httputil"
	"strings"
	"testing"
)

func TestFramed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		chunked bool
		last    bool
		want    string
	}{
		"a chunk":                 {"hello", true, false, "5\r\nhello\r\n"},
		"of two digits":           {strings.Repeat("x", 26), true, false, "1a\r\n" + strings.Repeat("x", 26) + "\r\n"},
		"the last":                {"bye", true, true, "3\r\nbye\r\n0\r\n\r\n"},
		"an end without text":     {"", true, true, "0\r\n\r\n"},
		"nothing":                 {"", true, false, ""},
		"HTTP/1.0":                {"hello", false, false, "hello"},
		"HTTP/1.0, the last":      {"bye", false, true, "bye"},
		"HTTP/1.0, only the end":  {"", false, true, ""},
		"a chunk that ends lines": {"\r\n0\r\n\r\n", true, false, "7\r\n\r\n0\r\n\r\n\r\n"},
	} {
		e := eventConn{chunked: c.chunked}
		if got := string(e.framed(append(make([]byte, chunkRoom), c.text...), c.last)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestChunksAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	e := eventConn{chunked: true}
	var wire, want bytes.Buffer
	const most = 100_000
	for n := 1; n < most; n = n*3 + 1 {
		text := bytes.Repeat([]byte{'a' + byte(n%26)}, n)
		want.Write(text)
		wire.Write(e.framed(append(make([]byte, chunkRoom), text...), false))
	}
	wire.Write(e.framed(make([]byte, chunkRoom), true))
	got, err := io.ReadAll(httputil.NewChunkedReader(&wire))
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, want.Len())
	}
}
