package tools

import (
	"strings"
	"unicode/utf8"
)

// byteRange is a set of consecutive byte values.
type byteRange struct{ lo, hi byte }

// bytes writes a set of characters as alternatives of byte sequences, for an engine that only knows bytes.
func (w writer) bytes(ranges []rune) {
	var single []byteRange // sequences of one byte, which share a bracket expression
	var longer [][]byteRange
	for i := 0; i+1 < len(ranges); i += 2 {
		for _, seq := range sequences(ranges[i], ranges[i+1]) {
			if len(seq) == 1 {
				single = append(single, seq[0])
			} else {
				longer = append(longer, seq)
			}
		}
	}
	if len(longer) == 0 {
		w.text(bracket(single))
		return
	}
	w.text("(")
	if len(single) > 0 {
		w.text(bracket(single) + "|")
	}
	for i, seq := range longer {
		if i > 0 {
			w.text("|")
		}
		for _, r := range seq {
			w.text(bracket([]byteRange{r}))
		}
	}
	w.text(")")
}

// sequences splits the range lo-hi into sequences of independent byte ranges in UTF-8.
func sequences(lo, hi rune) [][]byteRange {
	// Split where the number of bytes changes.
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			return append(sequences(lo, last), sequences(last+1, hi)...)
		}
	}
	if hi <= 0x7F {
		return [][]byteRange{{{byte(lo), byte(hi)}}}
	}
	// Split where the last bytes do not cover all their values.
	for bits := 6; bits <= 18; bits += 6 {
		low := rune(1)<<bits - 1
		if lo&^low == hi&^low {
			continue
		}
		if lo&low != 0 {
			return append(sequences(lo, lo|low), sequences(lo|low+1, hi)...)
		}
		if hi&low != low {
			return append(sequences(lo, hi&^low-1), sequences(hi&^low, hi)...)
		}
	}
	a, b := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	seq := make([]byteRange, len(a))
	for i := range a {
		seq[i] = byteRange{a[i], b[i]}
	}
	return [][]byteRange{seq}
}

// bracket writes a set of bytes as a POSIX bracket expression. It puts ] ^ - [ and \ where they are ordinary characters.
func bracket(set []byteRange) string {
	var has [256]bool
	count := 0
	for _, r := range set {
		for c := int(r.lo); c <= int(r.hi); c++ {
			if !has[c] {
				has[c] = true
				count++
			}
		}
	}
	if count == 1 && has['^'] {
		return `\^`
	}
	var b strings.Builder
	b.WriteByte('[')
	take := func(c byte) {
		if has[c] {
			b.WriteByte(c)
			has[c] = false
		}
	}
	take(']')
	if count == 2 && has['^'] && has['-'] {
		take('-')
	}
	hyphen, caret, open, back := has['-'], has['^'], has['['], has['\\']
	has['-'], has['^'], has['['], has['\\'] = false, false, false, false
	for c := 0; c < len(has); c++ {
		if !has[c] {
			continue
		}
		end := c
		for end+1 < len(has) && has[end+1] {
			end++
		}
		b.WriteByte(byte(c))
		if end > c {
			if end > c+1 {
				b.WriteByte('-')
			}
			b.WriteByte(byte(end))
		}
		c = end
	}
	for _, s := range []struct {
		has bool
		c   byte
	}{{open, '['}, {back, '\\'}, {caret, '^'}, {hyphen, '-'}} {
		if s.has {
			b.WriteByte(s.c)
		}
	}
	b.WriteByte(']')
	return b.String()
}
