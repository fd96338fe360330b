//go:build linux

package local_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// homesIn lists the home folders that lie beside the workspaces.
func homesIn(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, ".home-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestHomeIsOnTheDisk: a box has a home folder of its own beside the workspace, which takes more than memory would,
// stays while the box is kept, is not seen in the workspace, and is gone with the box whatever lies in it.
func TestHomeIsOnTheDisk(t *testing.T) {
	t.Parallel()
	var dir string
	p := open(t, "L3", func(o *local.Options) { dir = o.Workspaces })
	run := func(cmd providers.Command) string {
		t.Helper()
		res, err := p.Run(t.Context(), cmd)
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("exit %d, %v: %s%s", res.ExitCode, err, res.Stdout, res.Stderr)
		}
		return strings.TrimSpace(string(res.Stdout))
	}
	cmd := command(`df --output=fstype "$HOME" | tail -1; head -c 100M /dev/zero >"$HOME/big" && stat -c %s "$HOME/big"; ls -A .; ls -A "$WORKSPACES" 2>/dev/null; id -un; echo "$USER"`)
	got := strings.Fields(run(cmd))
	if len(got) != 4 || got[0] == "tmpfs" || got[1] != "104857600" || got[2] != "sandbox" || got[3] != "sandbox" {
		t.Errorf("file system of HOME, size, names: %q", got)
	}
	ref, err := p.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Sandbox = ref
	cmd.Script = `echo kept >"$HOME/note"; mkdir -p "$HOME/a/b/c" "$HOME/shut/in"; ln -s / "$HOME/all"; echo x >"$HOME/shut/in/x"; chmod 0 "$HOME/shut/in" "$HOME/shut"
d=$HOME; for i in $(seq 300); do mkdir "$d/deep" && cd "$d/deep" || exit 1; d=.; done`
	run(cmd)
	cmd.Script = `cat "$HOME/note"`
	if got := run(cmd); got != "kept" {
		t.Errorf("the next call in the box finds %q", got)
	}
	if err := p.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); len(homesIn(t, dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v are left", homesIn(t, dir))
		}
	}
}

// TestHomesOfDeadWorkersGo: what a killed worker has left is removed by the next; what is held by a living one stays.
func TestHomesOfDeadWorkersGo(t *testing.T) {
	t.Parallel()
	var dir string
	p := open(t, "L3", func(o *local.Options) { dir = o.Workspaces })
	cmd := command("true")
	ref, err := p.Reserve(t.Context(), "kept", cmd.Spec)
	if err != nil {
		t.Fatal(err)
	}
	held := homesIn(t, dir)
	if len(held) != 1 {
		t.Fatalf("the kept box has %v", held)
	}
	left := filepath.Join(dir, ".home-left")
	if err := os.MkdirAll(filepath.Join(left, "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for _, d := range append(held, left) {
		if err := os.Chtimes(d, old, old); err != nil {
			t.Fatal(err)
		}
	}
	open(t, "L3", func(o *local.Options) { o.Workspaces = dir })
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a dead worker has left: %v", err)
	}
	if _, err := os.Stat(held[0]); err != nil {
		t.Errorf("what a living one holds: %v", err)
	}
	if err := p.Release(context.WithoutCancel(t.Context()), ref); err != nil {
		t.Error(err)
	}
}

// TestHomeHasAQuota: a home folder that grows above its limit ends what fills it, as a workspace does.
func TestHomeHasAQuota(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", func(o *local.Options) { o.HomeQuota = 20 << 20 })
	cmd := command(`for i in $(seq 600); do head -c 1M /dev/urandom >"$HOME/$i" || exit 3; sleep 0.05; done`)
	cmd.Timeout = time.Minute
	_, err := p.Run(t.Context(), cmd)
	if !errors.Is(err, schemas.ErrExhausted) || !strings.Contains(err.Error(), "--home-quota") {
		t.Errorf("it was not ended for its home folder: %v", err)
	}
}

// TestABoxIsAWorkingMachine: what scripts take for granted is there.
func TestABoxIsAWorkingMachine(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", nil)
	for script, needs := range map[string]string{
		"git init -q . && echo x >f && git add f && git commit -qm first && git log --format=%an": "git",
		`python -c 'print("Sandbox")'`: "python3",
	} {
		cmd := command("command -v " + needs + " >/dev/null || { echo Sandbox; exit; }; " + script)
		res, err := p.Run(t.Context(), cmd)
		if err != nil || strings.TrimSpace(string(res.Stdout)) != "Sandbox" {
			t.Errorf("%s: %q, %v, %s", script, res.Stdout, err, res.Stderr)
		}
	}
}
