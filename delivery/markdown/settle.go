package markdown

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// settle decides which marks of a line are written: some services recognize a mark only next to a space or punctuation. It copies the
// marks for the line, because each line opens and closes its own.
func settle(line []token, d dialect) []token {
	if n := len(line); n > 0 && line[n-1].text == "" {
		line = line[:n-1]
	}
	own(line)
	for n := 0; look(line, d); n++ {
		if n == mostLooks {
			strip(line)
			break
		}
	}
	return d.literal(line)
}

// mostLooks is how often a line is checked. Dropping a mark may leave its neighbour without the punctuation that it needs, and so on. A
// line that has not settled after these checks gets no marks but links.
const mostLooks = 4

// look sets off for those marks of a line that the service would not recognize, and reports whether there were any.
func look(line []token, d dialect) (fell bool) {
	for i := range line {
		for k, m := range line[i].marks {
			if m.off || i > 0 && k < len(line[i-1].marks) && line[i-1].marks[k] == m {
				continue
			}
			last := i
			for last+1 < len(line) && k < len(line[last+1].marks) && line[last+1].marks[k] == m {
				last++
			}
			m.off = !d.stands(m, around{
				before: before(line, i, k), first: first(line[i], k), last: final(line, last, k), after: after(line, last),
				glued: i > 0 && line[i].space == "" && closes(line, i, k),
			})
			fell = fell || m.off
		}
	}
	return fell
}

// strip turns off all marks of a line except links.
func strip(line []token) {
	for _, t := range line {
		for _, m := range t.marks {
			m.off = m.off || m.kind != link
		}
	}
}

// own replaces the marks of a line by copies.
func own(line []token) {
	mine := map[*mark]*mark{}
	var from, to []*mark
	for i, t := range line {
		if len(t.marks) == 0 {
			continue
		}
		if !same(t.marks, from) {
			from, to = t.marks, make([]*mark, len(t.marks))
			for k, m := range t.marks {
				if mine[m] == nil {
					c := *m
					mine[m] = &c
				}
				to[k] = mine[m]
			}
		}
		line[i].marks = to
	}
}

// around are the runes next to the two ends of a mark, outside (before, after) and inside (first, last). 0: a space or nothing.
type around struct {
	before, first, last, after rune
	// glued is whether other marks end where this one begins.
	glued bool
}

// before returns the rune before the kth mark of token i, which begins there.
func before(line []token, i, k int) rune {
	for k--; k >= 0; k-- {
		m := line[i].marks[k]
		if i > 0 && k < len(line[i-1].marks) && line[i-1].marks[k] == m {
			break
		}
		if !m.off && !stars(m, line[i].marks[k+1]) {
			return sign(m.kind)
		}
	}
	if i == 0 || line[i].space != "" {
		return 0
	}
	if closes(line, i, len(line[i].marks)) {
		return ')'
	}
	if line[i-1].kind == auto {
		return '>'
	}
	r, _ := utf8.DecodeLastRuneInString(line[i-1].text)
	return r
}

// closes reports whether the outermost mark that ends between tokens i-1 and i has at most index k and is written.
func closes(line []token, i, k int) bool {
	for n, m := range line[i-1].marks {
		if n >= len(line[i].marks) || line[i].marks[n] != m {
			return !m.off && n <= k
		}
	}
	return false
}

func first(t token, k int) rune {
	if k+1 < len(t.marks) {
		if t.marks[k+1].off || stars(t.marks[k], t.marks[k+1]) {
			return first(t, k+1)
		}
		return sign(t.marks[k+1].kind)
	}
	if t.kind == auto {
		return '<'
	}
	r, _ := utf8.DecodeRuneInString(t.text)
	return r
}

func final(line []token, i, k int) rune {
	t := line[i]
	if k+1 < len(t.marks) {
		if t.marks[k+1].off || stars(t.marks[k], t.marks[k+1]) {
			return final(line, i, k+1)
		}
		return sign(t.marks[k+1].kind)
	}
	if t.kind == auto {
		return '>'
	}
	r, _ := utf8.DecodeLastRuneInString(t.text)
	return r
}

func after(line []token, i int) rune {
	if i+1 >= len(line) || line[i+1].space != "" {
		return 0
	}
	next := line[i+1]
	for n, m := range next.marks {
		if (n >= len(line[i].marks) || line[i].marks[n] != m) && !m.off {
			return sign(m.kind)
		}
	}
	if next.kind == auto {
		return '<'
	}
	r, _ := utf8.DecodeRuneInString(next.text)
	return r
}

// stars reports whether two marks are both written with asterisks.
func stars(a, b *mark) bool {
	return (a.kind == bold || a.kind == italic) && (b.kind == bold || b.kind == italic)
}

func sign(k markKind) rune {
	switch k {
	case bold, italic:
		return '*'
	case strike:
		return '~'
	case code:
		return '`'
	default:
		return '['
	}
}

func isSign(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) }

// flanked reports whether CommonMark recognizes a mark between these neighbours.
func flanked(a around) bool {
	if a.glued || a.first == 0 || a.last == 0 || unicode.IsSpace(a.first) || unicode.IsSpace(a.last) {
		return false
	}
	opens := !isSign(a.first) || a.before == 0 || unicode.IsSpace(a.before) || isSign(a.before)
	ends := !isSign(a.last) || a.after == 0 || unicode.IsSpace(a.after) || isSign(a.after)
	return opens && ends
}

// slackLiteral adds zero-width spaces where Slack would read characters of the text as marks: at one after a space or punctuation, if the
// same character follows later.
func slackLiteral(line []token) []token {
	var seen [128]bool
	for i := len(line) - 1; i >= 0; i-- {
		t := &line[i]
		if t.kind != word || !strings.ContainsAny(t.text, "*_~`") || len(t.marks) > 0 && t.marks[len(t.marks)-1].kind == code {
			continue
		}
		out := make([]rune, 0, len(t.text)+4)
		runes := []rune(t.text)
		for k, r := range slices.Backward(runes) {
			if strings.ContainsRune("*_~`", r) {
				opens := k == 0 || !wordly(runes[k-1])
				if opens && seen[r] {
					out = append(out, '\u200b')
				}
				seen[r] = true
			}
			out = append(out, r)
		}
		slices.Reverse(out)
		t.text = string(out)
	}
	return line
}
