package markdown

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean returns a document as text that every service accepts: valid UTF-8, with lines that end with a line feed, and without control
// characters. Terminal escape sequences, such as colours, are removed as a whole.
func clean(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteRune(utf8.RuneError)
		case r == '\r':
			if !strings.HasPrefix(s[i+1:], "\n") {
				b.WriteByte('\n')
			}
		case r == '\u2028' || r == '\u2029' || r == '\f' || r == '\v':
			b.WriteByte('\n')
		case r == '\x1b':
			n = max(n, terminalSequence(s[i:]))
		case r == '\n' || r == '\t' || !unicode.IsControl(r) && r != '\ufeff':
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// terminalSequence returns the length of the control sequence (ESC [ … letter) at the beginning of s; 0 if there is none.
func terminalSequence(s string) int {
	if len(s) < 3 || s[1] != '[' {
		return 0
	}
	for i := 2; i < len(s) && i < 32; i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 0
		}
	}
	return 0
}

// bounded returns at most n bytes of a text, and whether the text is longer.
func bounded(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], true
}

// Limits within which the parser's work is linear in the document. Brackets, emphases and columns are counted per paragraph: lines without
// a blank line or the beginning of a list item between them.
const (
	maxNesting   = 64      // quotes and lists that one line begins
	maxIndent    = 256     // columns
	maxBrackets  = 1000    // possible beginnings of links
	maxEmphases  = 2000    // runs of the marks for bold, italic and strikethrough
	maxColumns   = 64      // of a table
	maxCells     = 100_000 // of all tables, including missing cells of short rows
	maxReference = 5000    // link reference definitions
)

// tame reports whether a document can be parsed in linear time.
func tame(source string) bool {
	brackets, emphases, columns, cells, references := 0, 0, 0, 0, 0
	for line := range strings.Lines(source) {
		if !opensTamely(line) {
			return false
		}
		if strings.TrimSpace(line) == "" {
			brackets, emphases, columns = 0, 0, 0
			continue
		}
		if beginsItem(line) {
			brackets, emphases = 0, 0
		}
		if strings.Contains(line, "]:") {
			references++
		}
		if c := delimiterColumns(line); c > 0 {
			columns = max(columns, c)
		}
		cells += columns
		var last byte
		for i := range len(line) {
			c := line[i]
			switch c {
			case '[':
				brackets++
			case '*', '_', '~':
				if c != last {
					emphases++
				}
			}
			last = c
		}
		if brackets > maxBrackets || emphases > maxEmphases || columns > maxColumns || cells > maxCells || references > maxReference {
			return false
		}
	}
	return true
}

// beginsItem reports whether a line begins a list item, which ends the paragraph before it.
func beginsItem(line string) bool {
	rest := strings.TrimLeft(line, " ")
	if len(line)-len(rest) > 3 || len(rest) < 3 || strings.IndexByte("-*+", rest[0]) < 0 {
		return false
	}
	return rest[1] == ' ' && strings.TrimSpace(rest[2:]) != ""
}

// opensTamely reports whether a line begins at most maxNesting quotes and lists.
func opensTamely(line string) bool {
	markers, columns := 0, 0
	for i := range len(line) {
		switch c := line[i]; {
		case c == ' ':
			columns++
		case c == '\t':
			columns += 4
		case c == '>':
			markers++
		case c == '-' || c == '+' || c == '*' || c == '.' || c == ')':
			if i+1 < len(line) && (line[i+1] == ' ' || line[i+1] == '\t') {
				markers++
			}
		case c >= '0' && c <= '9':
		default:
			return markers <= maxNesting && columns <= maxIndent
		}
	}
	return markers <= maxNesting && columns <= maxIndent
}

// delimiterColumns returns how many columns a table may have if line is its delimiter row; 0 if it cannot be one.
func delimiterColumns(line string) int {
	dashes, pipes := false, 0
	for i := range len(line) {
		switch line[i] {
		case '-':
			dashes = true
		case '|':
			pipes++
		case ':', ' ', '\t', '>', '\n', '+', '*':
		default:
			return 0
		}
	}
	if !dashes {
		return 0
	}
	return pipes + 1
}
