//go:build linux

package docker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/egress/egresstest"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) {
	if os.Getenv(egresstest.ProbeVariable) != "" {
		egresstest.BeProbe(os.Args[1:])
		return
	}
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	os.Exit(dockertest.Main(m))
}

const account = schemas.AccountID("acct_docker")

// open opens a provider on the tests' engine for an installation of the test's own, and closes it with tb. Whatever the
// test has left on the engine then is an error, and removed.
func open(tb testing.TB, change func(*docker.Options)) docker.Backend {
	tb.Helper()
	return openOn(tb, dockertest.Get(tb), change)
}

func openOn(tb testing.TB, e *dockertest.Engine, change func(*docker.Options)) docker.Backend {
	tb.Helper()
	o := options(tb, e)
	if change != nil {
		change(&o)
	}
	p, err := docker.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
		nothingLeft(tb, e, o.Installation)
	})
	return p
}

func options(tb testing.TB, e *dockertest.Engine) docker.Options {
	tb.Helper()
	dir := tb.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { // the engine's users pass through
			tb.Fatal(err)
		}
	}
	return docker.Options{
		Host: e.Host, Image: e.Image(tb, dockertest.Tools), Pull: docker.PullNever, Workspaces: filepath.Join(dir, "workspaces"),
		Installation: "test-" + strings.ToLower(schemas.NewID("")), Networks: []schemas.NetworkMode{schemas.DenyAll, schemas.AllowAll}, Boxes: -1,
	}
}

// nothingLeft fails the test when containers of an installation are there, and removes them with its volumes and network.
func nothingLeft(tb testing.TB, e *dockertest.Engine, installation string) {
	tb.Helper()
	filter := "label=sandjet.installation=" + installation
	if left := e.Run(tb, "ps", "-a", "--filter", filter, "--format", "{{.Names}} {{.Status}}"); left != "" {
		tb.Errorf("containers are left: %s", left)
		e.Run(tb, append([]string{"rm", "-f"}, strings.Fields(e.Run(tb, "ps", "-aq", "--filter", filter))...)...)
	}
	for _, kind := range []string{"volume", "network"} {
		if names := strings.Fields(e.Run(tb, kind, "ls", "-q", "--filter", filter)); len(names) > 0 {
			e.Run(tb, append([]string{kind, "rm"}, names...)...)
		}
	}
}

func mounts() []providers.Mount {
	return []providers.Mount{{Namespace: schemas.Namespace(account, "ws_1")}}
}

func spec() providers.Spec { return providers.Spec{Account: account, Mounts: mounts()} }

// command is script in a container of its own with a workspace.
func command(script string) providers.Command {
	return providers.Command{Script: script, Mounts: mounts(), Spec: spec(), Timeout: patience}
}

// in is script in a kept container.
func in(ref schemas.Ref, script string) providers.Command {
	cmd := command(script)
	cmd.Sandbox = ref
	return cmd
}

// run runs cmd, which must be carried out to its end.
func run(tb testing.TB, p providers.Provider, cmd providers.Command) providers.Result {
	tb.Helper()
	res, err := p.Run(tb.Context(), cmd)
	if err != nil {
		tb.Fatalf("Run: %v (stderr %.300q)", err, res.Stderr)
	}
	return res
}

// ok runs cmd, which must succeed, and returns what it printed.
func ok(tb testing.TB, p providers.Provider, cmd providers.Command) string {
	tb.Helper()
	res := run(tb, p, cmd)
	if res.ExitCode != 0 {
		tb.Fatalf("exit code %d (stdout %.300q, stderr %.300q)", res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n")
}
