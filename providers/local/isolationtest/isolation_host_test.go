//go:build linux

package isolationtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/local"
	"github.com/sandjet/sandjet/schemas"
)

// secret is what no box may ever print. It stands in a file, in the environment and in the
// arguments of processes outside, in another tenant's workspace, and behind a socket.
const secret = "canary-9d41f0"

const patience = 60 * time.Second

// host is the world outside of the boxes: a provider and everything that is worth reaching.
type host struct {
	provider   *local.Provider
	profile    providers.Profile
	workspaces string
	mount      providers.Mount
	env        map[string]string // where the things outside are, for the probes
	canary     *exec.Cmd         // a process outside
}

// newHost starts the provider and puts the canaries out. It fails when the provider's level is
// another than this run is about.
func newHost(t *testing.T) *host {
	t.Helper()
	t.Setenv("SANDJET_CANARY", secret)
	dir := t.TempDir()
	h := &host{workspaces: filepath.Join(dir, "workspaces"), mount: mountOf("acct_probe", "probe"), env: map[string]string{}}

	outside := filepath.Join(dir, "outside")
	writeFile(t, outside, secret)
	h.env["OUTSIDE"] = outside
	h.env["WORKSPACES"] = h.workspaces
	h.env["WORKER"] = strconv.Itoa(os.Getpid())

	h.canary = exec.CommandContext(context.WithoutCancel(t.Context()), "sleep", "3600")
	h.canary.Args[0] = secret
	if err := h.canary.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.canary.Process.Kill(); _ = h.canary.Wait() })
	h.env["OUTSIDE_PID"] = strconv.Itoa(h.canary.Process.Pid)

	listen(t, h.env, "tcp", "127.0.0.1:0", "TCP_PORT")
	listen(t, h.env, "unix", "@"+secret+"-"+h.env["WORKER"], "") // several runs on one host have one each
	listen(t, h.env, "unix", filepath.Join(dir, "socket"), "UNIX_SOCKET")

	p, err := newProvider(dir, box(t))
	if err != nil {
		t.Fatalf("the provider cannot be started: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	h.provider, h.profile = p, p.Profile()
	t.Logf("isolation: %+v", h.profile.Isolation)
	if h.profile.Isolation.Level != level() {
		t.Fatalf("this host gives level %s, this run is about %s: %+v", h.profile.Isolation.Level, level(), h.profile.Isolation)
	}
	h.installProbe(t)
	other := h.command("echo " + secret + " >file")
	other.Mounts = []providers.Mount{mountOf("acct_other", "other")}
	other.Spec.Account, other.Spec.Mounts = "acct_other", other.Mounts
	h.ok(t, other)
	h.env["OTHER"] = other.Mounts[0].Namespace
	return h
}

// newProvider starts a provider that keeps everything below dir.
func newProvider(dir, box string) (*local.Provider, error) {
	o := local.Options{StateDir: filepath.Join(dir, "state"), Workspaces: filepath.Join(dir, "workspaces"), Box: box}
	if level() == "L3" {
		return local.New(o)
	}
	// Where namespaces are forbidden less must be asked for, and the refusal says what to change.
	if p, err := local.New(o); !errors.Is(err, schemas.ErrUnsupported) || !strings.Contains(err.Error(), "L3: ") {
		return p, fmt.Errorf("a host without namespaces was not refused as one: %w", err)
	}
	o.AllowUnisolated = true
	return local.New(o)
}

// level is the one that this run is about: L3 unless the test that started this process took the
// namespaces away.
func level() string {
	if l := os.Getenv(levelVariable); l != "" {
		return l
	}
	return "L3"
}

func mountOf(account schemas.AccountID, workspace schemas.WorkspaceID) providers.Mount {
	return providers.Mount{Namespace: schemas.Namespace(account, workspace)}
}

// listen serves the secret to each client that connects.
func listen(t *testing.T, env map[string]string, network, address, name string) {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(secret)) // to any client
			_ = c.Close()
		}
	}()
	switch addr := l.Addr().(type) {
	case *net.TCPAddr:
		env[name] = strconv.Itoa(addr.Port)
	default:
		if name != "" {
			env[name] = address
		}
	}
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// probeProgram and boxProgram are built once, without cgo.
var (
	probeProgram = sync.OnceValues(func() (string, error) { return build("./probe") })
	boxProgram   = sync.OnceValues(func() (string, error) { return build("github.com/sandjet/sandjet/cmd/sandjet-box") })
)

