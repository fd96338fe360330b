package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/internal/testwait"
)

// startMCP starts the command as a client program does, on a data folder.
func startMCP(t *testing.T, dir string, args ...string) (*sdk.ClientSession, *exec.Cmd) {
	t.Helper()
	args = append([]string{"mcp", "--up", "--data-dir", dir + "/data"}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sandjet", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, withoutSettings(os.Environ()), t.Output()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, cmd
}

func marked(key, command string) *sdk.CallToolParams {
	return &sdk.CallToolParams{
		Meta: sdk.Meta{"sandjet/idempotencyKey": key}, Name: "bash", Arguments: map[string]any{"command": command},
	}
}

func said(t *testing.T, res *sdk.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m, ok := res.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("%+v", res)
	}
	status, _ := m["status"].(string)
	text, _ := m["text"].(string)
	return status + ": " + text
}

// TestMCPOnStdio is a client program: everything in one process, killed while a command runs. A new process finds the calls by their
// marks: what was done is not done again, and what was interrupted says so.
func TestMCPOnStdio(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // boxes of root run as another user
		t.Fatal(err)
	}
	first, cmd := startMCP(t, dir)
	res, err := first.CallTool(t.Context(), marked("done", "echo once >> ledger; cat ledger"))
	if got := said(t, res, err); !strings.HasPrefix(got, "completed: once\n") {
		t.Fatal(got)
	}
	cut := make(chan error, 1)
	go func() {
		_, err := first.CallTool(t.Context(), marked("cut", "echo begun >> ledger; exec sleep 1000"))
		cut <- err
	}()
	testwait.Eventually(t, "the command has begun", func() bool {
		res, err := first.CallTool(t.Context(), &sdk.CallToolParams{Name: "read", Arguments: map[string]any{"file_path": "ledger"}})
		return strings.Contains(said(t, res, err), "begun")
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-cut; err == nil {
		t.Error("a killed server has answered")
	}
	_ = first.Close() // it was killed

	second, _ := startMCP(t, dir, "--wait", "60s")
	res, err = second.CallTool(t.Context(), marked("done", "echo once >> ledger; cat ledger"))
	if got := said(t, res, err); !strings.HasPrefix(got, "completed: once\n") {
		t.Error(got)
	}
	res, err = second.CallTool(t.Context(), marked("cut", "echo begun >> ledger; exec sleep 1000"))
	if got := said(t, res, err); !strings.HasPrefix(got, "interrupted: ") || !res.IsError {
		t.Error(got)
	}
	file, err := second.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandjet://default/ledger"})
	if err != nil || file.Contents[0].Text != "once\nbegun\n" {
		t.Errorf("%+v %v", file, err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
