package cloudtest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// VendorsClient runs client.mjs of a folder, with the vendor's own client for JavaScript that its package.json names, and fails the test
// unless it prints the words of want: one for each thing that it has done.
func VendorsClient(t *testing.T, folder string, env, want []string) {
	t.Helper()
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	if got := strings.Fields(run("node", "client.mjs")); !slices.Equal(got, want) {
		t.Errorf("it did %v, want %v", got, want)
	}
}
