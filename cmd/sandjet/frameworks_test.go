package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/fakemodel"
	"github.com/sandjet/sandjet/internal/longtest"
)

// frameworks is a folder with the frameworks themselves, as their lock file says, @sandjet/sandbox, its cases and the programs of
// examples/frameworks.
func frameworks(t *testing.T) string {
	t.Helper()
	library, at := jsLibrary(t), t.TempDir()
	sources := filepath.Join(root, "clients", "sandbox")
	for from, to := range map[string]string{
		filepath.Join(root, "examples", "frameworks"): at, filepath.Join(sources, "test"): at,
	} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	runIn(t, at, nil, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	ours := filepath.Join(at, "node_modules", "@sandjet")
	for from, to := range map[string]string{filepath.Dir(library): "client/dist", filepath.Join(sources, "src"): "sandbox/src"} {
		if err := os.CopyFS(filepath.Join(ours, filepath.FromSlash(to)), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		filepath.Join(root, "clients", "js", "package.json"): "client/package.json",
		filepath.Join(sources, "package.json"):               "sandbox/package.json",
		filepath.Join(sources, "tsconfig.json"):              "sandbox/tsconfig.json",
	} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(ours, filepath.FromSlash(to)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	compiler := filepath.Join("node_modules", "typescript", "bin", "tsc")
	runIn(t, at, nil, "node", compiler, "-p", filepath.Join(ours, "sandbox"))
	runIn(t, at, nil, "node", compiler, "--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "types.ts")
	return at
}

// runIn runs a program that must succeed, and returns what it printed.
func runIn(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v (it needs Node.js 20 or later and npm): %v\n%s", name, args, err, out)
	}
	return string(out)
}

// upForFrameworks starts Sandjet, and is the environment that says where it is.
func upForFrameworks(t *testing.T, more ...string) []string {
	t.Helper()
	dir, env, said := guideFolder(t, more...)
	up, err := dataDir(filepath.Join(dir, ".sandjet")).running()
	if err != nil {
		t.Fatal(err, said)
	}
	return append(env, "SANDJET_URL="+up.URL, "SANDJET_KEY="+up.Key)
}

// TestTheFrameworks: the cases of each integration and of the standard tests of Deep Agents, the integrations' types, and the programs of
// examples/frameworks against a scripted model.
func TestTheFrameworks(t *testing.T) {
	longtest.Only(t, "it installs frameworks of agents for JavaScript")
	at, env := frameworks(t), append(upForFrameworks(t), "MODEL_KEY=scripted")
	standardCases(t, at, env)
	out := runIn(t, at, env, "node", "cases.mjs")
	for _, want := range []string{"aiSDK holds", "deepagents holds", "computeSDK holds", "openaiAgents holds", "mastra holds"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q: %s", want, out)
		}
	}

	use := func(tool, input string) fakemodel.Reply {
		return fakemodel.Reply{Call: []fakemodel.Use{{Tool: tool, Input: json.RawMessage(input)}}}
	}
	model, err := fakemodel.New(fakemodel.Script{Key: "scripted", Rules: []fakemodel.Rule{
		{Contains: "by bash", Reply: use("bash", `{"command":"printf five > made.txt; wc -c < made.txt"}`)},
		{Contains: "by tools", Reply: use("write_file", `{"file_path":"/workspace/made.txt","content":"five"}`)},
		{Contains: "by patch", Reply: use("apply_patch", `{"type":"create_file","path":"made.txt","diff":"+five"}`)},
		{Contains: "Created made.txt", Reply: use("exec_command", `{"cmd":"[ $(wc -c < made.txt) = 4 ] && echo these are four"}`)},
		{Contains: "Output:\nthese are four", Reply: fakemodel.Reply{Say: "There are four letters."}},
		{Contains: "by workspace", Reply: use("mastra_workspace_write_file", `{"path":"made.txt","content":"five"}`)},
		{Contains: "Wrote 4 bytes to made.txt", Reply: use("mastra_workspace_execute_command", `{"command":"wc -c < made.txt"}`)},
		{Contains: "made.txt", Reply: use("execute", `{"command":"wc -c < made.txt"}`)},
		{Contains: "4", Reply: fakemodel.Reply{Say: "It has four letters."}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	models := httptest.NewServer(model)
	defer models.Close()
	env = append(env, "MODEL_URL="+models.URL+"/v1")
	for program, want := range map[string]struct{ task, says string }{
		"ai-sdk": {"Write five by bash", "It has four letters.\n"}, "deepagents": {"Write five by tools", "It has four letters.\n"},
		"computesdk": {"", "6 (exit code 0)\n"}, "openai-agents": {"Write five by patch", "There are four letters.\n"},
		"mastra": {"Write five by workspace", "It has four letters.\n"},
	} {
		if out := runIn(t, at, append(env, "SESSION=example-"+program), "node", program+".mjs", want.task); !strings.HasSuffix(out, want.says) {
			t.Errorf("%s: %s", program, out)
		}
	}
}

// TestDeepAgentsWithDocker: the cases of the standard tests of Deep Agents in containers, of an image with the usual programs and of one
// with those of busybox.
func TestDeepAgentsWithDocker(t *testing.T) {
	engine := dockertest.Get(t)
	at := frameworks(t)
	for name, image := range map[string]string{"tools": dockertest.Tools, "busybox": dockertest.Busybox} {
		t.Run(name, func(t *testing.T) {
			env := upForFrameworks(t, "--provider", "docker", "--docker-host", engine.Host, "--docker-image", engine.Image(t, image),
				"--docker-pull", "never", "--docker-installation", "deepagents-"+name)
			standardCases(t, at, env)
		})
	}
}

func standardCases(t *testing.T, at string, env []string) {
	t.Helper()
	if out := runIn(t, at, env, "node", "standard.mjs"); !strings.HasSuffix(out, " cases hold\n") {
		t.Errorf("the standard tests: %s", out)
	}
}
