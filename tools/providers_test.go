//go:build linux

package tools_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
	"github.com/sandjet/sandjet/tools/toolstest"
)

const account = "acct_1"

// moved moves the folder of a case to below root, where the provider keeps its workspaces, calls f with it there, and moves it back.
func moved(tb testing.TB, root, dir string, n int64, f func(m providers.Mount, dir string)) {
	tb.Helper()
	m := providers.Mount{Namespace: fmt.Sprintf("fs-%d", n)}
	there := filepath.Join(root, m.Namespace)
	if err := os.Rename(dir, there); err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := os.Rename(there, dir); err != nil {
			tb.Error(err)
		}
	}()
	f(m, there)
}

// run carries a compiled call out on a provider.
func run(ctx context.Context, tb testing.TB, p providers.Provider, m providers.Mount, c schemas.Call, input any) schemas.Result {
	tb.Helper()
	plan, err := tools.Compile(c, input)
	if err != nil {
		return refused(c, err)
	}
	cmd := plan.Command()
	cmd.Dir, cmd.Mounts, cmd.Timeout = m.Path(), []providers.Mount{m}, time.Minute
	cmd.Spec = providers.Spec{Account: account, Mounts: cmd.Mounts, Network: schemas.Network{Mode: schemas.DenyAll}}
	cmd.Network = cmd.Spec.Network
	r, err := p.Run(ctx, cmd)
	if err != nil {
		tb.Fatalf("run: %v", err)
	}
	result := plan.Render(r)
	if result.Error != nil && result.Error.Code == schemas.Unavailable {
		tb.Logf("stdout: %.500q\nstderr: %s", r.Stdout, r.Stderr)
	}
	return result
}

func refused(c schemas.Call, err error) schemas.Result {
	e := schemas.Public(err)
	return schemas.Result{Call: c.ID, Tool: c.Tool, Status: schemas.StatusFailed, Error: e, Text: "Error: " + e.Message}
}

func TestBareProvider(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of compiled tools once more, by a provider that isolates nothing")
	dir := t.TempDir()
	p := providertest.NewBare(dir)
	root := filepath.Join(dir, "workspaces")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	toolstest.Run(t, func(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) (r schemas.Result) {
		tb.Helper()
		moved(tb, root, dir, n.Add(1), func(m providers.Mount, _ string) { r = run(ctx, tb, p, m, c, input) })
		return r
	}, nil)
}

// openLocal opens the local provider where this host can isolate.
func openLocal(t *testing.T) (p *local.Provider, root string) {
	t.Helper()
	state := t.TempDir()
	root = filepath.Join(state, "workspaces")
	p, err := local.New(local.Options{StateDir: filepath.Join(state, "state"), Workspaces: root, Pool: -1})
	if errors.Is(err, schemas.ErrUnsupported) {
		longtest.Missing(t, "this host cannot isolate: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, root
}

// give makes the owner of the workspace the owner of every file in it, as if a sandbox had created them.
func give(tb testing.TB, p *local.Provider, m providers.Mount, dir string) {
	tb.Helper()
	root, err := p.OpenWorkspace(tb.Context(), account, m) // it gives the folder away
	if err != nil {
		tb.Fatal(err)
	}
	if err := root.Close(); err != nil {
		tb.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		tb.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(stat.Uid), int(stat.Gid)))
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func TestLocalProviderInBoxes(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of compiled tools once more, in boxes")
	p, root := openLocal(t)
	var n atomic.Int64
	toolstest.Run(t, func(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) (r schemas.Result) {
		tb.Helper()
		moved(tb, root, dir, n.Add(1), func(m providers.Mount, dir string) {
			give(tb, p, m, dir)
			r = run(ctx, tb, p, m, c, input)
		})
		return r
	}, nil)
}

func TestLocalProviderNatively(t *testing.T) {
	t.Parallel()
	p, root := openLocal(t)
	var n atomic.Int64
	toolstest.Run(t, func(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) (r schemas.Result) {
		tb.Helper()
		moved(tb, root, dir, n.Add(1), func(m providers.Mount, dir string) {
			give(tb, p, m, dir)
			files, err := p.OpenWorkspace(ctx, account, m)
			if err != nil {
				tb.Fatal(err)
			}
			defer func() {
				if err := files.Close(); err != nil {
					tb.Error(err)
				}
			}()
			var handled bool
			if r, handled, err = tools.RunNative(ctx, files, c, input); err != nil {
				r = refused(c, err)
			} else if !handled {
				tb.Fatalf("%s is not handled", c.Tool)
			}
		})
		return r
	}, nil)
}

// TestOneNameForAFile: names of files that the file tools print can be passed to bash, and names that commands print can be passed to the
// file tools, in both dialects.
func TestOneNameForAFile(t *testing.T) {
	t.Parallel()
	p, root := openLocal(t)
	if level := p.Profile().Isolation.Level; level != "L3" {
		t.Skipf("at level %s a box has no root of its own, and shows the host's paths", level)
	}
	const ws = "ws_1"
	m := providers.Mount{Namespace: schemas.Namespace(account, ws)}
	dir := filepath.Join(root, m.Namespace)
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o700); err != nil {
		t.Fatal(err)
	}
	give(t, p, m, dir)
	for _, d := range []schemas.Dialect{schemas.DialectClaude, schemas.DialectDeepAgents} {
		carry := func(tool schemas.Tool, input any) schemas.Result {
			t.Helper()
			return run(t.Context(), t, p, m, schemas.Call{ID: "call_1", Account: account, Workspace: ws, Tool: tool, Dialect: d}, input)
		}
		bash := func(command string) string {
			t.Helper()
			r := carry(schemas.ToolBash, schemas.BashInput{Command: command})
			if r.Output.ExitCode != 0 {
				t.Fatalf("%s: %s: %s", d, command, r.Text)
			}
			return strings.TrimSpace(r.Output.Stdout)
		}
		for name, printed := range map[string]string{
			"working directory": bash("echo $PWD/src/a.py"), "resolved": bash("touch src/a.py; readlink -f src/a.py"),
			"short": bash("cd /workspace/src && ls /workspace/src/a.py"),
		} {
			if r := carry(schemas.ToolWrite, schemas.WriteInput{FilePath: printed, Content: name}); r.Status != schemas.StatusCompleted {
				t.Errorf("%s: write to %s, as bash prints it: %s", d, printed, r.Text)
			}
			if got := bash("cat src/a.py"); got != name {
				t.Errorf("%s: what was written to %s is not in src/a.py: %q", d, printed, got)
			}
		}
		found, ok := carry(schemas.ToolGlob, schemas.GlobInput{Pattern: "**/*.py", Path: bash("pwd -P")}).Output.Data.(tools.GlobData)
		if !ok || len(found.Paths) != 1 {
			t.Fatalf("%s: found %+v", d, found)
		}
		if got := bash("cat " + found.Paths[0]); got == "" {
			t.Errorf("%s: bash finds nothing in %s, as glob prints it", d, found.Paths[0])
		}
		for _, outside := range []string{"/etc/passwd", "/tmp/x", "/mnt/workspaces/fs-other/x", "/home/sandbox/x"} {
			r := carry(schemas.ToolWrite, schemas.WriteInput{FilePath: outside, Content: "x"})
			if r.Error == nil || r.Error.Code != schemas.Invalid || !strings.Contains(r.Text, "outside the workspace") {
				t.Errorf("%s: write to %s: %s", d, outside, r.Text)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: the workspace has %v, %v", d, left, err)
		}
	}
}
