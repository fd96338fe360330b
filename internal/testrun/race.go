package main

import (
	"regexp"
	"strings"
)

// own is the prefix of the names of this module's functions; those of commands begin with main.
const own = "github.com/sandjet/sandjet/"

// race is one report of the race detector.
type race struct {
	text string
	ours bool // one of the two accesses is by our code, possibly through the standard library
}

// raceReader extracts the reports of the race detector from a process's output, line by line.
type raceReader struct {
	races  []race
	inside bool
	report strings.Builder
	access bool // the lines are the stack of one of the two accesses
	judged bool // the first frame of that stack outside of the standard library was seen
	ours   bool
}

var (
	accessed = regexp.MustCompile(`^(Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) at 0x[0-9a-f]+ by `)
	frame    = regexp.MustCompile(`^  (\S.*)\(\)$`)
)

func (r *raceReader) line(l string) {
	text := strings.TrimRight(l, "\n")
	switch {
	case strings.HasPrefix(text, "WARNING: DATA RACE"):
		*r = raceReader{races: r.races, inside: true}
	case !r.inside:
		return
	case strings.HasPrefix(text, "=================="):
		r.races = append(r.races, race{r.report.String(), r.ours})
		r.inside = false
		return
	case accessed.MatchString(text):
		r.access, r.judged = true, false
	case text == "":
		r.access = false
	case r.access && !r.judged:
		if m := frame.FindStringSubmatch(text); m != nil {
			r.judge(m[1])
		}
	}
	r.report.WriteString(l)
}

// judge examines a frame of a stack, the innermost first: the first function outside of the standard library determines whose access it
// is.
func (r *raceReader) judge(function string) {
	root, _, below := strings.Cut(function, "/")
	switch {
	case strings.HasPrefix(function, own), strings.HasPrefix(function, "main."):
		r.judged, r.ours = true, true
	case below && strings.Contains(root, "."):
		r.judged = true
	}
}
