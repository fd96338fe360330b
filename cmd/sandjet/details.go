package main

import (
	"fmt"
	"strings"
	"time"
)

// details is one thing as a person reads it: one fact on a line, its name first. Nothing in it plays tricks on a terminal.
type details struct{ strings.Builder }

// line adds a fact, unless there is nothing to say.
func (d *details) line(name, value string) {
	if value != "" {
		fmt.Fprintf(d, "%-13s %s\n", name, strings.ReplaceAll(printable(value), "\n", " "))
	}
}

// at adds a time, unless it is not known.
func (d *details) at(name string, when time.Time) {
	if !when.IsZero() {
		d.line(name, dated(when))
	}
}

// below adds a text of several lines, set off from the facts.
func (d *details) below(text string) {
	if text != "" {
		fmt.Fprintf(d, "\n%s\n", strings.TrimSuffix(printable(text), "\n"))
	}
}
