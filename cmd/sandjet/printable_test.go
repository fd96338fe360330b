package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNothingTrickyReachesATerminal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\x1b]0;title\x07b":           "a\uFFFD]0;title\uFFFDb",
		"a\rb":                         "a\uFFFDb",
		"a\r\n\tb\n":                   "a\n\tb\n",
		"\u202eevil\u2066\u200b\u2028": "\uFFFDevil\uFFFD\uFFFD\uFFFD",
		"\u009b2J":                     "\uFFFD2J",
		"\U000e0041x":                  "\uFFFDx",
		"grün 日本 🙂":                    "grün 日本 🙂",
		"\xff\xfe":                     "\uFFFD\uFFFD",
	} {
		for cut := range len(in) + 1 { // however it is cut into writes
			var out bytes.Buffer
			g := &guarded{to: &out}
			for _, part := range []string{in[:cut], in[cut:]} {
				if n, err := g.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != want {
				t.Errorf("%q cut at %d: %q, want %q", in, cut, out.String(), want)
			}
		}
		if got := printable(strings.ToValidUTF8(strings.ReplaceAll(in, "\r\n", "\n"), "\uFFFD")); got != want && utf8.ValidString(in) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzGuarded: whatever is written, in whatever pieces, nothing tricky comes out.
func FuzzGuarded(f *testing.F) {
	f.Add([]byte("a\x1b[2J\r\n"), 3)
	f.Add([]byte("\xe2\x80\xae"), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		cut = max(0, min(cut, len(text)))
		var out bytes.Buffer
		g := &guarded{to: &out}
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			if _, err := g.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		if !utf8.Valid(out.Bytes()) || strings.ContainsFunc(out.String(), tricky) {
			t.Fatalf("%q came out of %q", out.Bytes(), text)
		}
	})
}
