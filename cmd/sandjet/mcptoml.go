package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// tomlWith returns a TOML text in which a table has these values; keys with an empty text are removed from it. Everything else stays as it
// is, with comments and the table's other keys. It fails if it cannot parse the text.
func tomlWith(was string, table []string, want []tomlValue) (string, error) {
	f, err := readTOML(was, table)
	if err != nil {
		return "", err
	}
	eol := lineEnd([]byte(was))
	if f.header == 0 {
		var b strings.Builder
		b.WriteString(was)
		if was != "" && !strings.HasSuffix(was, "\n") {
			b.WriteString(eol)
		}
		if was != "" {
			b.WriteString(eol)
		}
		b.WriteString("[" + strings.Join(table, ".") + "]" + eol)
		for _, v := range want {
			if v.text != "" {
				b.WriteString(v.key + " = " + v.text + eol)
			}
		}
		return b.String(), nil
	}
	for _, at := range slices.Backward(f.lines) { // backwards, so that the offsets stay valid
		for _, v := range want {
			switch {
			case v.key != at.key:
			case v.text == "":
				was = was[:at.begin] + was[at.next:]
			case compact(was[at.from:at.end]) != compact(v.text):
				was = was[:at.from] + v.text + was[at.end:]
			}
		}
	}
	missing := ""
	for _, v := range want {
		if v.text != "" && !f.has(v.key) {
			missing += v.key + " = " + v.text + eol
		}
	}
	if missing != "" && f.header == len(was) && !strings.HasSuffix(was, "\n") {
		missing = eol + missing
	}
	return was[:f.header] + missing + was[f.header:], nil
}

// tomlValue is a key of a table and the text of its value. If the text is empty, the table must not have the key.
type tomlValue struct{ key, text string }

// compact removes insignificant blanks and the last comma from an array of simple strings, so that it can be compared. It returns other
// values as they are.
func compact(text string) string {
	if strings.ContainsAny(text, "\\'#") || strings.Count(text, `"`)%2 != 0 {
		return text
	}
	parts := strings.Split(text, `"`)
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.Join(strings.Fields(parts[i]), "")
	}
	return strings.ReplaceAll(strings.Join(parts, `"`), ",]", "]")
}

// tomlTable is the position of a table in a text.
type tomlTable struct {
	header int // where the line after its header begins; 0: the table does not exist
	lines  []tomlLine
}

// tomlLine is the position of a key of the table: of its line, of its value, of the value's end, and of the next line.
type tomlLine struct {
	key                    string
	begin, from, end, next int
}

func (t tomlTable) has(key string) bool {
	for _, l := range t.lines {
		if l.key == key {
			return true
		}
	}
	return false
}

// readTOML finds a table. It fails if the table is not written under a header of its own.
func readTOML(text string, table []string) (t tomlTable, err error) {
	elsewhere := fmt.Errorf("it has %s in another way than as a table of its own", strings.Join(table, "."))
	var in []string // name of the current table
	for at := 0; at < len(text); {
		begin := at
		at += blank(text[at:], " \t\r\n")
		switch {
		case at == len(text):
			return t, nil
		case text[at] == '#':
			at = lineAfter(text, at)
		case text[at] == '[':
			array := strings.HasPrefix(text[at:], "[[")
			parts, n, err := tomlKey(text[at+len("["):], "[")
			if err != nil {
				return t, err
			}
			if at += len("[") + n; !strings.HasPrefix(text[at:], "]") {
				return t, errors.New("it is not TOML: the name of a table has no end")
			}
			if at = lineAfter(text, at); slices.Equal(parts, table) {
				if t.header > 0 || array {
					return t, elsewhere
				}
				t.header = at
			}
			in = parts
		default:
			line := tomlLine{begin: strings.LastIndexByte(text[:at], '\n') + 1}
			line.begin = max(line.begin, begin)
			parts, n, err := tomlKey(text[at:], "")
			if err != nil {
				return t, err
			}
			at += n
			if at == len(text) || text[at] != '=' {
				return t, errors.New("it is not TOML: a line is neither a table nor a key with a value")
			}
			at++
			line.from = at + blank(text[at:], " \t")
			if line.end, err = tomlValueEnd(text, line.from); err != nil {
				return t, err
			}
			at = lineAfter(text, line.end)
			line.next = at
			full := append(append([]string(nil), in...), parts...)
			switch own := slices.Equal(in, table); {
			case own && len(parts) == 1:
				line.key = parts[0]
				t.lines = append(t.lines, line)
			case !own && len(full) <= len(table) && slices.Equal(full, table[:len(full)]),
				!own && len(in) < len(table) && len(full) > len(table) && slices.Equal(full[:len(table)], table):
				return t, elsewhere
			}
		}
	}
	return t, nil
}

func blank(text, of string) int { return len(text) - len(strings.TrimLeft(text, of)) }

func lineAfter(text string, at int) int {
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

// tomlKey parses a dotted key. It returns the parts, and the length with the blanks around them.
func tomlKey(text, skip string) (parts []string, n int, err error) {
	bad := errors.New("it is not TOML: a key has no end, or is none")
	n = blank(text, skip+" \t")
	for {
		if n == len(text) {
			return nil, n, bad
		}
		switch q := text[n]; q {
		case '"', '\'':
			end := strings.IndexByte(text[n+1:], q)
			if end < 0 || strings.ContainsAny(text[n+1:n+1+end], "\\\n") { // escapes in keys are not supported, ours has none
				return nil, n, bad
			}
			parts = append(parts, text[n+1:n+1+end])
			n += end + len(`""`)
		default:
			rest := strings.TrimLeft(text[n:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
			if len(rest) == len(text)-n {
				return nil, n, bad
			}
			parts = append(parts, text[n:len(text)-len(rest)])
			n = len(text) - len(rest)
		}
		n += blank(text[n:], " \t")
		if n == len(text) || text[n] != '.' {
			return parts, n, nil
		}
		n++
		n += blank(text[n:], " \t")
	}
}

// tomlValueEnd returns the end of a value, which is on the same line, or further down for a string, an array or an inline table of several
// lines.
func tomlValueEnd(text string, at int) (int, error) {
	open := 0
	end := at // after the last byte that is not blank
	for at < len(text) {
		switch c := text[at]; {
		case c == '"' || c == '\'':
			n := tomlString(text[at:])
			if n < 0 {
				return 0, errors.New("it is not TOML: a string has no end")
			}
			at += n
			end = at
			continue
		case c == '[' || c == '{':
			open++
		case c == ']' || c == '}':
			open--
		case c == '#':
			if open <= 0 {
				return end, nil
			}
			at = lineAfter(text, at)
			continue
		case c == '\n' && open <= 0:
			return end, nil
		}
		if !strings.ContainsRune(" \t\r\n", rune(text[at])) {
			end = at + 1
		}
		at++
	}
	if open > 0 {
		return 0, errors.New("it is not TOML: a list or a table has no end")
	}
	return end, nil
}

// tomlString returns the length of the string at the beginning of a text; negative if it has no end.
func tomlString(text string) int {
	quote := text[:1]
	if triple := strings.Repeat(quote, len(`"""`)); strings.HasPrefix(text, triple) {
		quote = triple
	}
	for at := len(quote); at < len(text); at++ {
		switch {
		case text[at] == '\\' && quote[0] == '"':
			at++
		case text[at] == '\n' && len(quote) == 1:
			return -1
		case strings.HasPrefix(text[at:], quote):
			at += len(quote)
			for len(quote) > 1 && at < len(text) && text[at] == quote[0] { // up to two more quotes belong to it
				at++
			}
			return at
		}
	}
	return -1
}
