package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string  `json:"Action"`
	Package     string  `json:"Package"`
	ImportPath  string  `json:"ImportPath"` // of what is built
	Test        string  `json:"Test"`
	Output      string  `json:"Output"`
	Elapsed     float64 `json:"Elapsed"` // seconds
	FailedBuild string  `json:"FailedBuild"`
}

// result is how the tests of one command ended.
type result struct {
	passed   int // tests and their parts
	failed   int
	skipped  map[string][]string // tests by reason
	packages []*pkg              // in the order in which they ended
	others   []string            // lines that are no events, and what the compiler said
}

// pkg is how one package ended.
type pkg struct {
	path    string
	seconds float64
	failed  bool
	unbuilt bool // it could not be compiled or linked
	cut     bool // it ended before all its tests had: a panic, a timeout, an exit, or something that is no test's
	failing []string
	said    map[string]string // by test, and what belongs to none under ""
	races   []race
}

// most of what one test says is kept.
const mostSaid = 64 << 10

// reader builds a result from the lines of a run.
type reader struct {
	res     result
	running map[string]*pkg
	open    map[string]map[string]bool             // tests that have begun, by package
	words   map[string]map[string]*strings.Builder // by package and test
	watch   map[string]*raceReader
}

// read reads all events. A line that is none is kept as it is.
func read(in io.Reader) (result, error) {
	r := reader{
		res: result{skipped: map[string][]string{}}, running: map[string]*pkg{}, open: map[string]map[string]bool{},
		words: map[string]map[string]*strings.Builder{}, watch: map[string]*raceReader{},
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.res, fmt.Errorf("read the events: %w", err)
		}
	}
	for _, p := range r.running { // go test itself was ended
		r.end(p, event{Action: "fail", Package: p.path})
	}
	return r.res, nil
}

func (r *reader) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		r.res.others = append(r.res.others, strings.TrimRight(line, "\n"))
		return
	}
	if e.Action == "build-output" {
		r.res.others = append(r.res.others, strings.TrimRight(e.Output, "\n"))
		return
	}
	if e.Package == "" {
		return
	}
	p := r.running[e.Package]
	if p == nil {
		p = &pkg{path: e.Package, said: map[string]string{}}
		r.running[e.Package], r.open[e.Package] = p, map[string]bool{}
		r.words[e.Package], r.watch[e.Package] = map[string]*strings.Builder{}, &raceReader{}
	}
	switch {
	case e.Action == "output":
		r.output(p, e)
	case e.Action == "run":
		r.open[p.path][e.Test] = true
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
	case e.Test == "":
		r.end(p, e)
	default:
		r.test(p, e)
	}
}

// crash is how a process says that it ends with tests in it that have not.
var crash = regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z]+: )`)

func (r *reader) output(p *pkg, e event) {
	r.watch[p.path].line(e.Output)
	if crash.MatchString(e.Output) {
		p.cut = true
	}
	w := r.words[p.path][e.Test]
	if w == nil {
		w = &strings.Builder{}
		r.words[p.path][e.Test] = w
	}
	if w.Len() < mostSaid {
		w.WriteString(e.Output)
	}
}

func (r *reader) test(p *pkg, e event) {
	delete(r.open[p.path], e.Test)
	switch e.Action {
	case "pass":
		r.res.passed++
	case "fail":
		r.res.failed++
		p.failing = append(p.failing, e.Test)
		p.said[e.Test] = r.saidBy(p, e.Test)
	case "skip":
		why := reason(r.saidBy(p, e.Test))
		r.res.skipped[why] = append(r.res.skipped[why], p.path+" "+e.Test)
	}
	delete(r.words[p.path], e.Test)
}

func (r *reader) saidBy(p *pkg, test string) string {
	if w := r.words[p.path][test]; w != nil {
		return w.String()
	}
	return ""
}

func (r *reader) end(p *pkg, e event) {
	p.seconds, p.failed, p.unbuilt = e.Elapsed, e.Action == "fail", e.FailedBuild != ""
	p.races = r.watch[p.path].races
	if p.failed {
		if len(p.failing) == 0 {
			p.cut = true
			r.res.failed++
		}
		for test := range r.open[p.path] {
			p.cut = true
			p.said[test] = r.saidBy(p, test)
		}
		p.said[""] = r.saidBy(p, "")
	}
	r.res.packages = append(r.res.packages, p)
	delete(r.running, p.path)
	delete(r.open, p.path)
	delete(r.words, p.path)
	delete(r.watch, p.path)
}

// leaves are the failing tests without those that failed by their parts alone, in the order in which they ended.
func (p *pkg) leaves() []string {
	var out []string
	for _, test := range p.failing {
		if !slices.ContainsFunc(p.failing, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			out = append(out, test)
		}
	}
	return out
}

// pattern is what -run finds this test by, and nothing else.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// place is where a test said something, as testing writes it before the words.
var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason finds in a test's words why it was skipped: the last ones are those of its Skip.
func reason(said string) string {
	why := "no reason given"
	for line := range strings.Lines(said) {
		if at := place.FindString(line); at != "" {
			why = strings.TrimSpace(line[len(at):])
		}
	}
	return why
}