// built is where programs lie; the process that ends the run removes it.
var built = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(builtVariable); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "isolation-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

func build(pkg string) (string, error) {
	dir, err := built()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, filepath.Base(pkg))
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	cmd := exec.Command("go", "build", "-o", bin, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return bin, nil
}

// box is the program that becomes the box: our own, so that the tests need no rung of the ladder
// that the machine happens to offer, and so that the race detector stays out of it.
func box(t *testing.T) string {
	t.Helper()
	bin, err := boxProgram()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// installProbe puts the probe program into the workspace.
func (h *host) installProbe(t *testing.T) {
	t.Helper()
	bin, err := probeProgram()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command("cat >probe && chmod +x probe")
	cmd.Stdin = data
	h.ok(t, cmd)
}

// command is script in a fresh box.
func (h *host) command(script string) providers.Command {
	mounts := []providers.Mount{h.mount}
	return providers.Command{
		Script: script, Timeout: patience, Env: h.env, Mounts: mounts,
		Network: schemas.Network{Mode: schemas.DenyAll},
		Spec:    providers.Spec{Account: "acct_probe", Mounts: mounts, Network: schemas.Network{Mode: schemas.DenyAll}},
	}
}

// run runs cmd and makes sure that nothing of the outside came out of it.
func (h *host) run(t *testing.T, cmd providers.Command) providers.Result {
	t.Helper()
	res, err := h.provider.Run(t.Context(), cmd)
	if err != nil {
		t.Fatalf("Run: %v (stderr %q)", err, res.Stderr)
	}
	if out := string(res.Stdout) + string(res.Stderr); strings.Contains(out, secret) {
		t.Errorf("the box printed the secret: %q", out)
	}
	return res
}

// ok runs cmd, which must succeed, and returns its output without the last newline.
func (h *host) ok(t *testing.T, cmd providers.Command) string {
	t.Helper()
	res := h.run(t, cmd)
	if res.ExitCode != 0 {
		t.Fatalf("exit code %d: stdout %q, stderr %q", res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}

// attack is one probe: what a hostile script tries and what the box lets it see.
type attack struct {
	name   string
	script string
	want   string // regular expression for the whole output, without the last newline
	level  string // the only level where it is promised; empty: at each
}

// try runs attacks, each in a fresh box and as a subtest of its own.
func (h *host) try(t *testing.T, attacks []attack) {
	t.Helper()
	names := map[string]bool{}
	for _, a := range attacks {
		if names[a.name] {
			t.Errorf("%s is there twice", a.name)
		}
		names[a.name] = true
		if a.level != "" && a.level != level() {
			continue // not a promise of this level: docs/GUARANTEES.md says so
		}
		t.Run(a.name, func(t *testing.T) {
			res := h.run(t, h.command(a.script))
			got := strings.TrimSuffix(string(res.Stdout), "\n")
			if !regexp.MustCompile(`(?s)\A(?:` + a.want + `)\z`).MatchString(got) {
				t.Errorf("got %q, want %q (exit code %d, stderr %.300q)", got, a.want, res.ExitCode, res.Stderr)
			}
		})
	}
}

// eventually fails the test when f does not come true in time.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !f() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond) // between two looks at the world outside
	}
}

// alive reports whether a process outside still runs.
func alive(p *os.Process) bool { return !errors.Is(p.Signal(nil0), os.ErrProcessDone) }
