package e2b_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/e2b/e2btest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for E2B may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of E2B for JavaScript")
	s, url := e2btest.Start(t, e2btest.Options{MaxRunning: 2})
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("e2btest/client")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "E2B_API_KEY="+e2btest.Key, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	got := strings.Fields(run("node", "client.mjs"))
	if want := []string{"create", "run", "stdin", "kill", "deadline", "files", "list", "pause", "limits", "gone"}; !slices.Equal(got, want) {
		t.Errorf("it did %v, want %v", got, want)
	}
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
