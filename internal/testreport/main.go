// Command testreport reads what `go test -json` says and shows it as `go test` does, with all that failed tests
// said, and at the end what was skipped and why, which `go test` keeps to itself. It ends with code 1 when something
// failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	ok, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"`
}

// key is a test of a package, or with an empty test the package itself.
type key struct{ pkg, test string }

// summary is what has been read so far.
type summary struct {
	out     io.Writer
	said    map[key]*strings.Builder // by what has not ended
	skipped map[string][]string      // tests by reason
	passed  int
	failed  int
}

// report shows what it reads from in. It is true when nothing failed. Lines that are no events, as go prints
// them about what does not build, are shown as they are.
func report(in io.Reader, out io.Writer) (ok bool, err error) {
	s := summary{out: out, said: map[key]*strings.Builder{}, skipped: map[string][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
	}
	if s.passed+s.failed == 0 {
		return false, fmt.Errorf("no tests were run")
	}
	s.end()
	return s.failed == 0, nil
}

func (s *summary) line(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		_, _ = io.WriteString(s.out, line)
		return
	}
	at := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		if s.said[at] == nil {
			s.said[at] = &strings.Builder{}
		}
		s.said[at].WriteString(e.Output)
		return
	case "build-output":
		_, _ = io.WriteString(s.out, e.Output)
		return
	case "build-fail":
		s.failed++
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	said := ""
	if b := s.said[at]; b != nil {
		said = b.String()
		delete(s.said, at)
	}
	if e.Test == "" {
		s.ended(e, said)
		return
	}
	switch e.Action {
	case "pass":
		s.passed++
	case "fail":
		s.failed++
		_, _ = io.WriteString(s.out, said)
	case "skip":
		why := reason(said)
		s.skipped[why] = append(s.skipped[why], e.Package+" "+e.Test)
	}
}

// ended shows the line of a package, and of one that failed what none of its tests said.
func (s *summary) ended(e event, said string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok    %-60s %7.1f s\n", e.Package, e.Elapsed)
	case "fail":
		s.failed++
		// A test that ended with the process, by a panic or its time, has no end of its own.
		for at, b := range s.said {
			if at.pkg == e.Package {
				_, _ = io.WriteString(s.out, b.String())
				delete(s.said, at)
			}
		}
		_, _ = io.WriteString(s.out, said)
		fmt.Fprintf(s.out, "FAIL  %-60s %7.1f s\n", e.Package, e.Elapsed)
	}
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

// end shows what was skipped, by reason.
func (s *summary) end() {
	n := 0
	for _, why := range slices.Sorted(maps.Keys(s.skipped)) {
		if n == 0 {
			fmt.Fprintln(s.out, "\nSkipped:")
		}
		tests := s.skipped[why]
		n += len(tests)
		fmt.Fprintf(s.out, "  %s\n", why)
		for _, test := range tests[:min(len(tests), 3)] {
			fmt.Fprintf(s.out, "      %s\n", test)
		}
		if more := len(tests) - 3; more > 0 {
			fmt.Fprintf(s.out, "      and %d more\n", more)
		}
	}
	fmt.Fprintf(s.out, "\n%d tests passed, %d failed, %d skipped.", s.passed, s.failed, n)
	if n > 0 {
		fmt.Fprint(s.out, " `make test-long` also runs the long form; what this machine lacks is named above.")
	}
	fmt.Fprintln(s.out)
}
