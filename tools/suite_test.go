package tools

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools/toolstest"
)

var update = flag.Bool("update", false, "rewrite the goldens from what this process finds")

// carryNative carries a call out in this process.
func carryNative(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) schemas.Result {
	tb.Helper()
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := root.Close(); err != nil {
			tb.Error(err)
		}
	}()
	r, handled, err := RunNative(ctx, root, c, input)
	if err != nil {
		return refusedCall(c, err)
	}
	if !handled {
		tb.Fatalf("%s is not handled", c.Tool)
	}
	return r
}

// carryObjects carries a call out in this process, on files that are in an object store.
func carryObjects(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) schemas.Result {
	tb.Helper()
	store := providertest.NewObjects()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		must(err)
		var content []byte
		switch {
		case info.Mode().IsRegular():
			content, err = os.ReadFile(path) // of this test
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			target, err = os.Readlink(path)
			content = []byte(target)
		}
		must(err)
		store.Put(strings.TrimPrefix(path, dir+"/"), info.Mode(), content, info.ModTime())
		return nil
	}))
	files := store.FS(false)
	r, handled, err := RunNative(ctx, files, c, input)
	if err != nil {
		return refusedCall(c, err)
	}
	if !handled {
		tb.Fatalf("%s is not handled", c.Tool)
	}
	// What the call made and wrote is taken to the folder, where the suite looks.
	must(workspacefs.WalkSorted(ctx, files, "", workspacefs.Bounds{Entries: 1 << 20, Bytes: 1 << 30},
		func(name string, e workspacefs.Entry) error {
			path := filepath.Join(dir, name)
			if e.Type.IsDir() {
				return os.MkdirAll(path, 0o755)
			}
			if !e.Type.IsRegular() || strings.Contains(name, "\n") { // no tool writes such
				return nil
			}
			content, _, err := workspacefs.ReadFile(ctx, files, name, 64<<20)
			must(err)
			if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, content) {
				return nil
			}
			return os.WriteFile(path, content, 0o644) // of this test
		}))
	return r
}

// refusedCall is the result of a call that does not compile, as the worker makes it.
func refusedCall(c schemas.Call, err error) schemas.Result {
	e := schemas.Public(err)
	return schemas.Result{Call: c.ID, Tool: c.Tool, Status: schemas.StatusFailed, Error: e, Text: "Error: " + e.Message}
}

// shell carries calls out by a bare shell, with nothing in the environment but path.
func shell(name, path string) toolstest.Carry {
	return func(ctx context.Context, tb testing.TB, dir string, c schemas.Call, input any) schemas.Result {
		tb.Helper()
		p, err := Compile(c, input)
		if err != nil {
			return refusedCall(c, err)
		}
		r := runShell(ctx, tb, name, path, dir, p)
		result := p.Render(r)
		if len(r.Stderr) > 0 && result.Error != nil && result.Error.Code == schemas.Unavailable {
			tb.Logf("stderr: %s", r.Stderr)
		}
		return result
	}
}

func runShell(ctx context.Context, tb testing.TB, name, path, dir string, p Plan) providers.Result {
	tb.Helper()
	tmp := tb.TempDir()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if found, err := exec.LookPath(name); err == nil { // the path of the box may lack it
		name = found
	}
	cmd := exec.CommandContext(ctx, name, "-c", p.Script)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + path, "HOME=/nonexistent", "TMPDIR=" + tmp, "LANG=C.UTF-8"}
	cmd.Stdin = bytes.NewReader(p.Stdin)
	stdout, stderr := &buffer{}, &buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		tb.Fatal(err)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		tb.Errorf("left in the private directory: %v, %v", left, err)
	}
	return providers.Result{Runtime: "shell", ExitCode: cmd.ProcessState.ExitCode(), Stdout: stdout.b, Stderr: stderr.b, Started: true}
}

// programs is a PATH with links to the programs that the scripts may use, taken from the host.
func programs(tb testing.TB, except ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for _, name := range []string{
		"awk", "base64", "bash", "cat", "cut", "dd", "find", "grep", "head", "mkdir", "mktemp", "readlink", "rg", "rm", "sed",
		"sha256sum", "sh", "sort", "stat", "sync", "tail", "tr", "wc", "xargs",
	} {
		skip := false
		for _, e := range except {
			skip = skip || e == name
		}
		if path, err := exec.LookPath(name); err == nil && !skip {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return dir
}

// need skips the test when a program is absent, and fails it in CI.
func need(tb testing.TB, name string) {
	tb.Helper()
	if _, err := exec.LookPath(name); err != nil {
		longtest.Missing(tb, "%s is not installed", name)
	}
}

func TestNative(t *testing.T) {
	if *update {
		toolstest.Rewrite(t, "toolstest/testdata", carryNative)
		return
	}
	t.Parallel()
	toolstest.Run(t, carryNative, nil)
}

func TestNativeOnAnObjectStore(t *testing.T) {
	t.Parallel()
	const why = "an object has one name"
	toolstest.Run(t, carryObjects, map[string]string{"edit/hard-link": why, "write/hard-link": why})
}

func TestCompiledWithRipgrep(t *testing.T) {
	t.Parallel()
	need(t, "rg")
	toolstest.RunSome(t, shell("bash", programs(t)), nil, longtest.Scale(3, 1)) // a case starts several programs
}

func TestCompiledWithGrep(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of compiled tools once more, without ripgrep")
	toolstest.Run(t, shell("bash", programs(t, "rg")), nil)
}

func TestCompiledWithDash(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of compiled tools once more, with another shell and without ripgrep")
	need(t, "dash")
	toolstest.Run(t, shell("dash", programs(t, "rg", "bash")), nil)
}

// TestMissingProgram takes away each program that a script needs: that must be said, not taken for an
// empty result.
func TestMissingProgram(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		input any
		tool  schemas.Tool
		gone  []string
	}{
		{schemas.ReadInput{FilePath: "a"}, schemas.ToolRead, []string{"base64", "tail", "stat"}},
		{schemas.WriteInput{FilePath: "a", Content: "x"}, schemas.ToolWrite, []string{"dd", "mktemp"}},
		{schemas.EditInput{FilePath: "a", OldString: "x", NewString: "y"}, schemas.ToolEdit, []string{"awk", "tr"}},
		{schemas.GlobInput{Pattern: "*"}, schemas.ToolGlob, []string{"find", "xargs"}},
		{schemas.GrepInput{Pattern: "x"}, schemas.ToolGrep, []string{"grep", "sed"}},
		{schemas.LSInput{}, schemas.ToolLS, []string{"find", "stat", "xargs"}},
	} {
		for _, gone := range c.gone {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			r := shell("bash", programs(t, gone))(t.Context(), t, dir, schemas.Call{Tool: c.tool}, c.input)
			if r.Status != schemas.StatusFailed || r.Error.Code != schemas.Unsupported || !strings.HasSuffix(r.Text, ": "+gone) {
				t.Errorf("%s without %s: %s, %s", c.tool, gone, r.Status, r.Text)
			}
			if content, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(content) != "x" {
				t.Errorf("%s without %s changed the file: %q, %v", c.tool, gone, content, err)
			}
		}
	}
}

type buffer struct{ b []byte }

func (b *buffer) Write(p []byte) (int, error) {
	b.b = append(b.b, p...)
	return len(p), nil
}
