package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// TestTheClientsOfMCP has the protocol's own clients for JavaScript, unmodified, do all that a client can do, over HTTP and by a program
// that they start: the one of today, which speaks revision 2026-07-28, and the one of before, which most programs are made with.
func TestTheClientsOfMCP(t *testing.T) {
	longtest.Only(t, "it installs clients of the Model Context Protocol for JavaScript")
	at := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(at, os.DirFS("testdata/mcpclients")); err != nil {
		t.Fatal(err)
	}
	runIn(t, at, nil, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")

	dir, env, said := guideFolder(t, "--mcp-wait", "4s")
	up, err := dataDir(filepath.Join(dir, ".sandjet")).running()
	if err != nil {
		t.Fatal(err, said)
	}
	runIn(t, dir, env, "sandjet", "sandboxes", "create", "asks", "--mode", "ask")
	runIn(t, dir, env, "sandjet", "agents", "create", "asker", "--sandbox", "asks", "--workspace", "default")
	env = append(env, "SANDJET_URL="+up.URL, "SANDJET_KEY="+up.Key, "AGENT=asker")
	for _, c := range []struct{ library, wire, says string }{
		{"client", "http", "2026-07-28, a question is asked, after a time-out completed"},
		{"client", "stdio", "2026-07-28, a question is asked, after a time-out cancelled"},
		{"sdk", "http", "older, a question is named, after a time-out cancelled"},
		{"sdk", "stdio", "older, a question is asked, after a time-out cancelled"},
	} {
		want := c.library + " " + c.wire + ": " + c.says + "\n"
		if got := runIn(t, at, env, "node", "client.mjs", c.library, c.wire); got != want {
			t.Errorf("%s %s: it says %q", c.library, c.wire, got)
		}
	}
}
