package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// TestTheExamplesOfIntegrationsRun runs them as their guides say, against a real Sandjet.
func TestTheExamplesOfIntegrationsRun(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		longtest.Missing(t, "this machine has no python3")
	}
	env := upForFrameworks(t)
	const mcp = "bash: 13\nfile: five letters\nartifact: 13\n"
	for _, c := range []struct{ guide, command, says string }{
		{"mcp", "python3 examples/mcp/client.py", mcp},
		{"mcp", "python3 examples/mcp/client.py --http", mcp},
		{"frameworks", "python3 examples/python/sandbox.py", "wrote numbers.txt\n3\n[exit code 1]\n1\n2\n3\nread: "},
	} {
		t.Run(c.command, func(t *testing.T) { // one after the other: at the same time each would have the other's artifacts
			guided(t, c.guide, c.command)
			out := runIn(t, root, env, "bash", "-c", c.command)
			if c.says == mcp {
				tools, rest, _ := strings.Cut(out, "\n")
				if !strings.HasPrefix(tools, "tools: ") || !strings.Contains(tools, " bash ") || rest != mcp {
					t.Errorf("it prints %s", out)
				}
			} else if !strings.HasPrefix(out, c.says) || strings.Contains(out, "HTTP Error") {
				t.Errorf("it prints %s", out)
			}
		})
	}
}

// TestTheExampleOfE2BRuns with the client that its lock file names.
func TestTheExampleOfE2BRuns(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it installs the client of E2B for JavaScript: make long-browser")
	at := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(at, os.DirFS(filepath.Join(root, "examples", "e2b"))); err != nil {
		t.Fatal(err)
	}
	const command = "npm ci && node sandbox.mjs"
	guided(t, "e2b", "cd examples/e2b && "+command)
	env := upForFrameworks(t, "--e2b")
	for _, name := range []string{"URL", "KEY"} {
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, "SANDJET_"+name+"="); ok {
				env = append(env, "E2B_API_"+name+"="+value, "E2B_SANDBOX_"+name+"="+value)
			}
		}
	}
	out := runIn(t, at, env, "bash", "-c", command)
	const says = "1\n2\n3\nexit code 0\nnumbers.txt sorted.txt\nread \"1\\n2\\n3\\n\"\nkilled true\nfailed with 3\nrunning false\n"
	if !strings.HasSuffix(out, says) {
		t.Errorf("it prints %s", out)
	}
}

// guided checks that a guide has a command.
func guided(t *testing.T, guide, command string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "guides", guide+".md"))
	if err != nil || !strings.Contains(string(text), "\n"+command+"\n") {
		t.Errorf("the guide %s does not say %q: %v", guide, command, err)
	}
}
