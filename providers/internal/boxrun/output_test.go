package boxrun

import (
	"bytes"
	"testing"
)

// FuzzOutput: whatever a command prints and in whatever pieces, no output is lost or taken for a message, and a message of the program in
// the middle is recognized.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("plain\x01text\x01"), []byte("\x01 0123"), 3)
	f.Add([]byte("\x010123"), []byte("after"), 1)
	f.Fuzz(func(t *testing.T, before, after []byte, size int) {
		const mark = "\x010123456789abcdef "
		if bytes.Contains(before, []byte(mark)) {
			return // with the secret, the command can forge messages
		}
		size = max(1, size%64)
		var got bytes.Buffer
		var heard []string
		o := &output{mark: []byte(mark), take: func(p []byte) { got.Write(p) }, say: func(words []string) { heard = append(heard, words[0]) }}
		stream := append(append(append([]byte{}, before...), mark+"end 7 0\n"...), after...)
		for rest := stream; len(rest) > 0; {
			n := min(size, len(rest))
			if _, err := o.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		o.flush()
		if !bytes.Equal(got.Bytes(), before) || len(heard) != 1 || heard[0] != "end" {
			t.Errorf("got %q and heard %q, want %q and end", got.Bytes(), heard, before)
		}
	})
}
