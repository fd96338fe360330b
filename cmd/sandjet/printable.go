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

// tricky reports whether a character could play tricks on a terminal or on who reads it: controls (C0 without line end and tab, DEL, C1),
// and what is not seen or changes the order of what is: formats (Cf, such as U+202E and tags) and the separators of lines and paragraphs.
func tricky(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// printable replaces what is tricky: a conversation may hold output of any program.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if tricky(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// visible is printable for what a person is to judge: what is tricky is shown by its number.
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

// visibleInput is a call's input as a person reads it: a command as its text, with whatever else is in the input behind it; anything
// else as JSON without escapes that only HTML needs.
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
	if raw, ok := v.(json.RawMessage); ok { // decoded first: escapes that stand in it are undone
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

// guarded is a writer to a terminal through which nothing tricky passes, whatever command writes it. What goes to a file or a pipe
// is not touched.
type guarded struct {
	to io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character, or a CR whose line end may follow
}

// guardTerminal returns w as it is unless it is a terminal.
func guardTerminal(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &guarded{to: w}
}

// unguarded is the writer below, for colors of our own.
func unguarded(w io.Writer) io.Writer {
	if g, ok := w.(*guarded); ok {
		return g.to
	}
	return w
}

// Write writes b without what is tricky. The count is that of b.
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
		case r == '\r' && text[1] == '\n': // as programs of other systems end lines
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
