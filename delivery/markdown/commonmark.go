package markdown

import (
	"strings"
	"unicode/utf8"
)

func hashes(level, most int) string {
	if level > most {
		return ""
	}
	return strings.Repeat("#", level) + " "
}

func dashOrStar(odd bool) string {
	if odd {
		return "* "
	}
	return "- "
}

func commonStands(m *mark, a around) bool {
	switch m.kind {
	case link:
		return true
	case code:
		return a.before != '`' && a.after != '`' && !a.glued
	case strike:
		return a.before != '~' && a.after != '~' && flanked(a)
	default:
		return flanked(a)
	}
}

func commonOpen(m *mark) string {
	switch m.kind {
	case bold:
		return "**"
	case italic:
		return "*"
	case strike:
		return "~~"
	case code:
		if len(m.fill) > 1 {
			return m.fill + " "
		}
		return m.fill
	default:
		return "["
	}
}

func commonEnd(m *mark) string {
	switch m.kind {
	case link:
		return "](" + m.url + ")"
	case code:
		if len(m.fill) > 1 {
			return " " + m.fill
		}
		return m.fill
	default:
		return commonOpen(m)
	}
}

// linkOpens reports whether the outermost mark that begins at token i is a link.
func linkOpens(line []token, i int) bool {
	for n, m := range line[i].marks {
		if m.off || n < len(line[i-1].marks) && line[i-1].marks[n] == m {
			continue
		}
		return m.kind == link
	}
	return false
}

// commonLiteral adds a zero-width space after an exclamation mark before a link, which would make the link an image.
func commonLiteral(line []token) []token {
	for i := range len(line) - 1 {
		if line[i+1].space == "" && line[i].kind == word && strings.HasSuffix(line[i].text, "!") && linkOpens(line, i+1) {
			line[i].text += joiner
		}
	}
	return line
}

// commonText escapes text for the dialects of CommonMark. Characters of signs are escaped everywhere, others only where they have a
// meaning.
func commonText(s string, before rune, start bool, signs string, entities bool) string {
	var b strings.Builder
	if start && opensBlock(s) {
		cut := strings.TrimLeft(s, "0123456789")
		b.WriteString(s[:len(s)-len(cut)])
		b.WriteByte('\\')
		b.WriteByte(cut[0])
		before, s = rune(cut[0]), cut[1:]
	}
	if before == ' ' && s != "" && strings.Trim(s, "#") == "" {
		b.WriteByte('\\') // it could be the closing sequence of a heading
	}
	for i, r := range s {
		switch {
		case r == '_':
			next, _ := utf8.DecodeRuneInString(s[i+1:])
			if before == 0 || !wordly(before) || before == '_' || !wordly(next) || next == '_' {
				b.WriteByte('\\')
			}
		case r == '&' && entities:
			b.WriteString("&amp;")
			before = r
			continue
		case r < utf8.RuneSelf && strings.ContainsRune(signs, r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// opensBlock reports whether a word at the beginning of a line could make it a heading, a list, a quote or the underline of a heading.
func opensBlock(s string) bool {
	if s[0] == '>' || strings.Trim(s, "#") == "" || strings.Trim(s, "-:+=#") == "" {
		return true
	}
	rest := strings.TrimLeft(s, "0123456789")
	return rest != s && (rest == "." || rest == ")")
}
