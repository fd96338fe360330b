package main

import (
	"regexp"
	"strings"
)

// own is how the functions of this module begin; main is what a command's are called.
const own = "github.com/sandjet/sandjet/"

// race is one report of the race detector.
type race struct {
	text string
	ours bool // one of the two accesses is by our code, be it through the standard library
}

// raceReader finds reports in what a process says. Their lines come one after the other.
type raceReader struct {
	races  []race
	inside bool
	report strings.Builder
	access bool // the lines are the stack of one of the two accesses
	judged bool // the first frame of that stack that is not the standard library's has been seen
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

// judge looks at a function of a stack, the innermost first: the first one that is not of the standard library says whose access it is.
func (r *raceReader) judge(function string) {
	root, _, below := strings.Cut(function, "/")
	switch {
	case strings.HasPrefix(function, own), strings.HasPrefix(function, "main."):
		r.judged, r.ours = true, true
	case below && strings.Contains(root, "."):
		r.judged = true
	}
}
