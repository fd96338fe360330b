package schemas

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const exampleManifest = `{"version": 1, "project": "acme", "resources": [
	{"kind": "sandbox", "name": "build", "description": "d", "config": {"timeout": 60,
		"envVars": {"A": "${TOKEN}", "B": "x${TOKEN}", "C": "env:TOKEN"}}},
	{"kind": "workspace", "name": "docs", "config": {"sandbox": "build"}},
	{"kind": "workspace", "name": "bare"},
	{"kind": "agent", "name": "writer", "config": {"workspaces": [{"workspace": "docs"}, {"name": "r", "workspace": "docs", "sandbox": null}],
		"tools": {"bash": {"enabled": false}}}}
]}`

func TestManifestsAreDecoded(t *testing.T) {
	t.Parallel()
	m, err := DecodeManifest([]byte(exampleManifest))
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := m.Resources[0].Decode()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "env:TOKEN", "B": "x${TOKEN}", "C": "env:TOKEN"}
	if c, ok := sandbox.(SandboxConfig); !ok || !reflect.DeepEqual(c.EnvVars, want) || c.Timeout != 60 {
		t.Errorf("%+v", sandbox)
	}
	agent, err := m.Resources[3].Decode()
	if err != nil {
		t.Fatal(err)
	}
	c, ok := agent.(ManifestAgent)
	if !ok || len(c.Workspaces) != 2 || c.Workspaces[0].Name != "docs" || c.Workspaces[0].Sandbox.Given ||
		c.Workspaces[1].Name != "r" || !c.Workspaces[1].Sandbox.Given || c.Workspaces[1].Sandbox.Name != "" {
		t.Errorf("%+v", agent)
	}
}

func TestManifestsSayAllThatIsWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		says []string
	}{
		"no version or project": {`{"resources": []}`, []string{"version: 0 is unknown: use 1", "project: is missing"}},
		"another field": {`{"version": 1, "project": "p", "resource": []}`,
			[]string{`resource: is not a known field: use "resources"`}},
		"a name twice":              {`{"version": 1, "project": "p", "resources": [{"kind": "agent", "name": "a"}, {"kind": "sandbox", "name": "a"}, {"kind": "agent", "name": "a"}]}`, []string{"resources[2].name", "resources[0]"}},
		"unknown kinds":             {`{"version": 1, "project": "p", "resources": [{"kind": "sanbox", "name": "a"}, {"kind": "cron", "name": "a"}]}`, []string{"resources[0].kind", "use sandbox", "resources[1].kind", "use sandbox, workspace, model, agent"}},
		"unknown keys of resources": {`{"version": 1, "project": "p", "resources": [{"kind": "agent", "nam": "a"}, {"kind": "agent", "name": "a", "confg": {}}]}`, []string{`resources[0].nam: is not a known field: use "name"`, `resources[1].confg`}},
		"unknown keys of configs":   {`{"version": 1, "project": "p", "resources": [{"kind": "agent", "name": "a", "config": {"workspace": []}}, {"kind": "workspace", "name": "a", "config": {"network": {}}}]}`, []string{`resources[0].config.workspace: is not a known field: use "workspaces"`, `resources[1].config.network`}},
		"a config that is no object": {`{"version": 1, "project": "p", "resources": [{"kind": "agent", "name": "a", "config": []}]}`,
			[]string{`resources[0].config: must be one JSON object`}},
		"a wrong type":               {`{"version": 1, "project": "p", "resources": [{"kind": "sandbox", "name": "a", "config": {"timeout": "1m"}}]}`, []string{`resources[0].config.timeout: has the wrong type`}},
		"an empty name of a sandbox": {`{"version": 1, "project": "p", "resources": [{"kind": "agent", "name": "a", "config": {"workspaces": [{"workspace": "w", "sandbox": ""}]}}]}`, []string{"resources[0].config", "or null for none"}},
	} {
		_, err := DecodeManifest([]byte(test.text))
		if CodeOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range test.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s does not say %q:\n%v", name, want, err)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"bild": "build", "Build": "build", "x": "", "dcos": "docs", strings.Repeat("build", 100): ""} {
		if got := Nearest(asked, []string{"docs", "build"}); got != want {
			t.Errorf("%q: %q, not %q", asked, got, want)
		}
	}
}

//guarantee:a-manifest-is-applied-whole-in-the-end-and-nothing-of-it-twice
func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(exampleManifest))
	f.Add([]byte(`{"version":1,"project":"p","resources":[{"kind":"agent","name":"a","config":{"workspaces":[{"sandbox":null}]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		read, rerr := ReadManifest(b)
		if rerr != nil && CodeOf(rerr) != Invalid || (err == nil) != (rerr == nil && read.Check() == nil) {
			t.Fatalf("decoded: %v; read: %v, %v", err, rerr, read.Check())
		}
		for i, r := range read.Resources { // what is left of each can be read, but for the kind
			if _, derr := r.Decode(); derr != nil && Public(derr).Field != "kind" {
				t.Fatalf("resource %d: %v", i, derr)
			}
		}
		if err != nil {
			if CodeOf(err) != Invalid {
				t.Fatalf("code %s: %v", CodeOf(err), err)
			}
			return
		}
		out, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeManifest(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for i, r := range m.Resources {
			before, err := r.Decode()
			after, aerr := again.Resources[i].Decode()
			if err != nil || aerr != nil || !reflect.DeepEqual(before, after) {
				t.Fatalf("%v, %v\n%+v\n%+v", err, aerr, before, after)
			}
		}
	})
}

func TestNearestNames(t *testing.T) {
	known := []string{"conversations", "calls", "call", "ls", "rm", "approvals"}
	for asked, want := range map[string][]string{
		"conv": {"conversations"}, "cal": {"call", "calls"}, "lst": {"ls"}, "approvls": {"approvals"}, "": nil,
		"zzz": nil, strings.Repeat("a", 65): nil,
	} {
		if got := NearestNames(asked, known); !slices.Equal(got, want) {
			t.Errorf("NearestNames(%q) = %q, want %q", asked, got, want)
		}
	}
}
