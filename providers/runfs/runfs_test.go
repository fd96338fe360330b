//go:build linux

package runfs_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

// shell is a way to run scripts on this host: a shell and the folders of its programs.
type shell struct {
	name, path string
	args       []string
}

// shells are bash with this host's programs, and busybox's shell with nothing but busybox's programs.
func shells(t *testing.T) []shell {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		longtest.Missing(t, "busybox")
	}
	programs := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), busybox, "--install", "-s", programs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return []shell{
		{"bash", os.Getenv("PATH"), []string{"bash"}},
		{"busybox", programs, []string{busybox, "sh"}},
	}
}

// run runs scripts in a folder, with what a profile of the shell may print around them.
func (s shell) run(dir string, calls func(providers.Command)) runfs.Run {
	return func(ctx context.Context, c providers.Command) (r providers.Result, err error) {
		if calls != nil {
			calls(c)
		}
		cmd := exec.CommandContext(ctx, s.args[0], append(s.args[1:], "-c", "printf 'hello\nsandjet x ok'\n"+c.Script)...)
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, []string{"PATH=" + s.path}, bytes.NewReader(c.Stdin), &stdout, &stderr
		err = cmd.Run()
		r.Stdout, r.Stderr = stdout.Bytes(), stderr.Bytes()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			r.ExitCode, err = exit.ExitCode(), nil
		}
		if len(r.Stdout) > c.OutputLimit {
			r.Stdout, r.Truncated = r.Stdout[:c.OutputLimit], true
		}
		return r, err
	}
}

func (s shell) workspace(t *testing.T) (w providertest.Workspace, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	check := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return providertest.Workspace{
		Open: func(_ *testing.T, readOnly bool) workspacefs.FS {
			return runfs.New(runfs.Options{Run: s.run(dir, nil), ReadOnly: readOnly})
		},
		Symlink:  func(t *testing.T, target, name string) { t.Helper(); check(t, os.Symlink(target, at(name))) },
		HardLink: func(t *testing.T, old, name string) { t.Helper(); check(t, os.Link(at(old), at(name))) },
		FIFO:     func(t *testing.T, name string) { t.Helper(); check(t, syscall.Mkfifo(at(name), 0o644)) },
	}, dir
}

// TestRunFS: files by runs are files as any others. Here the runs are in no sandbox.
func TestRunFS(t *testing.T) {
	t.Parallel()
	for _, s := range shells(t) {
		var except []string
		if !longtest.Asked() { // each call is a run, so the two share the cases, and those of hundreds of runs are left out
			except = []string{"a long directory is listed to its end", "a link that is exchanged for a directory leads nowhere else",
				"a replaced file is whole at every moment", "names are sequences of bytes", "what is written is read, whole and in ranges"}
			others := map[string][]string{
				"bash": {"a mode says what a write does with what is there", "directories are made, listed and removed",
					"files and directories get other names", "links are followed below the root and nowhere else",
					"a read-only workspace is changed by nothing", "a tree is removed with all that is in it"},
				"busybox": {"a write over a file that has changed is refused", "a name that leads up is refused by every method",
					"a device is not opened", "a file with several names is not written", "a context that has ended ends every method",
					"a walk visits everything below, in order when asked"},
			}
			except = append(except, others[s.name]...)
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			providertest.RunFS(t, func(t *testing.T) providertest.Workspace {
				t.Helper()
				w, _ := s.workspace(t)
				return w
			}, except...)
		})
	}
}
