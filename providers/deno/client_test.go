package deno_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/deno/denotest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for Deno may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Deno Sandbox for JavaScript")
	s, url := denotest.Start(t, denotest.Options{MaxRunning: 2})
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("denotest/client")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "DENO_DEPLOY_TOKEN="+denotest.Token, "DENO_DEPLOY_ENDPOINT="+url, "DENO_SANDBOX_ENDPOINT="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	got := strings.Fields(run("node", "client.mjs"))
	want := []string{"volumes", "config", "create", "spawn", "streams", "kill", "files", "list", "connect", "limits", "gone"}
	if !slices.Equal(got, want) {
		t.Errorf("it did %v, want %v", got, want)
	}
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
