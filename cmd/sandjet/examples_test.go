package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// scriptedModel answers as a model would that makes each kind of mistake, reads why it was one, and does better.
type scriptedModel struct {
	mu     sync.Mutex
	prefix string // of its ids, which are the calls'
	failed string
}

// modelStep is an answer of the model, and what it must read next.
type modelStep struct {
	says, tool, input string
	isError           bool
	reads             string
}

// steps are a wrong argument, a tool that does not exist, a command that the sandbox's guard refuses, and the work.
func (m *scriptedModel) steps() []modelStep {
	return []modelStep{
		{tool: "write", input: `{"path":"` + m.prefix + `.txt","content":"five"}`, isError: true, reads: "input.path: is not a known field"},
		{tool: "browse", input: `{"url":"https://example.com"}`, isError: true, reads: "is unknown: use one of bash"},
		{tool: "bash", input: `{"command":"touch /opt/a"}`, isError: true, reads: "bash guard"},
		{says: "First I write it.", tool: "write", input: `{"file_path":"` + m.prefix + `.txt","content":"five"}`, reads: m.prefix + ".txt"},
		{tool: "bash", input: `{"command":"wc -c < ` + m.prefix + `.txt"}`, reads: "4"},
		{says: "It has four letters."},
	}
}

func (m *scriptedModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var asked struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	steps := m.steps()
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Tools) < 5 || r.Header.Get("X-Api-Key") != "scripted" ||
		len(asked.Messages)%2 == 0 || len(asked.Messages) >= 2*len(steps) {
		m.failed = "it asked wrongly"
		http.Error(w, "wrong", http.StatusBadRequest)
		return
	}
	at := len(asked.Messages) / 2
	if at > 0 {
		last := strings.ReplaceAll(string(asked.Messages[len(asked.Messages)-1].Content), `": `, `":`)
		before := steps[at-1]
		for _, want := range []string{fmt.Sprintf("%s-%d", m.prefix, at-1), fmt.Sprintf(`"is_error":%t`, before.isError), before.reads} {
			if !strings.Contains(last, want) {
				m.failed += fmt.Sprintf("after step %d there is no %s in %s\n", at-1, want, last)
			}
		}
	}
	var content []map[string]any
	if s := steps[at]; s.says != "" {
		content = append(content, map[string]any{"type": "text", "text": s.says})
	}
	if s := steps[at]; s.tool != "" {
		content = append(content, map[string]any{
			"type": "tool_use", "id": fmt.Sprintf("%s-%d", m.prefix, at), "name": s.tool, "input": json.RawMessage(s.input),
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"content": content}) //nolint:errchkjson // the answer of a test
}

// TestTheExamplesRun runs the agent of each language against a scripted model and a real Sandjet.
func TestTheExamplesRun(t *testing.T) {
	longtest.Only(t, "it needs Node.js: make check")
	dir, env, said := guideFolder(t)
	at, err := dataDir(filepath.Join(dir, ".sandjet")).running()
	if err != nil {
		t.Fatal(err, said)
	}
	for name, command := range map[string][]string{
		"go": {"go", "run", "./examples/agent"}, "node": {"node", "examples/agent/agent.mjs"}, "python": {"python3", "examples/agent/agent.py"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				if name == "python" { // which the gate does not install
					t.Skip("this machine has no python3")
				}
				longtest.Missing(t, "this machine has no %s", command[0])
			}
			m := &scriptedModel{prefix: "example-" + name}
			model := httptest.NewServer(m)
			defer model.Close()
			run := exec.CommandContext(t.Context(), command[0], append(command[1:], "How many letters has five?")...)
			run.Dir = root
			run.Env = append(env, "SANDJET_URL="+at.URL, "SANDJET_KEY="+at.Key, "MODEL_URL="+model.URL, "MODEL_KEY=scripted")
			out, err := run.CombinedOutput()
			if err != nil || m.failed != "" || string(out) != "First I write it.\nIt has four letters.\n" {
				t.Errorf("%v, %s: %s", err, m.failed, out)
			}
		})
	}
}

// TestClientsAreMadeOfTheDocument makes a client of the OpenAPI document by a generator of each language, as examples/openapi says, has the
// compiler look at its types and at a program that uses it, and runs that.
func TestClientsAreMadeOfTheDocument(t *testing.T) {
	longtest.Only(t, "it needs Node.js and fetches generators: make check")
	dir, env, said := guideFolder(t)
	up, err := dataDir(filepath.Join(dir, ".sandjet")).running()
	if err != nil {
		t.Fatal(err, said)
	}
	env = append(env, "SANDJET_URL="+up.URL, "SANDJET_KEY="+up.Key)
	for name, c := range map[string]struct {
		prints string
		steps  [][]string
	}{
		"go": {"from Go", [][]string{{"go", "generate"}, {"go", "vet"}, {"go", "run", "."}}},
		"typescript": {"from TypeScript", [][]string{
			{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}, {"npm", "run", "generate"}, {"npm", "run", "build"}, {"node", "calls.js"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := t.TempDir()
			if err := os.CopyFS(at, os.DirFS(filepath.Join(root, "examples", "openapi", name))); err != nil {
				t.Fatal(err)
			}
			var last string
			for _, step := range c.steps {
				cmd := exec.CommandContext(t.Context(), step[0], step[1:]...)
				cmd.Dir, cmd.Env = at, env
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %v\n%s", step, err, out)
				}
				last = string(out)
			}
			want := "completed " + c.prints + "\n[exit code 0]\ncall.accepted\ncall.started\ncall.output\ncall.finished\ninvalid id\n"
			if last != want {
				t.Errorf("it prints %q, want %q", last, want)
			}
		})
	}
}
