//go:build linux

package docker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/schemas"
)

// TestReadyContainers: each serves one call of the rules that it was made by, and there are never more than was said.
func TestReadyContainers(t *testing.T) {
	t.Parallel()
	const most = 2
	e := dockertest.Get(t)
	var o docker.Options
	p := open(t, func(given *docker.Options) { given.Warm, o = most, *given })
	running := func() []string {
		return strings.Fields(e.Run(t, "ps", "-q", "--no-trunc", "--filter", "label=sandjet.installation="+o.Installation))
	}
	ready := func(n int) []string {
		t.Helper()
		var ids []string
		testwait.Eventually(t, "a container that is ready", func() bool {
			ids = running()
			return len(ids) == n
		})
		return ids
	}
	gone := func(id string) {
		t.Helper()
		testwait.Eventually(t, "the end of a container", func() bool { return !slices.Contains(running(), id) })
	}
	ok(t, p, command(`echo kept >file; touch "$HOME/left" /tmp/left`))
	first := ready(1)[0]
	if got := ok(t, p, command(`cat file; ls -A "$HOME" /tmp`)); got != "kept\n/home/sandbox:\n\n/tmp:" {
		t.Errorf("the next call finds %q", got)
	}
	gone(first) // it was used, and only once
	mine := ready(1)[0]

	other := command("ls -A")
	other.Spec.Account = "acct_other"
	other.Mounts = []providers.Mount{{Namespace: schemas.Namespace(other.Spec.Account, "ws_1")}}
	other.Spec.Mounts = other.Mounts
	if got := ok(t, p, other); got != "" {
		t.Errorf("another account finds %q", got)
	}
	if both := ready(most); !slices.Contains(both, mine) {
		t.Error("another account took the container, or its place, that was ready")
	}
	third := command("true")
	third.Spec.MemoryLimit = 64 << 20
	ok(t, p, third)
	gone(mine) // the oldest made room
	ready(most)

	for _, id := range running() {
		e.Run(t, "kill", id)
	}
	if got := ok(t, p, command("cat file")); got != "kept" {
		t.Errorf("beside containers that were killed: %q", got)
	}
}

// TestReadyContainersShowTheWorkspaceThatIsThere: a workspace that was removed and created again is not the one that was mounted.
func TestReadyContainersShowTheWorkspaceThatIsThere(t *testing.T) {
	t.Parallel()
	e := dockertest.Get(t)
	var o docker.Options
	p := open(t, func(given *docker.Options) { given.Warm, o = 1, *given })
	ok(t, p, command("echo old >file"))
	testwait.Eventually(t, "a container that is ready", func() bool {
		return e.Run(t, "ps", "-q", "--filter", "label=sandjet.installation="+o.Installation) != ""
	})
	folder := filepath.Join(o.Workspaces, mounts()[0].Namespace)
	if err := os.Rename(folder, folder+"-old"); err != nil { // it still has its inode
		t.Fatal(err)
	}
	ok(t, p, command("[ ! -e file ]; echo new >file"))
	if b, err := os.ReadFile(filepath.Join(folder, "file")); string(b) != "new\n" {
		t.Errorf("the workspace has %q, %v", b, err)
	}
}

// TestReadyContainersEndWithTheirWorker, which is killed, beside the container of its call.
func TestReadyContainersEndWithTheirWorker(t *testing.T) {
	t.Parallel()
	e := dockertest.Get(t)
	var o docker.Options
	p := open(t, func(given *docker.Options) { o = *given })
	o.Warm = 1
	worker, r := employ(t, o)
	calls := func(more ...string) []string {
		return strings.Fields(e.Run(t, append([]string{"ps", "-q", "--filter", "label=sandjet.installation=" + o.Installation,
			"--filter", "label=sandjet.kind=call"}, more...)...))
	}
	testwait.Eventually(t, "a container that is ready beside that of a call", func() bool { return len(calls()) == 2 })
	if err := worker.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = worker.Wait()
	testwait.Eventually(t, "the end of both", func() bool { return len(calls()) == 0 })
	for _, id := range calls("-a") { // no worker removes what has just ended
		e.Run(t, "rm", "-f", id)
	}
	if err := p.Release(t.Context(), r.Box); err != nil {
		t.Error(err)
	}
}

// TestARunInAReadyContainerCanBeEnded by another worker, which knows no more than its id.
func TestARunInAReadyContainerCanBeEnded(t *testing.T) {
	t.Parallel()
	e := dockertest.Get(t)
	var o docker.Options
	p := open(t, func(given *docker.Options) { given.Warm, o = 1, *given })
	ok(t, p, command("true"))
	var id string
	testwait.Eventually(t, "a container that is ready", func() bool {
		id = e.Run(t, "ps", "-q", "--filter", "label=sandjet.installation="+o.Installation)
		return id != ""
	})
	cmd := command("echo begun; sleep 1000")
	cmd.ID = "call_1"
	begun, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	cmd.Output = func(providers.Chunk) { once.Do(func() { close(begun) }) }
	go func() {
		_, err := p.Run(t.Context(), cmd)
		ended <- err
	}()
	<-begun
	o.Warm = 0
	second, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	ender, _ := providers.As[providers.RunEnder](second)
	if name := e.Run(t, "inspect", "-f", "{{.Name}}", id); !strings.Contains(name, "-run-") {
		t.Errorf("the run is not in the container that was ready, which is %s", name)
	}
	if err := ender.EndRun(t.Context(), "", account, "call_1"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; schemas.CodeOf(err) != schemas.Interrupted {
		t.Errorf("the run that was ended: %v", err)
	}
}
