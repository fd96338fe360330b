package schemas

import "unicode/utf8"

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
