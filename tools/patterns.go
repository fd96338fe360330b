package tools

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// pattern is a regular expression for three engines. All three match the same lines, because each expression is written from the same
// parsed form, which does not depend on an engine's notion of a character: no match contains a line break, a NUL, or bytes that are not
// UTF-8.
type pattern struct {
	ere     string         // for grep -E in the C locale, where characters are byte sequences
	rust    string         // for ripgrep
	re      *regexp.Regexp // for this process, over whole lines
	literal []byte         // occurs in every match; empty if none is known
	exact   bool           // the pattern is the literal alone

	window int // bytes of a file in memory at a time
	stride int // bytes searched between two checks of the context
}

const (
	// maxExpression limits the size of the expression for grep, in bytes.
	maxExpression = 64 << 10
	// maxOwnExpression limits it for the other two, in which the same class is longer.
	maxOwnExpression = 8 * maxExpression
	// maxFolded limits the number of non-ASCII ranges in a pattern that ignores case, because parsing each takes milliseconds.
	maxFolded = 64
	// noCharacter replaces bytes that are not UTF-8. No pattern matches it.
	noCharacter = unicode.MaxRune
)

func invalidPattern(format string, args ...any) error {
	return schemas.Errorf(schemas.Invalid, "Invalid pattern: "+format, args...)
}

// newPattern parses s, in Go's syntax. It takes a fraction of a second for any input. Code: invalid.
func newPattern(s string, fold bool) (pattern, error) {
	flags := syntax.Perl
	if fold {
		flags |= syntax.FoldCase
	}
	if (fold || strings.Contains(s, "(?")) && wideRanges(s) > maxFolded {
		return pattern{}, invalidPattern("it ignores case and has more than %d ranges of characters beyond ASCII: use fewer", maxFolded)
	}
	tree, err := syntax.Parse(s, flags)
	if err != nil {
		return pattern{}, invalidPattern("%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if !possible(tree) {
		return pattern{}, invalidPattern("it cannot match within one line")
	}
	size := programSize(tree)
	if size > schemas.MaxPatternSteps {
		return pattern{}, invalidPattern("it is too large: %d steps after expanding its repetitions, the limit is %d; use smaller counts",
			size, schemas.MaxPatternSteps)
	}
	ere := expression(tree, syntaxERE)
	if len(ere) > maxExpression {
		return pattern{}, invalidPattern("it is too large; use smaller character classes or fewer alternatives")
	}
	rust := "(" // invalid for ripgrep, so that the script uses grep
	if !ripgrepErrs(tree) {
		rust = expression(tree, syntaxRust)
	}
	own := expression(tree, syntaxGo)
	if max(len(rust), len(own)) > maxOwnExpression {
		return pattern{}, invalidPattern("it is too large; use smaller character classes or fewer alternatives")
	}
	re, err := regexp.Compile("(?m)" + own)
	if err != nil {
		return pattern{}, invalidPattern("it is too large after expansion")
	}
	literal, exact := required(tree)
	return pattern{ere: ere, rust: rust, re: re, literal: []byte(literal), exact: exact, window: window, stride: stride(size)}, nil
}

// wideRanges returns an upper bound of the number of ranges that end beyond ASCII.
func wideRanges(s string) (n int) {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '-' && (s[i+1] == '\\' || s[i+1] >= utf8.RuneSelf) {
			n++
		}
	}
	return n
}

// programSize returns an upper bound of the number of instructions of a compiled expression, each of which Go's engine may execute for each
// character. Above [schemas.MaxPatternSteps] it need not be exact.
func programSize(re *syntax.Regexp) int {
	n := 1
	switch re.Op { //nolint:exhaustive // the others are one instruction
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpConcat, syntax.OpRepeat:
		n = 0
	case syntax.OpAlternate:
		n = len(re.Sub)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpCapture:
		n = 2
	}
	for _, sub := range re.Sub {
		if n += programSize(sub); n > schemas.MaxPatternSteps {
			return n
		}
	}
	switch { // each optional copy of a repetition is a choice
	case re.Op != syntax.OpRepeat:
	case re.Max < 0:
		n = n*max(re.Min, 1) + 2
	default: // at most 1000 times 10,000
		n = n*re.Max + re.Max - re.Min
	}
	return max(n, 1)
}

// newLiteral returns the pattern of a literal text.
func newLiteral(s string, fold bool) (pattern, error) { return newPattern(regexp.QuoteMeta(s), fold) }

// possible reports whether every part of the tree that must match can match within one line.
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

// ripgrepErrs reports whether the pattern has anchors for which ripgrep, which searches many lines at once, misses lines: the end of a
// line before its beginning, as in $^, and repeated anchors.
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

// allowed returns a class without the characters that no match contains.
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

// subtract returns the ranges of lo-hi without the given characters, which must be in order; 0xD800 stands for all surrogates.
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

// required returns a text that occurs in every match, and whether it is the whole pattern.
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

// engine is an engine of regular expressions.
type engine int

const (
	syntaxGo engine = iota
	syntaxRust
	syntaxERE
)

// expression writes a parsed expression for an engine. Beyond the limits of newPattern it is incomplete.
func expression(tree *syntax.Regexp, as engine) string {
	var b strings.Builder
	writer{&b, as}.write(tree)
	return b.String()
}

// writer writes a parsed expression for an engine. Greediness and captures, which only determine which match is found, are omitted: a line
// matches or not.
type writer struct {
	out *strings.Builder
	as  engine
}

func (w writer) text(s string) { w.out.WriteString(s) }

// full reports whether the expression is too large already, so that the rest is not needed.
func (w writer) full() bool {
	return w.out.Len() > maxOwnExpression || w.as == syntaxERE && w.out.Len() > maxExpression
}

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
	if w.full() {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune { // each is short
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
	if w.as == syntaxRust { // ripgrep's own boundary is that of Unicode
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
