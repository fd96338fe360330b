package tools

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// pattern is a regular expression in the words of the three engines. All three find the same lines,
// because each expression is written from the same parsed form, in which nothing is left to an
// engine's own idea of a character: no match contains a line break, a NUL, or bytes that are no UTF-8.
type pattern struct {
	ere     string         // for grep -E in the C locale: characters are sequences of bytes
	rust    string         // for ripgrep
	re      *regexp.Regexp // for this process, over whole files
	literal []byte         // occurs in every match; empty: none is known
	exact   bool           // literal is all there is to match
}

const (
	// maxExpression bounds what a pattern may grow to for grep, in bytes.
	maxExpression = 64 << 10
	// noCharacter stands for bytes that are no UTF-8. No pattern matches it.
	noCharacter = unicode.MaxRune
)

// newPattern parses s, in Go's syntax.
func newPattern(s string, fold bool) (pattern, error) {
	flags := syntax.Perl
	if fold {
		flags |= syntax.FoldCase
	}
	tree, err := syntax.Parse(s, flags)
	if err != nil {
		return pattern{}, schemas.Errorf(schemas.Invalid, "", "Invalid pattern: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if !possible(tree) {
		return pattern{}, schemas.Errorf(schemas.Invalid, "", "Invalid pattern: it cannot match within one line")
	}
	var ere, rust, own strings.Builder
	writer{&ere, syntaxERE}.write(tree)
	if ripgrepErrs(tree) {
		rust.WriteString("(") // refused by it, so the script takes grep
	} else {
		writer{&rust, syntaxRust}.write(tree)
	}
	writer{&own, syntaxGo}.write(tree)
	if ere.Len() > maxExpression {
		return pattern{}, schemas.Errorf(schemas.Invalid, "", "Invalid pattern: it is too large; use smaller character classes or fewer alternatives")
	}
	re, err := regexp.Compile("(?m)" + own.String())
	if err != nil {
		return pattern{}, schemas.Errorf(schemas.Invalid, "", "Invalid pattern: it is too large once written out")
	}
	literal, exact := required(tree)
	return pattern{ere: ere.String(), rust: rust.String(), re: re, literal: []byte(literal), exact: exact}, nil
}

// newLiteral is the pattern of a text that is taken literally.
func newLiteral(s string, fold bool) (pattern, error) { return newPattern(regexp.QuoteMeta(s), fold) }

// possible reports whether each part of the tree that is needed can match within one line.
func possible(re *syntax.Regexp) bool {
	switch re.Op { //nolint:exhaustive // all others can
	case syntax.OpNoMatch:
		return false
	case syntax.OpLiteral:
		return !strings.ContainsAny(string(re.Rune), "\n\x00"+string(noCharacter))
	case syntax.OpCharClass:
		return len(allowed(re.Rune)) > 0
	}
	for _, sub := range re.Sub {
		if !possible(sub) {
			return false
		}
	}
	return true
}

// ripgrepErrs reports anchors in places where ripgrep, which searches many lines at once, does not find all
// lines: the end of a line before its begin, as in $^, and anchors that are repeated.
func ripgrepErrs(re *syntax.Regexp) bool {
	ended, errs := false, false
	var look func(re *syntax.Regexp, repeated bool)
	look = func(re *syntax.Regexp, repeated bool) {
		switch re.Op { //nolint:exhaustive // the others are no anchors
		case syntax.OpEndLine, syntax.OpEndText:
			ended = true
			errs = errs || repeated
		case syntax.OpBeginLine, syntax.OpBeginText:
			errs = errs || ended || repeated
		case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
			repeated = true
		}
		for _, sub := range re.Sub {
			look(sub, repeated)
		}
	}
	look(re, false)
	return errs
}

// allowed takes out of a class what no match contains.
func allowed(ranges []rune) []rune {
	var out []rune
	for i := 0; i+1 < len(ranges); i += 2 {
		for _, r := range subtract(ranges[i], ranges[i+1], 0, '\n', 0xD800, noCharacter) {
			if r[0] <= r[1] {
				out = append(out, r[0], r[1])
			}
		}
	}
	return out
}

// subtract returns lo-hi without single characters, which are in order; 0xD800 stands for all surrogates.
func subtract(lo, hi rune, without ...rune) [][2]rune {
	var out [][2]rune
	for _, w := range without {
		last := w
		if w == 0xD800 {
			last = 0xDFFF
		}
		if last < lo || w > hi {
			continue
		}
		out = append(out, [2]rune{lo, w - 1})
		lo = last + 1
	}
	return append(out, [2]rune{lo, hi})
}

// required finds a text that occurs in every match, and whether it is all there is.
func required(re *syntax.Regexp) (literal string, exact bool) {
	switch re.Op { //nolint:exhaustive // the others require nothing
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune), true
		}
	case syntax.OpCapture:
		return required(re.Sub[0])
	case syntax.OpPlus:
		literal, _ = required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			literal, _ = required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if s, _ := required(sub); len(s) > len(literal) {
				literal = s
			}
		}
	}
	return literal, false
}

