// Command testrun runs `go test` commands one after the other and says how they ended: what failed with all that it said, the slowest
// packages, what was skipped and why, and a last line "N passed, N failed". It ends with code 1 when something failed.
//
//	testrun [-again N] [-skips N] COMMAND...
//
// Each COMMAND is one argument, a line such as "go test -race ./streams/..."; variables may stand before it, as in a shell. It must not
// have flags whose value is an argument of its own: write -run=X.
//
// With -again N, what failed is run again when all commands have ended, alone and up to N times: each test on its own, or the whole
// package where a panic, a timeout or an exit left tests without an end. What passes then is named as unsteady in the last lines and
// does not count as failed. That a race was seen in code of a dependency alone is named too; such a test is run again without the
// detector. What does not build, a race in our own code, and more than twenty failures are never run again.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	again := flag.Int("again", 0, "how often to run again what failed")
	skips := flag.Int("skips", 3, "how many tests to name for each reason of being skipped; 0: count them by kind of reason")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, `testrun: name a command, as in testrun "go test ./..."`)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r := runner{out: os.Stdout, again: *again, skips: *skips, run: execute}
	ok := r.all(ctx, flag.Args())
	stop()
	if !ok {
		os.Exit(1)
	}
}

// command is one go test command.
type command struct {
	env   []string // NAME=value
	flags []string
	pkgs  []string
}

// parse parses a command line, which cannot have quotes.
func parse(line string) (command, error) {
	var c command
	words := strings.Fields(line)
	for len(words) > 0 && strings.Contains(words[0], "=") {
		c.env, words = append(c.env, words[0]), words[1:]
	}
	if len(words) < 3 || words[0] != "go" || words[1] != "test" {
		return c, fmt.Errorf("%q is not a go test command: write it as \"go test -race ./streams\"", line)
	}
	for _, w := range words[2:] {
		if strings.HasPrefix(w, "-") {
			c.flags = append(c.flags, w)
		} else {
			c.pkgs = append(c.pkgs, w)
		}
	}
	if len(c.pkgs) == 0 {
		return c, fmt.Errorf("%q does not name packages: add ./... or some of them", line)
	}
	return c, nil
}

// args returns the arguments of go. The packages come first: after a flag of the tests go would pass them to the tests.
func (c command) args() []string {
	return append(append([]string{"test", "-json"}, c.pkgs...), c.flags...)
}

// alone returns the command for one package, and if pattern is not empty for one test of it.
func (c command) alone(pkg, pattern string, detector bool) command {
	out := command{env: c.env, pkgs: []string{pkg}}
	for _, f := range c.flags {
		name, _, _ := strings.Cut(f, "=")
		if name == "-p" || name == "-count" || name == "-run" && pattern != "" || name == "-race" && !detector {
			continue
		}
		out.flags = append(out.flags, f)
	}
	out.flags = append(out.flags, "-count=1")
	if pattern != "" {
		out.flags = append(out.flags, "-run="+pattern)
	}
	return out
}

// execute runs go with the command's arguments and writes its output to out. Failed tests are no error.
func execute(ctx context.Context, c command, out io.Writer) error {
	const patience = 10 * time.Second // go test stops its tests on an interrupt
	cmd := exec.CommandContext(ctx, "go", c.args()...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout = out
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	err := cmd.Run()
	if _, werr := out.Write(said.Bytes()); werr != nil {
		return werr
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cmd.ProcessState == nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
