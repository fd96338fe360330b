package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/faultproxy"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/wait"
)

// jsLibrary is the built client for JavaScript.
func jsLibrary(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, "clients", "js", "dist", "index.js"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		longtest.Missing(t, "clients/js is not built: run npm ci and npm run build there")
	}
	if _, err := exec.LookPath("node"); err != nil {
		longtest.Missing(t, "this machine has no node")
	}
	return file
}

// TestTheClientForJavaScript: files, archives, artifacts and sandboxes by the client for JavaScript, through a network that cuts every
// connection after a while.
func TestTheClientForJavaScript(t *testing.T) {
	longtest.Only(t, "it needs Node.js and the built client: make long-browser")
	library := jsLibrary(t)
	dir, env, said := guideFolder(t)
	at, err := dataDir(filepath.Join(dir, ".sandjet")).running()
	if err != nil {
		t.Fatal(err, said)
	}
	show := exec.CommandContext(t.Context(), "sandjet", "workspaces", "show", "default", "-o", "name")
	show.Dir, show.Env = dir, env
	workspace, err := show.Output()
	if err != nil {
		t.Fatal(err)
	}
	faults := faultproxy.Faults{Cut: faultproxy.Span{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond}, Reset: 0.3, Slice: 64 << 10}
	proxy, err := faultproxy.Listen(t.Context(), strings.TrimPrefix(at.URL, "http://"), 1, faults)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- proxy.Run(ctx) }()
	var patience sync.WaitGroup // a part of 8 MiB must pass within one connection, also on a busy machine
	patience.Go(func() {
		for wait.Sleep(ctx, 10*time.Second) {
			faults.Cut.Max *= 2
			proxy.Set(faults)
		}
	})
	t.Cleanup(func() {
		cancel()
		patience.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	script, err := filepath.Abs(filepath.Join("testdata", "js", "api.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "node", script, "file://"+library, "http://"+proxy.Addr(), at.Key, strings.TrimSpace(string(workspace)))
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all is as it was") {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%d connections, %d of them cut", proxy.Connections(), proxy.Cuts())
}
