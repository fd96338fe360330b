package crashtest_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// e2bClients are the versions of the client of E2B that are tried: one that has the present routes, and one from before.
var e2bClients = []npmClient{{"2.51.0", "e2b"}, {"2.28.2", "e2b-before"}}

// codeClients are the versions of the client of E2B's code interpreter that are tried: the first one that takes E2B_SANDBOX_URL, too.
var codeClients = []npmClient{{"2.8.0", "@e2b/code-interpreter"}, {"2.7.0", "code-interpreter-before"}}

// npmClient is a version of a client, and the name that the test's package.json gives it.
type npmClient struct{ version, name string }

// TestTheClientOfE2B has unmodified clients do all that is served, as two tenants; then a command and the files of a sandbox outlive the
// gateway, and a command whose worker is killed ends as interrupted. Code runs on while its gateway is killed, and what it left is there for
// the next; after its worker was killed code runs again. What they did is in the tables of the guide.
func TestTheClientOfE2B(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it installs clients of E2B for JavaScript")
	ctx, cancel := context.WithTimeout(t.Context(), sizeOf().ends)
	defer cancel()
	c := startCluster(ctx, t, func(c *cluster, worker []string) []string {
		c.gatewayFlags = append(c.gatewayFlags, "--admin-key", adminKey, "--e2b")
		return worker
	})
	k := &e2bClient{c: c, dir: t.TempDir(), other: c.tenant(ctx, t, "other")} // node_modules must not appear in the tree
	if err := os.CopyFS(k.dir, os.DirFS("../../gateway/e2b/testdata/client")); err != nil {
		t.Fatal(err)
	}
	k.run(ctx, t, "npm", nil, "ci", "--no-audit", "--no-fund", "--ignore-scripts")

	checkGuide(t, e2bClients, k.said(ctx, t, e2bClients, "methods"))
	checkGuide(t, codeClients, k.said(ctx, t, codeClients, "code"))

	gateway, workers := c.roles[1], c.roles[2:]
	for _, v := range e2bClients {
		made := k.left(ctx, t, v.name, "make")
		gateway.kill()
		c.revive(t, gateway)
		resumed := k.left(ctx, t, v.name, "resume", made...)
		for _, w := range workers {
			w.kill()
		}
		for _, w := range workers {
			c.revive(t, w)
		}
		k.left(ctx, t, v.name, "end", resumed...)
	}
	for _, v := range codeClients {
		made := k.broken(ctx, t, v.name, "makeCode", func() {
			gateway.kill()
			c.revive(t, gateway)
		})
		resumed := k.left(ctx, t, v.name, "resumeCode", made...)
		for _, w := range workers {
			w.kill()
		}
		for _, w := range workers {
			c.revive(t, w)
		}
		k.left(ctx, t, v.name, "endCode", resumed...)
	}
}

// e2bClient runs programs with the client.
type e2bClient struct {
	c, other *cluster
	dir      string
}

// e2bKey is a key in the form that clients of E2B insist on.
func e2bKey(key string) string { return "e2b_" + hex.EncodeToString([]byte(key)) }

func (k *e2bClient) run(ctx context.Context, t *testing.T, name string, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := k.command(ctx, name, env, args...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v %v (it needs Node.js 20 or later and npm): %v\n%s\n%s", name, args, env, err, out, problems.String())
	}
	return string(out)
}

func (k *e2bClient) command(ctx context.Context, name string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = k.dir
	url := "http://" + k.c.gateway
	cmd.Env = append(os.Environ(), "E2B_API_KEY="+e2bKey(k.c.key), "OTHER_KEY="+e2bKey(k.other.key))
	cmd.Env = append(append(cmd.Env, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url), env...)
	return cmd
}

// said has versions of a client do a part, and returns the outcome of each method, by version.
func (k *e2bClient) said(ctx context.Context, t *testing.T, clients []npmClient, part string) map[string]map[string]string {
	t.Helper()
	said := map[string]map[string]string{}
	for _, v := range clients {
		said[v.version] = map[string]string{}
		for line := range strings.Lines(k.step(ctx, t, v.name, part)) {
			verdict, method, _ := strings.Cut(strings.TrimSpace(line), " ")
			said[v.version][method] = verdict
		}
	}
	return said
}

// step runs a part of the program with a version of the client.
func (k *e2bClient) step(ctx context.Context, t *testing.T, name, step string, env ...string) string {
	t.Helper()
	return k.run(ctx, t, "node", append(env, "STEP="+step), "client.mjs", name)
}

// left runs a part, and returns what the next one is to know.
func (k *e2bClient) left(ctx context.Context, t *testing.T, name, step string, env ...string) []string {
	t.Helper()
	return known(t, k.step(ctx, t, name, step, env...))
}

// broken runs a part, has something happen after its first line, and wants it to end well nevertheless.
func (k *e2bClient) broken(ctx context.Context, t *testing.T, name, step string, happens func()) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := k.command(ctx, "node", []string{"STEP=" + step}, "client.mjs", name)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		happens()
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, step, err, problems.String())
	}
	return known(t, line)
}

// known returns, as environment variables for the next part of the test, the sandbox and the process that this part has left.
func known(t *testing.T, out string) []string {
	t.Helper()
	var left struct {
		Sandbox string `json:"sandbox"`
		PID     int64  `json:"pid"`
	}
	if err := json.Unmarshal([]byte(out), &left); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return []string{"SANDBOX=" + left.Sandbox, fmt.Sprintf("PID=%d", left.PID)}
}

// checkGuide compares a table of the guide with what versions of a client did.
func checkGuide(t *testing.T, clients []npmClient, said map[string]map[string]string) {
	t.Helper()
	head, line, methods := "| method |", "|---|", []string{}
	for _, v := range clients {
		head, line = head+" "+v.version+" |", line+"---|"
		for m := range said[v.version] {
			if !slices.Contains(methods, m) {
				methods = append(methods, m)
			}
		}
	}
	slices.Sort(methods)
	var table strings.Builder
	table.WriteString(head + "\n" + line + "\n")
	for _, m := range methods {
		table.WriteString("| `" + m + "` |")
		for _, v := range clients {
			verdict := said[v.version][m]
			if verdict == "" {
				verdict = "not in it"
			}
			table.WriteString(" " + verdict + " |")
		}
		table.WriteString("\n")
	}
	guide, err := os.ReadFile("../../docs/guides/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide)+"\n", "\n\n"+table.String()+"\n") { // it may be the end of the page
		t.Errorf("docs/guides/e2b.md has another table than what the clients did:\n%s", table.String())
	}
}
