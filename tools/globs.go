package tools

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// maxBraces limits the number of alternatives that the braces of a pattern expand to.
const maxBraces = 1000

// newGlobPattern translates a pattern of names. Without a slash it matches names at any depth, with one the whole path below the root of
// the search. "**" as a whole part matches any number of folders; "*", "?" and "[a-z]" match within one name. Braces are expanded, and a
// backslash escapes the next character. Unless dots is set, only a dot in the pattern matches the leading dot of a name. hidden reports
// that the pattern has such a dot.
func newGlobPattern(s string, dots bool) (p pattern, hidden bool, err error) {
	alternatives, err := braces(s)
	if err != nil {
		return pattern{}, false, err
	}
	exprs := make([]string, 0, len(alternatives))
	for _, a := range alternatives {
		expr, dotted, err := globExpression(a, dots)
		if err != nil {
			return pattern{}, false, err
		}
		exprs = append(exprs, expr)
		hidden = hidden || dotted
	}
	p, err = newPattern("^(?:"+strings.Join(exprs, "|")+")$", false)
	return p, hidden, err
}

func invalidGlob(why string) error {
	return schemas.Errorf(schemas.Invalid, "Invalid pattern: %s", why)
}

func globExpression(s string, dots bool) (expr string, hidden bool, err error) {
	anchored := strings.Contains(s, "/")
	var parts []string
	for part := range strings.SplitSeq(s, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			return "", false, schemas.Errorf(schemas.Invalid, "Invalid path: directory traversal not allowed")
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "", false, invalidGlob("it is empty")
	}
	if !anchored {
		parts = append([]string{"**"}, parts...)
	}
	folder := `[^/.][^/]*/`
	if dots {
		folder = `[^/]+/`
	}
	var b strings.Builder
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "**" && !last:
			b.WriteString("(?:" + folder + ")*")
		case part == "**":
			b.WriteString("(?:" + folder + ")*" + strings.TrimSuffix(folder, "/"))
		default:
			e, err := globPart(part, dots)
			if err != nil {
				return "", false, err
			}
			hidden = hidden || part[0] == '.' || strings.HasPrefix(part, `\.`)
			b.WriteString(e)
			if !last {
				b.WriteByte('/')
			}
		}
	}
	return b.String(), hidden, nil
}

// globPart translates the pattern of one name.
func globPart(s string, dots bool) (string, error) {
	var b strings.Builder
	start := !dots // whether a wildcard must not match a dot here
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch r {
		case '*':
			s = strings.TrimLeft(s, "*")
			if !start {
				b.WriteString("[^/]*")
				continue
			}
			// It matches nothing, or text that does not begin with a dot. If it matches nothing, the rest is at the beginning of the name.
			rest, err := globPart(s, dots)
			if err != nil {
				return "", err
			}
			tail, err := globPart(s, true)
			if err != nil {
				return "", err
			}
			if s == "" {
				return b.String() + "[^/.][^/]*", nil
			}
			if s[0] == '.' || strings.HasPrefix(s, `\.`) {
				return b.String() + "[^/.][^/]*" + tail, nil
			}
			return b.String() + "(?:[^/.][^/]*" + tail + "|" + rest + ")", nil
		case '?':
			b.WriteString(not(start))
			s = s[n:]
		case '[':
			class, length, err := globClass(s, start)
			if err != nil {
				return "", err
			}
			b.WriteString(class)
			s = s[length:]
		case '\\':
			if len(s) == 1 {
				return "", invalidGlob("it ends with a backslash")
			}
			r, m := utf8.DecodeRuneInString(s[1:])
			b.WriteString(regexp.QuoteMeta(string(r)))
			s = s[1+m:]
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
			s = s[n:]
		}
		start = false
	}
	return b.String(), nil
}

// not matches any character of a name; at its start no dot.
func not(start bool) string {
	if start {
		return "[^/.]"
	}
	return "[^/]"
}

// globClass translates a set such as [a-z] or [!0-9], and returns its length too.
func globClass(s string, start bool) (expr string, length int, err error) {
	i := 1
	negated := i < len(s) && (s[i] == '!' || s[i] == '^')
	if negated {
		i++
	}
	var set []rune // ranges
	for first := true; ; first = false {
		if i >= len(s) {
			return "", 0, invalidGlob("missing ] after [")
		}
		if s[i] == ']' && !first {
			i++
			break
		}
		lo, next, err := classRune(s, i)
		if err != nil {
			return "", 0, err
		}
		hi := lo
		if next+1 < len(s) && s[next] == '-' && s[next+1] != ']' {
			if hi, next, err = classRune(s, next+1); err != nil {
				return "", 0, err
			}
		}
		if hi < lo {
			return "", 0, invalidGlob("a range in [] is reversed")
		}
		set = append(set, lo, hi)
		i = next
	}
	var b strings.Builder
	b.WriteByte('[')
	if negated {
		b.WriteString(`^/`)
		if start {
			b.WriteByte('.')
		}
	}
	wrote := negated
	for j := 0; j < len(set); j += 2 {
		if negated {
			writeRange(&b, set[j], set[j+1])
			continue
		}
		without := []rune{'/'}
		if start {
			without = []rune{'.', '/'}
		}
		for _, r := range subtract(set[j], set[j+1], without...) {
			if r[0] <= r[1] {
				writeRange(&b, r[0], r[1])
				wrote = true
			}
		}
	}
	if !wrote {
		return "", 0, invalidGlob("a set in [] matches nothing")
	}
	b.WriteByte(']')
	return b.String(), i, nil
}

func classRune(s string, i int) (r rune, next int, err error) {
	if s[i] == '\\' {
		if i++; i >= len(s) {
			return 0, 0, invalidGlob("it ends with a backslash")
		}
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return r, i + n, nil
}

func writeRange(b *strings.Builder, lo, hi rune) {
	b.WriteString(hexRune(lo) + "-" + hexRune(hi))
}

// braces expands {a,b}. A brace without a comma or a partner is literal.
func braces(s string) ([]string, error) {
	todo, done, bytes := []string{s}, []string{}, len(s)
	for len(todo) > 0 {
		one := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		head, options, tail, ok := firstBrace(one)
		if !ok {
			done = append(done, one)
			continue
		}
		bytes -= len(one)
		for _, o := range options {
			todo = append(todo, head+o+tail)
			bytes += len(head) + len(o) + len(tail)
		}
		if len(todo)+len(done) > maxBraces || bytes > schemas.MaxBraces {
			return nil, invalidGlob("its braces expand to too many alternatives")
		}
	}
	return done, nil
}

// firstBrace finds the first pair of braces with a comma inside, in one pass.
func firstBrace(s string) (head string, options []string, tail string, ok bool) {
	type open struct {
		at     int
		commas []int
	}
	var stack []open // the open braces
	first, end := open{at: len(s)}, 0
	for i := 0; i < len(s); i++ {
		switch top := len(stack) - 1; s[i] {
		case '\\':
			i++
		case '{':
			stack = append(stack, open{at: i})
		case ',':
			if top >= 0 {
				stack[top].commas = append(stack[top].commas, i)
			}
		case '}':
			if top < 0 {
				continue
			}
			if b := stack[top]; len(b.commas) > 0 && b.at < first.at {
				first, end = b, i
			}
			stack = stack[:top]
		}
	}
	if end == 0 {
		return "", nil, "", false
	}
	begin := first.at + 1
	for _, c := range append(first.commas, end) {
		options = append(options, s[begin:c])
		begin = c + 1
	}
	return s[:first.at], options, s[end+1:], true
}
