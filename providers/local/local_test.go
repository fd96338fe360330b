//go:build linux

package local_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/schemas"
)

// An ordinary user of the host.
const nobody = 65534

// open opens a provider at a level and closes it with tb.
func open(tb testing.TB, level string, change func(*local.Options)) *local.Provider {
	tb.Helper()
	dir := tb.TempDir()
	o := local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces"),
		Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}}
	if change != nil {
		change(&o)
	}
	p, err := local.NewAt(o, level)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// boxProgram builds sandjet-box.
func boxProgram(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	path := filepath.Join(dir, "sandjet-box")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path,
		"github.com/sandjet/sandjet/cmd/sandjet-box")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build sandjet-box: %v\n%s", err, out)
	}
	return path
}

// run runs script in a fresh box with a workspace.
func run(t *testing.T, p providers.Provider, script string) providers.Result {
	t.Helper()
	res, err := p.Run(t.Context(), command(script))
	if err != nil {
		t.Fatalf("Run: %v (stderr %.200q)", err, res.Stderr)
	}
	return res
}

func command(script string) providers.Command {
	const account = schemas.AccountID("acct_local")
	mounts := []providers.Mount{{Namespace: schemas.Namespace(account, "ws_1")}}
	return providers.Command{Script: script, Mounts: mounts, Spec: providers.Spec{Account: account, Mounts: mounts}}
}

func TestConformanceL3(t *testing.T) {
	t.Parallel()
	providertest.Test(t, func(tb testing.TB) providers.Provider { return open(tb, "L3", nil) }, providertest.Notifies(), providertest.Together(),
		providertest.Declares(local.Declared()))
}

func TestConformanceL3OwnBinary(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of L3 once more, with the box as a program of its own")
	program := boxProgram(t)
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		return open(tb, "L3", func(o *local.Options) { o.Box = program })
	}, providertest.Notifies(), providertest.Declares(local.Declared()))
}

func TestConformanceL2(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of L3 once more, at level L2")
	program := plainProgram(t)
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		return open(tb, "L2", func(o *local.Options) { o.Box = program })
	}, providertest.Notifies(), providertest.Declares(local.Declared()))
}

func TestConformanceUnisolated(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "the suite of L3 once more, where nothing is isolated; a bare provider passes it in providertest")
	program := plainProgram(t)
	providertest.Test(t, func(tb testing.TB) providers.Provider {
		return open(tb, "L0", func(o *local.Options) { o.AllowUnisolated, o.Box = true, program })
	}, providertest.Notifies(), providertest.Declares(local.Declared()))
}

// plainProgram is a box binary without the race detector, whose runtime takes a second to end and would
// do so for each box that has no pid namespace; empty, for this program itself, where that is plain.
func plainProgram(t *testing.T) string {
	t.Helper()
	if !raced {
		return ""
	}
	return boxProgram(t)
}

// TestAsOrdinaryUser runs this package's tests again as an ordinary user of the host.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // they are being run as one
	}
	longtest.Only(t, "this package's tests once more, as an ordinary user of the host")
	t.Parallel()
	dir, err := os.MkdirTemp("", "sandjet-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	levels := "L3"
	if !raced {
		levels = "L3|L2|Unisolated" // without a pid namespace the race detector's runtime keeps a box's init from exiting
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.short="+fmt.Sprint(testing.Short()),
		"-test.run=^Test.*("+levels+"|Worker|Leak|Pool)$")
	cmd.Dir = "/"
	cmd.Env = []string{"TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "CI=" + os.Getenv("CI")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		for line := range bytes.Lines(out) {
			if !bytes.Contains(line, []byte("--- PASS")) && !bytes.Contains(line, []byte("=== ")) {
				t.Logf("%.300s", line)
			}
		}
		t.Fatal(err)
	}
	if !bytes.Contains(out, []byte("--- PASS: TestConformanceL3")) {
		t.Fatal(fmt.Errorf("they were not run: %.500s", out))
	}
}
