package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
)

// scriptedModel answers as a model would that uses a tool with a wrong argument, reads why that is wrong, writes a file, and
// says what a command prints of it.
type scriptedModel struct {
	mu     sync.Mutex
	prefix string // of its ids, which are the calls'
	failed string
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
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Tools) < 5 ||
		r.Header.Get("X-Api-Key") != "scripted" || len(asked.Messages) == 0 {
		m.failed = "it asked wrongly"
		http.Error(w, "wrong", http.StatusBadRequest)
		return
	}
	last := string(asked.Messages[len(asked.Messages)-1].Content)
	switch len(asked.Messages) {
	case 1:
		_, _ = w.Write([]byte(`{"content":[{"type":"tool_use","id":"` + m.prefix +
			`-0","name":"write","input":{"path":"` + m.prefix + `.txt","content":"five"}}]}`))
	case 3:
		for _, want := range []string{m.prefix + "-0", `"is_error":true`, "input.path", "is not a known field"} {
			if !strings.Contains(strings.ReplaceAll(last, `": `, `":`), want) {
				m.failed = "no refusal of the call with a wrong argument: " + last
			}
		}
		_, _ = w.Write([]byte(`{"content":[{"type":"text","text":"First I write it."},{"type":"tool_use","id":"` + m.prefix +
			`-1","name":"write","input":{"file_path":"` + m.prefix + `.txt","content":"five"}}]}`))
	case 5:
		if !strings.Contains(last, m.prefix+"-1") {
			m.failed = "no result of the first call: " + last
		}
		_, _ = w.Write([]byte(`{"content":[{"type":"tool_use","id":"` + m.prefix +
			`-2","name":"bash","input":{"command":"wc -c < ` + m.prefix + `.txt"}}]}`))
	default:
		if !strings.Contains(last, "4") || !strings.Contains(last, m.prefix+"-2") {
			m.failed = "no result of the second call: " + last
		}
		_, _ = w.Write([]byte(`{"content":[{"type":"text","text":"It has four letters."}]}`))
	}
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
