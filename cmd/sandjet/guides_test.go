package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// TestTheGuidesRunInOrder runs all shell blocks of README and of the guides unchanged, one guide after the other with one data folder, as
// a reader would who follows them all. The output of each must contain the given texts.
func TestTheGuidesRunInOrder(t *testing.T) {
	longtest.Only(t, "half a minute of commands: make check")
	dir, env, said := guideFolder(t)
	for _, g := range []struct {
		name string
		says []string
	}{
		{"README", []string{"hello from a sandbox", "buy milk", "completed", `"stdout":"Linux`}},
		{"first-call", []string{"1\n2\n3\n", "order-1", `"exit_code":3`, "chat-1"}},
		{"jobs", []string{"step 3", "failed, exit code 3", "hello Ada", "seen enough", "completed (exit 0)\nlint is clean"}},
		{"records", []string{"the stage is test", "the stage is live", "STAGE: \"********\"", "for the nightly build", "1\n2\n",
			"kept here", "\"name\":\"build\"\n\"name\":\"web\"\n"}},
		{"files", []string{"2 inputs/data.csv", "a;b\n1;2\n", `"entries":[{"path":"inputs/data.csv"`, "\nthe same\n"}},
		{"artifacts", []string{"outputs/table.csv", "table", `"artifacts":[{"id":"art_`, "report.txt", `"reason":"too_large"`}},
		{"sandbox-api", []string{`"stdout":"42\n"`, `"exit_code":3`, `"content":"hello\n"`, `"content_base64":"AAEC"`, `{"path":"data/list.csv","line":2,"text":"b;2"}`,
			`"path":"data/dot.bin","size":3`, `"path":"data/dot.bin","type":"file","size":3`, `"written":1`, `"stdout":"1\n"`, "call.accepted", `"session_id":"notebook"`, `{"deleted":true}`}},
		{"kept-sandboxes", []string{"installed once", "lab", "mytool", "refused with 65", "work is done", "a new box", "No orphans"}},
		{"agents", []string{
			"written by one", "no sandbox available for this command", "denied with 77", "in the scratch", "chosen by the model", `"function"`,
		}},
		{"manifest", []string{
			"4 to create", "4 unchanged", "API_TOKEN is set", "the token has 6 characters", "1 renamed", "- agent acme-reader", "\"create\"",
			"\"name\":\"acme-build\"\n\"name\":\"acme-papers\"\n\"name\":\"acme-writer\"\n",
		}},
		{"models", []string{"qwen3:8b", "env:MODEL_KEY", "Answer briefly."}},
		{"skills", []string{"greeting", "load_skill", "Run `sh scripts/hello.sh NAME`", "Hello, Ada!", `"digest"`}},
		{"streaming", []string{"event: call.accepted", `data: {"upToDate":true}`, `step 3\n`, `step 4\n`, `"recovered":true`}},
		{"replay", []string{`"events":[`, "another conversation: 403\n", "another route: 403\n", "\n1\n"}},
		{"durable-streams", []string{`[{"n":1},{"n":2}]`, `[{"n":3}]`, "append: 200\n", "append: 204\n",
			`[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}]`}},
		{"approvals", []string{"is approved", "allowed", "denied by a person: use the staging database", "approved  by api: looked at it"}},
		{"secrets", []string{"  active\n", "the others already were, or have no secrets"}},
	} {
		if !t.Run(g.name, func(t *testing.T) { runGuide(t, dir, env, said, g.name, g.says) }) {
			return // the next ones may stand on it
		}
	}
}

// TestTheGuideOfE2BRuns does what the guide says with the newest clients.
func TestTheGuideOfE2BRuns(t *testing.T) {
	longtest.Only(t, "it installs the clients of E2B for JavaScript: make long-browser")
	dir, env, said := guideFolder(t, "--e2b")
	runGuide(t, dir, env, said, "e2b", []string{"hello, sandbox\n", "\n42\n"})
}

// guideFolder starts Sandjet on free ports with a new data folder. Its output goes to said.
func guideFolder(t *testing.T, flags ...string) (dir string, env []string, said *lockedBuffer) {
	t.Helper()
	dir, said = t.TempDir(), &lockedBuffer{}
	if err := os.Chmod(dir, 0o755); err != nil { // boxes of root run as another user
		t.Fatal(err)
	}
	up := exec.CommandContext(context.WithoutCancel(t.Context()), "sandjet", append([]string{"up", "--listen", "127.0.0.1:0",
		"--nats-listen", "127.0.0.1:0", "--log-level", "warn", "--durable-streams"}, flags...)...)
	up.Dir, up.Env = dir, withoutSettings(os.Environ())
	up.Stdout, up.Stderr = said, said
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // one signal: at a second one it would leave without its boxes, which may still write to the folder
		_ = up.Process.Signal(syscall.SIGTERM)
		_ = up.Wait()
	})
	for began := time.Now(); !strings.Contains(said.String(), "Sandjet is up"); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("it is not up:\n%s", said)
		}
	}
	return dir, up.Env, said
}

// runGuide runs the blocks of one guide, or of README, in a shell of their own.
func runGuide(t *testing.T, dir string, env []string, said *lockedBuffer, name string, says []string) {
	t.Helper()
	path := filepath.Join(root, "docs/guides", name+".md")
	if name == "README" {
		path = filepath.Join(root, "README.md")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if name == "README" {
		blocks = blocks[1:] // the tour and the tests have tests of their own
	}
	for _, b := range blocks {
		script.WriteString(b[1])
	}
	if len(blocks) < 2 {
		t.Fatalf("%s has only %d blocks", name, len(blocks))
	}
	run := exec.CommandContext(t.Context(), "bash", "-x", "-c", script.String())
	run.Dir, run.Env = dir, env
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, out, said)
	}
	for _, want := range says {
		if !strings.Contains(string(out), want) {
			t.Errorf("it says nowhere %q:\n%s", want, out)
		}
	}
}
