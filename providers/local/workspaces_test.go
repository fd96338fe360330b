//go:build linux

package local_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// look sweeps once as if so much had passed since the last look.
func look(t *testing.T, p *local.Provider, passed time.Duration, removed bool, unknown error) int {
	t.Helper()
	n, err := p.SweepWorkspaces(t.Context(), providers.WorkspaceSweep{Passed: passed, Held: func() error { return nil },
		Removed: func(context.Context, schemas.AccountID) (bool, error) { return removed, unknown }})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const day = 24 * time.Hour

//guarantee:bounds
func TestFilesOfARemovedAccountGoAfterAWeek(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces")}
	start := func() *local.Provider {
		p, err := local.NewAt(options, "L3")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := start()
	cmd := command(`mkdir -p shut/in deep && ln -s / all && chmod 0 shut/in shut && cd deep && for i in $(seq 300); do mkdir d && cd d || exit 1; done`)
	if res := run(t, p, cmd.Script); res.ExitCode != 0 {
		t.Fatalf("exit %d: %s", res.ExitCode, res.Stderr)
	}
	files := filepath.Join(options.Workspaces, cmd.Mounts[0].Namespace)
	strange := filepath.Join(options.Workspaces, "fs-strange") // nothing says whose it is
	if err := os.Mkdir(strange, 0o700); err != nil {
		t.Fatal(err)
	}
	there := func(want bool) {
		t.Helper()
		if _, err := os.Lstat(files); errors.Is(err, fs.ErrNotExist) == want {
			t.Fatalf("the files: %v, want them there: %v", err, want)
		}
	}
	look(t, p, 6*day, true, nil)
	look(t, p, 6*day, false, errors.New("the log is away"))
	there(true) // what is unknown neither counts nor ends the count
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = start() // the count survives the process
	look(t, p, 0, true, nil)
	there(true)
	look(t, p, day/2, true, nil)
	look(t, p, 0, false, nil) // the account is back
	look(t, p, 6*day, true, nil)
	there(true)

	ref, err := p.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if look(t, p, 30*day, true, nil) != 0 {
		t.Error("files were removed under a running sandbox")
	}
	there(true)
	other := start() // of another worker's sandbox it knows by the lock alone
	if look(t, other, 30*day, true, nil) != 0 {
		t.Error("files were removed under a sandbox of another worker")
	}
	there(true)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if n := look(t, p, day, true, nil); n != 1 {
		t.Errorf("%d workspaces were removed", n)
	}
	there(false)
	if _, err := os.Lstat(strange); err != nil {
		t.Errorf("files without an owner: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(options.Workspaces, ".removed-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if res := run(t, p, "ls -A"); string(res.Stdout) != "" {
		t.Errorf("an account made again finds %q", res.Stdout)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// A worker that dies while it removes leaves a directory out of use, or an owner without one, and one that dies while it writes a
// file leaves that without its name: the next look removes all of them.
//
//guarantee:bounds
func TestADeathWhileFilesAreRemovedLeavesNothing(t *testing.T) {
	t.Parallel()
	var dir string
	p := open(t, "L3", func(o *local.Options) { dir = o.Workspaces })
	run(t, p, "echo x >x")
	files := filepath.Join(dir, command("").Mounts[0].Namespace)
	if err := os.Rename(files, filepath.Join(dir, ".removed-1")); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{".new-old": 2 * day, ".new-young": time.Minute} {
		path := filepath.Join(dir, ".owners", name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the removal of all that is left", func() bool { // the sandbox of the call may still be ending
		look(t, p, 8*day, true, nil)
		var left []string
		for _, pattern := range []string{".removed-*", ".owners/*", "fs-*"} {
			found, _ := filepath.Glob(filepath.Join(dir, pattern))
			left = append(left, found...)
		}
		return len(left) == 1 && filepath.Base(left[0]) == ".new-young" // that may be being written
	})
}

// What cannot be known for certain is never removed: a damaged owner, a count that was made longer than it can be, a lost duty.
//
//guarantee:bounds
func TestFilesStayWhereNothingIsCertain(t *testing.T) {
	t.Parallel()
	var dir string
	p := open(t, "L3", func(o *local.Options) { dir = o.Workspaces })
	run(t, p, "echo x >x")
	name := command("").Mounts[0].Namespace
	owner := filepath.Join(dir, ".owners", name)
	if err := os.WriteFile(owner+".absent", []byte(`{"seconds":99999999}`), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "a count of an hour", func() bool { // the sandbox of the call may still be ending
		look(t, p, time.Hour, true, nil)
		data, err := os.ReadFile(owner + ".absent")
		return err == nil && string(data) == `{"seconds":3600}`
	})
	lost := errors.New("the duty is another's")
	asked := 0
	held := func() error {
		if asked++; asked == 1 {
			return nil
		}
		return lost // just before the removal
	}
	if _, err := p.SweepWorkspaces(t.Context(), providers.WorkspaceSweep{Passed: 8 * day, Held: held,
		Removed: func(context.Context, schemas.AccountID) (bool, error) { return true, nil }}); !errors.Is(err, lost) {
		t.Errorf("with a lost duty: %v", err)
	}
	if err := os.WriteFile(owner, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	look(t, p, 8*day, true, nil)
	if _, err := os.Lstat(filepath.Join(dir, name, "x")); err != nil {
		t.Errorf("the files: %v", err)
	}
}
