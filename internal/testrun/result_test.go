package main

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

// said makes the events of a run: a line is "ACTION PACKAGE TEST OUTPUT", with - for no test.
func said(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		f := strings.SplitN(l, " ", 4)
		if f[2] == "-" {
			f[2] = ""
		}
		output := ""
		if len(f) == 4 {
			output = f[3] + "\n"
		}
		fmt.Fprintf(&b, "{\"Action\":%q,\"Package\":%q,\"Test\":%q,\"Output\":%q,\"Elapsed\":1.5}\n", f[0], f[1], f[2], output)
	}
	return b.String()
}

var (
	fine = []string{"run x/fine TestFine", "output x/fine TestFine a quiet word", "pass x/fine TestFine", "pass x/fine -"}
	part = []string{
		"run x/part TestB", "run x/part TestB/one_(a)", "output x/part TestB/one_(a) a loud word", "fail x/part TestB/one_(a)",
		"fail x/part TestB", "fail x/part -",
	}
	panics = []string{
		"run x/panics TestP", "run x/panics TestQ", "output x/panics TestP panic: no", "fail x/panics TestP", "fail x/panics -",
	}
	exits   = []string{"run x/exits TestE", "pass x/exits TestE", "output x/exits - goroutines are left", "fail x/exits -"}
	timeout = []string{"run x/long TestL", "output x/long TestL panic: test timed out after 1s", "fail x/long -"}
)

const unbuilt = `{"ImportPath":"x/bad","Action":"build-output","Output":"bad.go:1:1: no\n"}
{"ImportPath":"x/bad","Action":"build-fail"}
{"Action":"fail","Package":"x/bad","Elapsed":0,"FailedBuild":"x/bad"}
`

// raced is a run with a report of the race detector, whose accesses are by these functions.
func raced(pkg, one, other string) string {
	at := "output " + pkg + " TestR "
	return said("run "+pkg+" TestR", at+"==================", at+"WARNING: DATA RACE", at+"Write at 0x00c0000b4010 by goroutine 8:",
		at+"  internal/race.Write()", at+"      /go/src/internal/race/race.go:1 +0x1", at+"  "+one+"()", at+"      /x/one.go:1 +0x1",
		at+"  "+own+"x.caller()", at+"      /x/caller.go:1 +0x1", at, at+"Previous read at 0x00c0000b4010 by goroutine 7:",
		at+"  "+other+"()", at+"      /x/other.go:1 +0x1", at, at+"Goroutine 8 (running) created at:", at+"  "+own+"x.TestR()",
		at+"      /x/x_test.go:1 +0x1", at+"==================", at+"    testing.go:1: race detected during execution of test",
		"fail "+pkg+" TestR", "fail "+pkg+" -")
}

// script answers commands in turn, the last one for ever, and notes what they were.
type script struct {
	answers []string
	asked   []string
}

func (s *script) run(_ context.Context, c command, out io.Writer) error {
	s.asked = append(s.asked, strings.Join(append(c.env, c.args()...), " "))
	_, err := io.WriteString(out, s.answers[min(len(s.asked), len(s.answers))-1])
	return err
}

