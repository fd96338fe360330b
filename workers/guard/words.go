package guard

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandjet/sandjet/schemas"
)

// value is the value of a word, as far as its text shows it.
type value struct {
	text  string // the known beginning of the value, without quotes
	whole bool   // text is the complete value
}

// valueOf returns the value of a word, without its quotes. The value ends where only a run could show the rest: at variables,
// substitutions, braces and home directories. Patterns are not expanded.
func (w *walker) valueOf(word *syntax.Word) value {
	if word == nil {
		return value{whole: true}
	}
	var b strings.Builder
	whole := w.parts(&b, word.Parts, false)
	return value{text: b.String(), whole: whole}
}

func (w *walker) parts(b *strings.Builder, parts []syntax.WordPart, quoted bool) (whole bool) {
	for i, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if !quoted && (i == 0 && strings.HasPrefix(part.Value, "~") || braces(part.Value)) {
				known, _, _ := strings.Cut(part.Value, "{")
				if !strings.HasPrefix(known, "~") {
					unescape(b, known, false)
				}
				return false
			}
			unescape(b, part.Value, quoted)
		case *syntax.SglQuoted:
			if part.Dollar && strings.Contains(part.Value, `\`) {
				return false
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			if !w.parts(b, part.Parts, true) {
				return false
			}
		case *syntax.ParamExp:
			if b.Len() > schemas.MaxPath || !w.at.known || !part.Short || part.Param == nil || part.Param.Value != "PWD" {
				return false
			}
			b.WriteString(w.at.dir)
		default:
			return false
		}
	}
	return true
}

// braces reports whether a literal may expand to more than one word, as a.{c,h} does.
func braces(lit string) bool {
	_, after, found := strings.Cut(lit, "{")
	return found && (strings.Contains(after, ",") || strings.Contains(after, ".."))
}

// unescape writes a literal without the backslashes that bash would remove.
func unescape(b *strings.Builder, lit string, quoted bool) {
	for i := 0; i < len(lit); i++ {
		if lit[i] != '\\' || i+1 == len(lit) || quoted && !strings.ContainsRune("$`\"\\\n", rune(lit[i+1])) {
			b.WriteByte(lit[i])
			continue
		}
		if i++; lit[i] != '\n' {
			b.WriteByte(lit[i])
		}
	}
}
