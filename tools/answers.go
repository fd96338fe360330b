package tools

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// answer is the raw result of a file tool, from a script or from this process.
//
// A script prints it as lines: "sandjet WORD"; "=N" for a number, "#TEXT" for a text, "-" for the begin of a part, whose content follows
// in base64; "." at the end. Output without the end was cut off.
type answer struct {
	word    word
	numbers []int64
	texts   []string
	parts   [][]byte
}

// number returns the i-th number, or 0.
func (a answer) number(i int) int64 {
	if i < len(a.numbers) {
		return a.numbers[i]
	}
	return 0
}

// text returns the i-th text, or "".
func (a answer) text(i int) string {
	if i < len(a.texts) {
		return a.texts[i]
	}
	return ""
}

// part returns the i-th part, or nil.
func (a answer) part(i int) []byte {
	if i < len(a.parts) {
		return a.parts[i]
	}
	return nil
}

// parseAnswer parses the output of a script. It is not trusted: the box may have printed anything.
func parseAnswer(r providers.Result) (answer, *schemas.Error) {
	var a answer
	lines := strings.Split(string(r.Stdout), "\n")
	first, ok := strings.CutPrefix(lines[0], "sandjet ")
	if !ok || len(lines) < 2 || lines[len(lines)-2] != "." || lines[len(lines)-1] != "" {
		return a, unreadable(r)
	}
	a.word = word(first)
	for _, line := range lines[1 : len(lines)-2] {
		switch {
		case strings.HasPrefix(line, "="):
			n, err := strconv.ParseInt(line[1:], 10, 64)
			if err != nil {
				return a, unreadable(r)
			}
			a.numbers = append(a.numbers, n)
		case strings.HasPrefix(line, "#"):
			a.texts = append(a.texts, valid([]byte(line[1:])))
		case line == "-":
			a.parts = append(a.parts, nil)
		case line == "":
		case len(a.parts) == 0:
			return a, unreadable(r)
		default:
			content, err := base64.StdEncoding.DecodeString(line) // a line has complete groups
			if err != nil {
				return a, unreadable(r)
			}
			a.parts[len(a.parts)-1] = append(a.parts[len(a.parts)-1], content...)
		}
	}
	return a, nil
}

// unreadable returns the error for a run whose answer cannot be parsed.
func unreadable(r providers.Result) *schemas.Error {
	switch {
	case r.TimedOut:
		return &schemas.Error{Code: schemas.Timeout, Message: "the tool timed out"}
	case r.OOMKilled:
		return &schemas.Error{Code: schemas.Exhausted, Message: "the tool ran out of memory"}
	case r.Truncated:
		return &schemas.Error{Code: schemas.Exhausted, Message: "the result exceeds the sandbox's output limit: narrow the request"}
	case r.ExitCode == 127:
		return &schemas.Error{Code: schemas.Unsupported, Message: "the sandbox lacks a program that the file tools need: " + excerpt(r.Stderr)}
	}
	return &schemas.Error{Code: schemas.Unavailable,
		Message: fmt.Sprintf("the tool could not be run in the sandbox (exit code %d): %s", r.ExitCode, excerpt(r.Stderr))}
}

// fail turns r into the result of a tool that gave no answer.
func fail(r *schemas.Result, e *schemas.Error, timeout time.Duration, run providers.Result) {
	r.Status, r.Error = schemas.StatusFailed, e
	r.Output.OK = false
	r.Text = "Error: " + e.Message
	if run.TimedOut {
		r.Text += "\n" + timedOut(timeout)
	}
}

// excerpt returns the end of a program's error output.
func excerpt(b []byte) string {
	const most = 300
	s := strings.TrimSpace(valid(b))
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	if s == "" {
		return "no error output"
	}
	return s
}