func TestWhatFailsIsRunAgain(t *testing.T) {
	t.Parallel()
	const line = "A=b go test -race -p=3 -count=1 -timeout=5m ./..."
	first := "A=b test -json ./... -race -p=3 -count=1 -timeout=5m"
	alone := func(pkg, pattern string) string {
		return strings.Join(strings.Fields("A=b test -json "+pkg+" -race -timeout=5m -count=1 "+pattern), " ")
	}
	both := said(append(append([]string{}, fine...), part...)...)
	one := `-run=^TestB$/^one_\(a\)$`
	for name, c := range map[string]struct {
		answers []string
		asked   []string // after the first
		ok      bool
		shows   []string
		hides   string
	}{
		"nothing fails": {[]string{said(fine...)}, nil, true, []string{"\n1 passed, 0 failed\n"}, "word"},
		"it passes at the second time": {
			[]string{both, said(part...), said(fine...)},
			[]string{alone("x/part", one), alone("x/part", one)},
			true,
			[]string{"a loud word", "unsteady: x/part TestB/one_(a)\n1 passed, 0 failed\n"}, "quiet",
		},
		"it fails each time": {
			[]string{both}, []string{alone("x/part", one), alone("x/part", one), alone("x/part", one)},
			false,
			[]string{"failed: x/part TestB/one_(a)\n1 passed, 2 failed\n"}, "quiet",
		},
		"a panic": {
			[]string{said(panics...), said(fine...)}, []string{alone("x/panics", "")}, true,
			[]string{"panic: no", "unsteady: x/panics\n"}, "",
		},
		"a panic each time": {
			[]string{said(panics...)}, []string{alone("x/panics", ""), alone("x/panics", ""), alone("x/panics", "")}, false,
			[]string{"failed: x/panics\n"}, "",
		},
		"a timeout":                 {[]string{said(timeout...), said(fine...)}, []string{alone("x/long", "")}, true, []string{"timed out"}, ""},
		"something left at the end": {[]string{said(exits...), said(fine...)}, []string{alone("x/exits", "")}, true, []string{"are left"}, ""},
		"no build":                  {[]string{unbuilt}, nil, false, []string{"bad.go:1:1: no", "failed: x/bad: not built\n"}, ""},
		"no tests":                  {[]string{"go: no such tool\n"}, nil, false, []string{"go: no such tool", "no test was run"}, ""},
		"a race of ours": {
			[]string{raced("x/race", own+"x.(*T).f", "example.com/dep.g")}, nil, false,
			[]string{"WARNING: DATA RACE", "failed: x/race: a data race\n"}, "",
		},
		"a race in a dependency": {
			[]string{raced("x/race", "example.com/dep.f", "example.com/dep.g"), said(fine...)},
			[]string{strings.ReplaceAll(alone("x/race", "-run=^TestR$"), "-race ", "")}, true,
			[]string{"race in a dependency: x/race\nunsteady: x/race TestR\n"}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := script{answers: c.answers}
			var out strings.Builder
			r := runner{out: &out, again: 3, skips: 3, run: s.run}
			if ok := r.all(t.Context(), []string{line}); ok != c.ok {
				t.Errorf("%t, want %t", ok, c.ok)
			}
			if want := append([]string{first}, c.asked...); !reflect.DeepEqual(s.asked, want) {
				t.Errorf("it ran\n%q, want\n%q", s.asked, want)
			}
			for _, want := range c.shows {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it does not show %q:\n%s", want, out.String())
				}
			}
			if c.hides != "" && strings.Contains(out.String(), c.hides) {
				t.Errorf("it shows %q:\n%s", c.hides, out.String())
			}
		})
	}
}

func TestManyFailuresAreNoChance(t *testing.T) {
	t.Parallel()
	var lines []string
	for n := range mostAgain + 1 {
		lines = append(lines, fmt.Sprintf("run x/many Test%d", n), fmt.Sprintf("fail x/many Test%d", n))
	}
	s := script{answers: []string{said(append(lines, "fail x/many -")...)}}
	r := runner{out: io.Discard, again: 3, run: s.run}
	if r.all(t.Context(), []string{"go test ./..."}) || len(s.asked) != 1 {
		t.Errorf("%q", s.asked)
	}
}

func TestSkippedTestsAreListedByReason(t *testing.T) {
	t.Parallel()
	s := script{answers: []string{said(append([]string{
		"run x/a TestLong", "output x/a TestLong     a_test.go:9: only in the long form: a minute", "skip x/a TestLong", "pass x/a -",
	}, fine...)...)}}
	var out strings.Builder
	r := runner{out: &out, skips: 1, run: s.run}
	if ok := r.all(t.Context(), []string{"go test ./..."}); !ok {
		t.Error("it failed")
	}
	for _, want := range []string{"skipped 1: only in the long form: a minute\n      x/a TestLong\n", "\n1 passed, 0 failed, 1 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not show %q:\n%s", want, out.String())
		}
	}
	out.Reset()
	r.skips = 0
	if ok := r.all(t.Context(), []string{"go test ./..."}); !ok || !strings.Contains(out.String(), "skipped 1: only in the long form\n   1 passed") {
		t.Errorf("%t:\n%s", ok, out.String())
	}
}

func TestCommandsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"", "go test", "go test -race", "go vet ./...", "A=b"} {
		if c, err := parse(line); err == nil {
			t.Errorf("%q is %+v", line, c)
		}
	}
}
