package main

import (
	"fmt"
	"strings"
	"time"
)

// details formats a record as text for people: a line for each field, its name first. Control characters are replaced.
type details struct{ strings.Builder }

// line adds a field, unless its value is empty.
func (d *details) line(name, value string) {
	if value != "" {
		fmt.Fprintf(d, "%-13s %s\n", name, strings.ReplaceAll(printable(value), "\n", " "))
	}
}

// at adds a time, unless it is zero.
func (d *details) at(name string, when time.Time) {
	if !when.IsZero() {
		d.line(name, dated(when))
	}
}

// below adds a text of several lines, after an empty line.
func (d *details) below(text string) {
	if text != "" {
		fmt.Fprintf(d, "\n%s\n", strings.TrimSuffix(printable(text), "\n"))
	}
}
