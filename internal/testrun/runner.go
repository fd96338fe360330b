package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	mostAgain    = 20 // more failures are not considered accidental
	mostSlow     = 12 // maximum number of packages in the list of slow ones
	mostRaces    = 3  // maximum number of reports shown of one package
	worthNoting  = 10 // seconds after which a package counts as slow
	wordsOfOther = 200
)

// runner runs commands, and repeats what failed.
type runner struct {
	out   io.Writer
	again int
	skips int
	run   func(context.Context, command, io.Writer) error
}

// failure is a test, or a whole package, that failed and may be run again.
type failure struct {
	command command
	pkg     string
	test    string // empty: the whole package
	foreign bool   // there was a race, but only in a dependency
}

func (f failure) String() string {
	if f.test == "" {
		return f.pkg
	}
	return f.pkg + " " + f.test
}

// tally is the sum of the results of all commands.
type tally struct {
	passed, failed, skipped int
	final                   []string // failures that are not run again
	again                   []failure
	races                   []string // packages with a race in a dependency
}

// all runs the commands and then repeats the failures. It returns true if nothing failed, or every failure passed when repeated.
func (r runner) all(ctx context.Context, lines []string) bool {
	var t tally
	for _, line := range lines {
		if err := r.one(ctx, line, &t); err != nil {
			fmt.Fprintf(r.out, "%v\n", err)
			t.failed++
			t.final = append(t.final, line)
		}
	}
	unsteady := r.repeat(ctx, &t)
	for _, p := range t.races {
		fmt.Fprintf(r.out, "race in a dependency: %s\n", p)
	}
	for _, f := range unsteady {
		fmt.Fprintf(r.out, "unsteady: %s\n", f)
	}
	for _, f := range t.final {
		fmt.Fprintf(r.out, "failed: %s\n", f)
	}
	if t.skipped > 0 {
		fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	} else {
		fmt.Fprintf(r.out, "%d passed, %d failed\n", t.passed, t.failed)
	}
	return t.failed == 0 && len(t.final) == 0
}

// one runs a command, prints its outcome, and adds it to the tally.
func (r runner) one(ctx context.Context, line string, t *tally) error {
	c, err := parse(line)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "== %s\n", line)
	began := time.Now()
	res, err := r.read(ctx, c)
	if err != nil {
		return err
	}
	if res.passed+res.failed == 0 {
		r.others(res)
		return fmt.Errorf("no test was run: %s", line)
	}
	r.show(res)
	fmt.Fprintf(r.out, "   %d passed, %d failed, %.0f s\n", res.passed, res.failed, time.Since(began).Seconds())
	t.add(c, res)
	return nil
}

func (r runner) read(ctx context.Context, c command) (result, error) {
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.run(ctx, c, out)
		_ = out.Close()
		ended <- err
	}()
	res, err := read(in)
	if runErr := <-ended; runErr != nil {
		return res, runErr
	}
	return res, err
}

// add adds a result to the tally and classifies its failures.
func (t *tally) add(c command, res result) {
	t.passed += res.passed
	t.failed += res.failed
	for _, tests := range res.skipped {
		t.skipped += len(tests)
	}
	for _, p := range res.packages {
		ours := slices.ContainsFunc(p.races, func(r race) bool { return r.ours })
		if len(p.races) > 0 && !ours {
			t.races = append(t.races, p.path)
		}
		foreign := len(p.races) > 0
		switch {
		case !p.failed:
		case p.unbuilt:
			t.final = append(t.final, p.path+": not built")
		case ours:
			t.final = append(t.final, p.path+": a data race")
		case p.cut:
			t.again = append(t.again, failure{c, p.path, "", foreign})
		default:
			for _, test := range p.leaves() {
				t.again = append(t.again, failure{c, p.path, test, foreign})
			}
		}
	}
}

// repeat runs the failures again and returns those that passed. The others become final.
func (r runner) repeat(ctx context.Context, t *tally) (unsteady []failure) {
	if r.again == 0 || len(t.again) > mostAgain {
		for _, f := range t.again {
			t.final = append(t.final, f.String())
		}
		return nil
	}
	for _, f := range t.again {
		if r.passes(ctx, f) {
			unsteady = append(unsteady, f)
		} else {
			t.final = append(t.final, f.String())
		}
	}
	if len(t.final) == 0 {
		t.failed = 0 // all of them have passed when run alone
	}
	return unsteady
}

func (r runner) passes(ctx context.Context, f failure) bool {
	c := f.command.alone(f.pkg, "", !f.foreign)
	if f.test != "" {
		c = f.command.alone(f.pkg, pattern(f.test), !f.foreign)
	}
	for n := range r.again {
		fmt.Fprintf(r.out, "== again, %d of %d: %s\n", n+1, r.again, f)
		res, err := r.read(ctx, c)
		if err != nil {
			fmt.Fprintf(r.out, "   %v\n", err)
			return false
		}
		if res.failed == 0 && res.passed > 0 {
			fmt.Fprintf(r.out, "   passed\n")
			return true
		}
		r.failures(res)
	}
	return false
}

// show prints the failures, the slow packages, and the skipped tests.
func (r runner) show(res result) {
	r.failures(res)
	slow := slices.Clone(res.packages)
	slices.SortFunc(slow, func(a, b *pkg) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, p := range slow[:min(len(slow), mostSlow)] {
		if p.seconds >= worthNoting {
			fmt.Fprintf(r.out, "   %6.1f s  %s\n", p.seconds, strings.TrimPrefix(p.path, own))
		}
	}
	skipped := res.skipped
	if r.skips == 0 {
		skipped = byKind(skipped)
	}
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		tests := skipped[why]
		fmt.Fprintf(r.out, "   skipped %d: %s\n", len(tests), why)
		for _, test := range tests[:min(len(tests), r.skips)] {
			fmt.Fprintf(r.out, "      %s\n", strings.TrimPrefix(test, own))
		}
	}
}

// byKind joins reasons with the same beginning, up to a colon.
func byKind(reasons map[string][]string) map[string][]string {
	kinds := map[string][]string{}
	for why, tests := range reasons {
		kind, _, _ := strings.Cut(why, ": ")
		kinds[kind] = append(kinds[kind], tests...)
	}
	return kinds
}

func (r runner) others(res result) {
	for _, line := range res.others[:min(len(res.others), wordsOfOther)] {
		fmt.Fprintf(r.out, "   %s\n", line)
	}
}

func (r runner) failures(res result) {
	if !slices.ContainsFunc(res.packages, func(p *pkg) bool { return p.failed }) {
		return
	}
	r.others(res)
	for _, p := range res.packages {
		if !p.failed {
			continue
		}
		fmt.Fprintf(r.out, "---- FAIL %s\n", p.path)
		for _, one := range p.races[:min(len(p.races), mostRaces)] {
			fmt.Fprint(r.out, one.text)
		}
		for _, test := range p.leaves() {
			fmt.Fprint(r.out, p.said[test])
		}
		if !p.cut {
			continue
		}
		for _, test := range slices.Sorted(maps.Keys(p.said)) { // tests that did not end, and the output of no test
			if !slices.Contains(p.failing, test) {
				fmt.Fprint(r.out, p.said[test])
			}
		}
	}
}
