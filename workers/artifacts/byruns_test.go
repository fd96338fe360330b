//go:build linux

package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/schemas"
)

// shell is a way to run scripts on this host: a shell and the folders of its programs.
type shell struct {
	path string
	args []string
}

// shells are bash with this host's programs, and busybox's shell with nothing but busybox's programs.
func shells(t *testing.T) map[string]shell {
	t.Helper()
	all := map[string]shell{"bash": {os.Getenv("PATH"), []string{"bash"}}}
	if !longtest.Asked() {
		return all
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		longtest.Missing(t, "busybox")
	}
	programs := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), busybox, "--install", "-s", programs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all["busybox"] = shell{programs, []string{busybox, "sh"}}
	return all
}

// byRuns has the files of a desk reached by runs, and returns what the runs since the last call were asked.
func (d *desk) byRuns(s shell) (asked func() []string) {
	var questions []string
	d.fsys = runfs.New(runfs.Options{ReadOnly: true, Run: func(ctx context.Context, c providers.Command) (r providers.Result, err error) {
		questions = append(questions, strings.SplitN(string(c.Stdin), "\n", 3)[1])
		cmd := exec.CommandContext(ctx, s.args[0], append(s.args[1:], "-c", c.Script)...)
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.dir, []string{"PATH=" + s.path}, bytes.NewReader(c.Stdin), &stdout, &stderr
		err = cmd.Run()
		r.Stdout, r.Stderr = stdout.Bytes(), stderr.Bytes()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			r.ExitCode, err = exit.ExitCode(), nil
		}
		return r, err
	}})
	return func() []string {
		all := questions
		questions = nil
		return all
	}
}

// TestLooksByRunsAreFewRuns: one before a call, one after it, one for digests of what is not known, and one for each small file that is read.
func TestLooksByRunsAreFewRuns(t *testing.T) {
	t.Parallel()
	for name, s := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			asked := d.byRuns(s)
			c := d.collector("call_1", "*.txt", "*.csv", "a/b/**/*.png", "missing/folder/*", "outputs/*")
			expect := func(what string, want ...string) {
				t.Helper()
				if got := asked(); !slices.Equal(got, want) {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			for n := range 2 * schemas.MaxArtifacts { // more than are artifacts
				d.write(fmt.Sprintf("outputs/old/%d/old", n), strings.Repeat("x", n))
			}
			d.write("a/b/c/d/e.png", "old")
			before := d.look(c)
			expect("before", "trees", "sums")
			if got := d.found(c, before); got != "" {
				t.Errorf("nothing was changed: %q", got)
			}
			expect("after nothing", "trees", "sums")
			d.write("outputs/new", "new")
			d.write("a/b/c/d/e.png", "new")
			d.write("outputs/old/1/old", "x")
			if got := d.found(c, before); got != "a/b/c/d/e.png=new outputs/new=new" {
				t.Errorf("got %q", got)
			}
			expect("after", "trees", "sums", "read", "read")
		})
	}
}

// TestNothingIsKeptOfAFileThatChangesBetweenRuns: the pieces of one artifact are of one version.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
func TestNothingIsKeptOfAFileThatChangesBetweenRuns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.byRuns(shells(t)["bash"])
	c := d.collector("call_1")
	before := d.look(c)
	big := strings.Repeat("0123456789abcdef", 1<<16)
	d.write("outputs/a", big)
	d.write("outputs/b", big)
	store, n := c.Store.Chunk, 0
	c.Store.Chunk = func(ctx context.Context, data []byte) (string, error) {
		if n++; n == 1 || n == 3 { // both times that the first is read
			d.must(os.Chtimes(d.path("outputs/a"), time.Time{}, time.Unix(int64(n), 0)))
		}
		return store(ctx, data)
	}
	if got, want := d.found(c, before), "outputs/b=0123456789abcdef0123 outputs/a!changed_while_read"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTooManyEntriesByRuns are said, and what is in other places counts.
//
//guarantee:bounds
func TestTooManyEntriesByRuns(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "a folder of more than ten thousand files")
	d := newDesk(t)
	d.byRuns(shells(t)["bash"])
	c := d.collector("call_1", "report.pdf")
	before := d.look(c)
	for n := range schemas.MaxArtifactsSeen + 1 {
		d.write(fmt.Sprint("outputs/", n), "")
	}
	d.write("report.pdf", "r")
	if got, want := d.found(c, before), "report.pdf=r outputs!too_many_entries"; got != want {
		t.Errorf("got %.200q, want %q", got, want)
	}
}
