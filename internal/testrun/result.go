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
	ImportPath  string  `json:"ImportPath"` // package that is built
	Test        string  `json:"Test"`
	Output      string  `json:"Output"`
	Elapsed     float64 `json:"Elapsed"` // seconds
	FailedBuild string  `json:"FailedBuild"`
}

// result is the outcome of one command.
type result struct {
	passed   int // tests and subtests
	failed   int
	skipped  map[string][]string // tests by reason
	packages []*pkg              // in the order in which they ended
	others   []string            // lines that are no events, and the compiler's output
}

// pkg is the outcome of one package.
type pkg struct {
	path    string
	seconds float64
	failed  bool
	unbuilt bool // it could not be compiled or linked
	cut     bool // it ended before all its tests had: by a panic, a timeout, an exit, or for another reason
	failing []string
	said    map[string]string // output by test; that of no test under ""
	races   []race
}

// mostSaid is how many bytes of a test's output are retained.
const mostSaid = 64 << 10

// reader builds a result from the lines of a run.
type reader struct {
	res     result
	running map[string]*pkg
	open    map[string]map[string]bool             // tests that have started, by package
	words   map[string]map[string]*strings.Builder // output by package and test
	watch   map[string]*raceReader
}

// read reads all events. Lines that are no events are retained.
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
	for _, p := range r.running { // go test itself was killed
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

// crash matches the line with which a process reports that it ends before its tests.
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

// leaves returns the failed tests, without those that failed only because of their subtests, in the order in which they ended.
func (p *pkg) leaves() []string {
	var out []string
	for _, test := range p.failing {
		if !slices.ContainsFunc(p.failing, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			out = append(out, test)
		}
	}
	return out
}

// pattern returns the value of -run that matches this test only.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// place matches the file and line before the text that a test logs.
var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason returns why a test was skipped: the last text in its output, which is that of its Skip.
func reason(said string) string {
	why := "no reason given"
	for line := range strings.Lines(said) {
		if at := place.FindString(line); at != "" {
			why = strings.TrimSpace(line[len(at):])
		}
	}
	return why
}
