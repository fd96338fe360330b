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
)

func TestTheGuideToJobsRuns(t *testing.T) {
	runGuide(t, "jobs", "step 3", "failed, exit code 3", "hello Ada", "seen enough", "completed (exit 0)\nlint is clean")
}

func TestTheGuideToApprovalsRuns(t *testing.T) {
	runGuide(t, "approvals", "is approved", "allowed", "denied by a person: use the staging database", "approved  by api: looked at it")
}

func TestTheGuideToRecordsRuns(t *testing.T) {
	runGuide(t, "records", "the stage is test", "the stage is live", "STAGE: \"********\"", "for the nightly build", "1\n2\n", "kept here", "build\nweb\n")
}

func TestTheGuideToAgentsRuns(t *testing.T) {
	runGuide(t, "agents", "written by one", "no sandbox available for this command", "denied with 77", "in the scratch", "chosen by the model", `"function"`)
}

func TestTheGuideToStreamingRuns(t *testing.T) {
	runGuide(t, "streaming", "event: call.accepted", `data: {"upToDate":true}`, `step 3\n`, `step 4\n`, `"recovered":true`)
}

func TestTheGuideToManifestsRuns(t *testing.T) {
	runGuide(t, "manifest", "4 to create", "4 as they were", "API_TOKEN is set", "the token has 6 characters", "1 renamed", "- agent reader", "\"create\"", "build\npapers\nwriter\n")
}

func TestTheGuideToSecretsRuns(t *testing.T) {
	runGuide(t, "secrets", "  active\n", "the others were, or have no secrets")
}

func TestTheGuideToDurableStreamsRuns(t *testing.T) {
	runGuide(t, "durable-streams", `[{"n":1},{"n":2}]`, `[{"n":3}]`, "append: 200\n", "append: 204\n", `[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}]`)
}

func TestTheGuideToReplayRuns(t *testing.T) {
	runGuide(t, "replay", `"events":[`, "another conversation: 403\n", "another route: 403\n", "\n1\n")
}

// runGuide runs every shell block of a guide as it stands there, one after the other, beside a Sandjet on
// free ports, and wants them to say something.
func runGuide(t *testing.T, name string, says ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/guides", name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -euo pipefail\n")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, b := range blocks {
		script.WriteString(b[1])
	}
	if len(blocks) < 3 {
		t.Fatalf("the guide has only %d blocks", len(blocks))
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // boxes of root run as another user
		t.Fatal(err)
	}
	up := exec.CommandContext(context.WithoutCancel(t.Context()), "sandjet", "up", "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--log-level", "warn")
	up.Dir, up.Env = dir, withoutSettings(os.Environ())
	said := &lockedBuffer{}
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
	run := exec.CommandContext(t.Context(), "bash", "-x", "-c", script.String())
	run.Dir, run.Env = dir, up.Env
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
