package markdown

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean returns a document as text that every service takes: valid UTF-8, lines that end with a line feed, and no control characters.
// Sequences that colour a terminal go as a whole.
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

// terminalSequence is how long the control sequence is that a text begins with: ESC [ … letter. 0: there is none.
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

// bounded returns at most n bytes of a text, and whether that is not all.
func bounded(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], true
}

// Bounds within which the parser's work is linear. Counts are of a paragraph: of lines without a blank one or an
// item of a list between them.
const (
	maxNesting   = 64      // quotes and lists that one line opens
	maxIndent    = 256     // columns
	maxBrackets  = 1000    // links that may begin
	maxEmphases  = 2000    // runs of marks for bold, italic and strike
	maxColumns   = 64      // of a table
	maxCells     = 100_000 // of all tables, those included that a short row lacks
	maxReference = 5000    // links that are defined elsewhere
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

// beginsItem reports whether a line ends the paragraph before it, as an item of a list does.
func beginsItem(line string) bool {
	rest := strings.TrimLeft(line, " ")
	if len(line)-len(rest) > 3 || len(rest) < 3 || strings.IndexByte("-*+", rest[0]) < 0 {
		return false
	}
	return rest[1] == ' ' && strings.TrimSpace(rest[2:]) != ""
}

// opensTamely reports whether a line opens few enough quotes and lists.
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

// delimiterColumns is how many columns the table may have whose second line this is; 0: it is no delimiter row.
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
