package schemas

import (
	"strings"
	"unicode/utf8"
)

// InvalidBytes counts the bytes of b that are not part of valid UTF-8: what is shown of b has U+FFFD in their place. A character
// that the end of b cuts in two counts with its bytes that are there.
func InvalidBytes(b []byte) (n int64) {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		b = b[size:]
	}
	return n
}

// WholeText returns the length of the longest beginning of b that does not cut a character in two: of b itself, or up to
// three bytes less. Bytes that begin no character are no reason to wait for more.
func WholeText(b []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(b)); back++ {
		c := b[len(b)-back]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-back:]) {
				return len(b) - back
			}
			break
		}
	}
	return len(b)
}

// jsonWidth is how many bytes [EncodeJSON] makes of a character.
func jsonWidth(r rune) int {
	const escaped, short = len(`\u0001`), len(`\n`)
	switch {
	case r == '\n', r == '\r', r == '\t', r == '\b', r == '\f', r == '"', r == '\\':
		return short
	case r < ' ', r == '\u2028', r == '\u2029':
		return escaped
	}
	return utf8.RuneLen(r)
}

// JSONSize is how many bytes a text takes as JSON, without its quotes.
func JSONSize(s string) int {
	size := 0
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		size += jsonWidth(r)
	}
	return size
}

// HeadJSON returns the beginning of s that takes at most limit bytes as JSON, as valid UTF-8.
func HeadJSON(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	size := 0
	for i, r := range s {
		if size += jsonWidth(r); size > limit {
			return s[:i]
		}
	}
	return s
}

// TailJSON returns the end of s that takes at most limit bytes as JSON, as valid UTF-8.
func TailJSON(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	size, from := 0, len(s)
	for from > 0 {
		r, n := utf8.DecodeLastRuneInString(s[:from])
		if size += jsonWidth(r); size > limit {
			break
		}
		from -= n
	}
	return s[from:]
}

// CutText returns s with at most limit bytes, and at most limitJSON as JSON. Where something is left out it ends with "…".
func CutText(s string, limit, limitJSON int) string {
	const cut = "…"
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit && JSONSize(s) <= limitJSON {
		return s
	}
	return HeadJSON(HeadText(s, max(limit-len(cut), 0)), max(limitJSON-len(cut), 0)) + cut
}
