package fakemodel_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/fakemodel"
	"github.com/sandjet/sandjet/internal/longtest"
)

// TestTheServicesOwnLibrariesAgree has the official libraries of both services talk to the server: what they take, and what they
// take for which error, is what the services send.
func TestTheServicesOwnLibrariesAgree(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "it installs the libraries of two services for JavaScript")
	dir := t.TempDir() // node_modules must not appear in the tree
	if err := os.CopyFS(dir, os.DirFS("testdata/oracle")); err != nil {
		t.Fatal(err)
	}
	s, err := fakemodel.New(fakemodel.Script{Rules: []fakemodel.Rule{
		{Contains: "limit", Reply: fakemodel.Reply{Status: 429, RetryAfter: "1"}},
		{Contains: "inside", Reply: fakemodel.Reply{Say: "some", StreamError: "overloaded_error", Message: "later"}},
		{Contains: "once", Times: 1, Reply: fakemodel.Reply{Status: 529}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	run := func(name string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s (it needs Node.js 20 or later and npm): %v\n%s", name, err, out)
		}
		return string(out)
	}
	run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	if out := run("node", "client.mjs", server.URL); !strings.Contains(out, "both agree") {
		t.Errorf("%s", out)
	}
	if _, n := s.Requests(); n < 11 {
		t.Errorf("%d requests came", n)
	}
}
