package tools

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// FuzzNotText compares what is counted and reported of bytes with what is shown of them.
func FuzzNotText(f *testing.F) {
	f.Add([]byte("h\xc3\xa9llo"), 2)
	f.Add([]byte("d\xe9j\xe0 vu"), 3)
	f.Add([]byte("\xff\xfeh\x00i\x00"), 1)
	f.Add([]byte("BZh91AY&SY\xff\x01"), 4)
	f.Add([]byte("\xef\xbf\xbd"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		n := schemas.InvalidBytes(data)
		if kept := bytes.ToValidUTF8(data, nil); int64(len(data)-len(kept)) != n {
			t.Fatalf("%q: %d bytes are counted, %d were replaced", data, n, len(data)-len(kept))
		}
		if utf8.Valid(data) != (n == 0) || !utf8.ValidString(valid(data)) {
			t.Fatalf("%q: %d bytes are counted, shown is %q", data, n, valid(data))
		}
		head := data[:max(cut, 0)%(len(data)+1)]
		if more := schemas.InvalidBytes(head[:schemas.WholeText(head)]); more > n {
			t.Fatalf("%q: %d bytes are counted, %d in its beginning", data, n, more)
		}
		if looksBinary(data) && n == 0 && !hasNUL(data) {
			t.Fatalf("%q is text, and taken for binary", data)
		}
		if mediaType(data) == "" {
			t.Fatalf("%q has no media type", data)
		}
	})
}