// lines calls found for each line of data that matches, with its number from 1 and without its end.
func (p pattern) lines(data []byte, found func(number int, line []byte) bool) {
	if len(p.literal) > 0 && !bytes.Contains(data, p.literal) {
		return
	}
	searched := data
	if !utf8.Valid(data) {
		searched = nil // line by line: bytes that are no characters must not match, and must be shown
	}
	number, at := 1, 0 // at is the begin of line number
	for at < len(data) {
		var from int
		if searched != nil {
			m := p.next(searched[at:])
			if m < 0 {
				return
			}
			from = at + bytes.LastIndexByte(data[at:at+m], '\n') + 1
			if from >= len(data) { // an empty match behind the last line end
				return
			}
			number += bytes.Count(data[at:from], []byte{'\n'})
		} else {
			from = at
		}
		end := len(data)
		if n := bytes.IndexByte(data[from:], '\n'); n >= 0 {
			end = from + n
		}
		line := data[from:end]
		if searched != nil || p.matches(line) {
			if !found(number, line) {
				return
			}
		}
		number, at = number+1, end+1
	}
}

// next returns where the first match begins, or -1. Data begins a line.
func (p pattern) next(data []byte) int {
	if p.exact {
		return bytes.Index(data, p.literal)
	}
	if len(p.literal) == 0 {
		if m := p.re.FindIndex(data); m != nil {
			return m[0]
		}
		return -1
	}
	// Only lines that hold the literal can match.
	for at := 0; ; {
		n := bytes.Index(data[at:], p.literal)
		if n < 0 {
			return -1
		}
		from := at + bytes.LastIndexByte(data[at:at+n], '\n') + 1
		end := len(data)
		if e := bytes.IndexByte(data[at+n:], '\n'); e >= 0 {
			end = at + n + e
		}
		if p.re.Match(data[from:end]) {
			return from
		}
		if end == len(data) {
			return -1
		}
		at = end + 1
	}
}

// matches reports whether one line matches. Bytes that are no UTF-8 match nothing.
func (p pattern) matches(line []byte) bool {
	if !utf8.Valid(line) {
		line = replaceInvalid(line)
	}
	return p.re.Match(line)
}

// replaceInvalid puts a character that no pattern matches in the place of each bad byte.
func replaceInvalid(line []byte) []byte {
	out := make([]byte, 0, len(line)+utf8.UTFMax)
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		if r == utf8.RuneError && n == 1 {
			r = noCharacter
		}
		out = utf8.AppendRune(out, r)
		line = line[n:]
	}
	return out
}

// engine is whose syntax is written.
type engine int

const (
	syntaxGo engine = iota
	syntaxRust
	syntaxERE
)

// writer writes a parsed expression for an engine. What only decides which of several matches is
// found (greediness, captures) is left out: a line matches or not.
type writer struct {
	out *strings.Builder
	as  engine
}

func (w writer) text(s string) { w.out.WriteString(s) }

func (w writer) group(re *syntax.Regexp) {
	w.open()
	w.write(re)
	w.text(")")
}

func (w writer) open() {
	if w.as == syntaxERE {
		w.text("(")
	} else {
		w.text("(?:")
	}
}

func (w writer) write(re *syntax.Regexp) {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			w.literal(r, re.Flags&syntax.FoldCase != 0)
		}
	case syntax.OpCharClass:
		w.class(allowed(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		w.class(allowed([]rune{0, unicode.MaxRune}))
	case syntax.OpBeginLine, syntax.OpBeginText:
		w.text("^")
	case syntax.OpEndLine, syntax.OpEndText:
		w.text("$")
	case syntax.OpWordBoundary:
		w.boundary(`\b`)
	case syntax.OpNoWordBoundary:
		w.boundary(`\B`)
	case syntax.OpCapture:
		w.group(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		w.group(re.Sub[0])
		w.text(map[syntax.Op]string{syntax.OpStar: "*", syntax.OpPlus: "+", syntax.OpQuest: "?"}[re.Op])
	case syntax.OpRepeat:
		w.group(re.Sub[0])
		switch {
		case re.Max < 0:
			fmt.Fprintf(w.out, "{%d,}", re.Min)
		default:
			fmt.Fprintf(w.out, "{%d,%d}", re.Min, re.Max)
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if sub.Op == syntax.OpAlternate {
				w.group(sub)
			} else {
				w.write(sub)
			}
		}
	case syntax.OpAlternate:
		w.open()
		for i, sub := range re.Sub {
			if i > 0 {
				w.text("|")
			}
			w.group(sub)
		}
		w.text(")")
	case syntax.OpEmptyMatch:
		w.open()
		w.text(")")
	case syntax.OpNoMatch: // refused before
	}
}

func (w writer) boundary(s string) {
	if w.as == syntaxRust { // its own would be that of Unicode
		s = "(?-u:" + s + ")"
	}
	w.text(s)
}

func (w writer) literal(r rune, fold bool) {
	set := []rune{r, r}
	if fold {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			set = append(set, f, f)
		}
	}
	if len(set) > 2 {
		w.class(set)
		return
	}
	switch {
	case w.as != syntaxERE:
		w.text(hexRune(r))
	case strings.ContainsRune(`^\[`, r):
		w.text(`\` + string(r))
	case strings.ContainsRune(`.*+?{}()|$`, r):
		w.text("[" + string(r) + "]")
	default:
		w.text(string(r))
	}
}

func hexRune(r rune) string {
	if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
		return string(r)
	}
	return fmt.Sprintf(`\x{%X}`, r)
}

// class writes a set of characters, given as ranges.
func (w writer) class(ranges []rune) {
	if w.as == syntaxERE {
		w.bytes(ranges)
		return
	}
	w.text("[")
	for i := 0; i+1 < len(ranges); i += 2 {
		w.text(hexRune(ranges[i]))
		if ranges[i+1] > ranges[i] {
			w.text("-" + hexRune(ranges[i+1]))
		}
	}
	w.text("]")
}
