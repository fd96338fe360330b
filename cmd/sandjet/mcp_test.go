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
// marks: what was done is not done again, and what was interrupted says so. What a call leaves is a resource.
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
	left, err := second.CallTool(t.Context(), marked("left", "mkdir -p outputs; printf a,b > outputs/t.csv; printf '\\0' > outputs/z.bin"))
	if got := said(t, left, err); !strings.HasPrefix(got, "completed: ") || len(left.Content) != 3 {
		t.Fatalf("%s: %+v", got, left.Content)
	}
	listed, err := second.ListResources(t.Context(), nil)
	if err != nil || len(listed.Resources) != 2 {
		t.Fatalf("%+v %v", listed, err)
	}
	for i, want := range []string{"a,b", "\x00"} {
		link, ok := left.Content[1+i].(*sdk.ResourceLink)
		if !ok || link.URI != listed.Resources[i].URI {
			t.Errorf("%+v is listed as %+v", left.Content[1+i], listed.Resources[i])
			continue
		}
		read, err := second.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
		if err != nil || read.Contents[0].Text+string(read.Contents[0].Blob) != want || read.Contents[0].MIMEType != link.MIMEType {
			t.Errorf("%s: %+v %v", link.Name, read, err)
		}
	}
	if err := second.Close(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestArtifactsOfAnAgentOnStdio: an agent reads those of its conversation, an account all of its own, and what is too large is refused with
// the address that has it.
func TestArtifactsOfAnAgentOnStdio(t *testing.T) {
	t.Parallel()
	dir, env, said := guideFolder(t)
	sandjet := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sandjet", args...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s\n%s", args, err, out, said)
		}
		return string(out)
	}
	sandjet("agents", "create", "reader", "--sandbox", "default", "--workspace", "default")
	ids := map[string]string{}
	for conversation, command := range map[string]string{
		"own": "mkdir -p outputs; echo own > outputs/own", "other": "mkdir -p outputs; echo other > outputs/other",
		"large": "mkdir -p outputs; head -c 1048577 /dev/zero > outputs/large",
	} {
		sandjet("call", "bash", "--conversation", conversation, command)
		ids[conversation] = strings.TrimSpace(sandjet("artifacts", "ls", conversation, "-o", "name"))
	}
	for name, c := range map[string]struct {
		args []string
		says map[string]string // by the artifact: what is read, or the error
	}{
		"an agent":    {[]string{"--agent", "reader", "--conversation", "own"}, map[string]string{"own": "own\n", "other": "not found", "large": "not found"}},
		"an account":  {[]string{"--conversation", "own"}, map[string]string{"own": "own\n", "other": "other\n", "large": "GET /v1/artifacts/" + ids["large"]}},
		"a large one": {[]string{"--agent", "reader", "--conversation", "large"}, map[string]string{"large": "has 1048577 bytes"}},
	} {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "sandjet", append([]string{"mcp"}, c.args...)...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, env, t.Output()
		client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		s, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for artifact, want := range c.says {
			var got string
			read, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "sandjet://artifacts/" + ids[artifact]})
			if err != nil {
				got = err.Error()
			} else {
				got = read.Contents[0].Text
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s, %s: %q", name, artifact, got)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: it ended with %v", name, err)
		}
	}
}
