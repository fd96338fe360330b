package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/sandjet/sandjet/schemas"
)

// tricky reports whether a character could control a terminal or deceive a reader: control characters except line feed and tab, format
// characters (Cf, such as U+202E and tags), and separators of lines and paragraphs.
func tricky(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// printable replaces tricky characters by U+FFFD: a conversation may contain the output of any program.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if tricky(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// visible replaces tricky characters by their numbers, in texts that a person judges.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if tricky(r) {
			fmt.Fprintf(&b, "\\u{%04x}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// visibleInput returns a call's input as text for a person to judge: of bash the command as it is, followed by the other fields; of other
// tools JSON without the escapes that only HTML needs.
func visibleInput(tool schemas.Tool, input json.RawMessage) string {
	var fields map[string]json.RawMessage
	var command string
	if tool == schemas.ToolBash && json.Unmarshal(input, &fields) == nil && json.Unmarshal(fields["command"], &command) == nil {
		delete(fields, "command")
		text := visible(command)
		if len(fields) > 0 {
			text += "\nwith " + visible(plainJSON(fields))
		}
		return text
	}
	return visible(plainJSON(input))
}

func plainJSON(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if raw, ok := v.(json.RawMessage); ok { // decoded first, which undoes escapes in it
		var decoded any
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if dec.Decode(&decoded) != nil {
			return string(raw)
		}
		v = decoded
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// guarded is a writer to a terminal that replaces tricky characters, whichever command writes them. Output to files and pipes is not
// changed.
type guarded struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // an incomplete character, or a CR that LF may follow
}

// guardTerminal returns w with tricky characters replaced if it is a terminal, else w itself.
func guardTerminal(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &guarded{to: w}
}

// unguarded returns the writer behind a guarded one, for this program's own colors.
func unguarded(w io.Writer) io.Writer {
	if g, ok := w.(*guarded); ok {
		return g.to
	}
	return w
}

// Write writes b with tricky characters replaced, and returns the length of b.
func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := append(g.rest, b...)
	g.rest = nil
	var out []byte
	for len(text) > 0 {
		if !utf8.FullRune(text) || len(text) == 1 && text[0] == '\r' {
			g.rest = append([]byte(nil), text...)
			break
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\r' && text[1] == '\n': // the line end of other systems
		case tricky(r):
			out = utf8.AppendRune(out, utf8.RuneError)
		default:
			out = utf8.AppendRune(out, r)
		}
		text = text[size:]
	}
	if _, err := g.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
