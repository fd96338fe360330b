package vercel_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/vercel/verceltest"
)

// TestVendorsClient runs the vendor's own client against the service of these tests: what it takes for Vercel may stand for it.
func TestVendorsClient(t *testing.T) {
	longtest.Only(t, "it installs the client of Vercel for JavaScript")
	s, url := verceltest.Start(t, verceltest.Options{MaxRunning: 3})
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("verceltest/client")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "VERCEL_TOKEN="+verceltest.Token, "VERCEL_TEAM_ID="+verceltest.Team,
			"VERCEL_PROJECT_ID="+verceltest.Project, "API_URL="+url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	got := strings.Fields(run("node", "client.mjs"))
	want := []string{"create", "run", "detached", "deadline", "files", "network", "extend", "resume", "drives", "snapshot", "list",
		"limits", "gone"}
	if !slices.Equal(got, want) {
		t.Errorf("it did %v, want %v", got, want)
	}
	if left := s.Boxes(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
