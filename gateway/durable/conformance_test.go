package durable_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
)

// suiteTests is how many tests the suite has; a suite that ran less proves nothing.
const suiteTests = 332

// TestThePublicConformanceSuitePasses runs the protocol's own suite against a gateway.
//
//guarantee:an-append-to-a-durable-stream-counts-once
func TestThePublicConformanceSuitePasses(t *testing.T) {
	longtest.Only(t, "the suite of others, 30 s and a download; its cases are in our words beside it")
	dir := installSuite(t)
	// The suite knows no keys: its requests get one on the way.
	url := strings.TrimSuffix(serveAs(t, natstest.Start(t).Bus, alice, 2*time.Second), "/v1/streams/") // it asks below /v1/stream, the alias
	results := filepath.Join(t.TempDir(), "results.json")
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	// Some of its tests measure seconds of a TTL by their own clock, and may try again on a busy machine.
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules", ".bin", "vitest"), "run", "--reporter=json", "--outputFile="+results,
		"--no-color", "--testTimeout=60000", "--retry=2")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "STREAMS_URL="+url)
	out, runErr := cmd.CombinedOutput()
	var report struct {
		TestResults []struct {
			AssertionResults []struct {
				FullName        string   `json:"fullName"`
				Status          string   `json:"status"`
				FailureMessages []string `json:"failureMessages"`
			} `json:"assertionResults"`
		} `json:"testResults"`
	}
	data, err := os.ReadFile(results)
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		t.Fatalf("the suite left no results: %v, %v\n%s", err, runErr, out)
	}
	passed := 0
	for _, file := range report.TestResults {
		for _, r := range file.AssertionResults {
			switch r.Status {
			case "passed":
				passed++
			case "failed":
				t.Errorf("%s: %s", r.FullName, strings.Join(r.FailureMessages, "\n"))
			}
		}
	}
	t.Logf("%d tests of the suite passed", passed)
	if passed < suiteTests && !t.Failed() {
		t.Errorf("only %d tests of the suite ran:\n%s", passed, out)
	}
}

// installSuite installs the suite as its lock file says, and returns its folder.
func installSuite(t *testing.T) string {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		missing("npm is missing: the suite needs Node.js 20 or later")
	}
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("conformance")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		missing("the suite cannot be installed: npm ci: %v\n%s", err, out)
	}
	return dir
}
