package schemas

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sandjet/sandjet/internal/proptest"
)

func TestWholeText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "a": 1, "aä": 3, "a\xc3": 1, "a\xe2\x82": 1, "a€": 4, "\xf0\x9f\x98": 0, "😀": 4,
		"a\xff": 2, "a\x80\x80\x80\x80": 5, "\xe2\x82": 0,
	} {
		if got := WholeText([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestTextsFitAsJSON: a text is measured and cut by what it takes as JSON, where one byte may be six.
func TestTextsFitAsJSON(t *testing.T) {
	t.Parallel()
	runes := []rune{0, 1, '\b', '\f', '\n', '\r', '\t', 0x1f, ' ', '"', '\\', '/', '<', '&', 0x7f, 'a', 'ü', 0x2027, 0x2028, 0x2029, 0xFFFD, '😀'}
	proptest.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOfN(rapid.SampledFrom(runes), 0, 100).Draw(t, "text"))
		limit := rapid.IntRange(0, 200).Draw(t, "limit")
		size := func(s string) int {
			b, err := EncodeJSON(s)
			if err != nil {
				t.Fatal(err)
			}
			return len(b) - len(`""`)
		}
		if got := JSONSize(s); got != size(s) {
			t.Fatalf("%q: %d bytes, want %d", s, got, size(s))
		}
		head, tail := HeadJSON(s, limit), TailJSON(s, limit)
		if size(head) > limit || size(tail) > limit || !strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) {
			t.Fatalf("%q to %d bytes: %q, %q", s, limit, head, tail)
		}
		if fits := size(s) <= limit; fits != (head == s) || fits != (tail == s) {
			t.Fatalf("%q to %d bytes: %q, %q", s, limit, head, tail)
		}
		cut := CutText(s, limit+10, 2*limit+10)
		whole := len(s) <= limit+10 && size(s) <= 2*limit+10
		if len(cut) > limit+10 || size(cut) > 2*limit+10 || (cut == s) != whole && !strings.HasSuffix(s, "…") || !whole && !strings.HasSuffix(cut, "…") {
			t.Fatalf("%q cut to %q", s, cut)
		}
	})
	if got := CutText("a\xff", 10, 10); !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}
