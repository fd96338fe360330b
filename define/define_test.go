package define_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/define"
	"github.com/sandjet/sandjet/schemas"
)

var update = flag.Bool("update", false, "write the golden file")

// The golden file is also what the program reads of the example in YAML, which a test there holds.
func TestTheExampleIsTheGoldenManifest(t *testing.T) {
	var b bytes.Buffer
	if err := acme().Write(&b); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/acme.json"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("it prints\n%s\nrun the test with -update if that is right", b.Bytes())
	}
}

func TestMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	other := define.New("q").Sandbox("theirs", "", define.SandboxConfig{})
	p := define.New("p")
	box := p.Sandbox("box", "", define.SandboxConfig{})
	p.Workspace("docs", "", define.WorkspaceConfig{Sandbox: other})
	p.Agent("g", "", define.AgentConfig{Workspaces: []define.View{{},
		{Workspace: p.Workspace("w", "", define.WorkspaceConfig{}), Sandbox: box, ReadOnly: true}}})
	p.Sandbox("bad", "", define.SandboxConfig{Options: map[string]any{"x": func() {}}})
	var b bytes.Buffer
	err := p.Write(&b)
	if schemas.CodeOf(err) != schemas.Invalid || b.Len() > 0 {
		t.Fatalf("%v\n%s", err, b.Bytes())
	}
	for _, want := range []string{
		`4 things are wrong`, `workspace "docs": it names the sandbox "theirs" of another project`, `agent "g": view 1 has no workspace`,
		`agent "g": view 2 has a sandbox and is read only`, `sandbox "bad": its config cannot be written`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %q:\n%v", want, err)
		}
	}
	twice := define.New("p")
	twice.Sandbox("a", "", define.SandboxConfig{})
	twice.Sandbox("a", "", define.SandboxConfig{})
	if _, err := twice.Manifest(); err == nil || !strings.Contains(err.Error(), "resources[1].name") {
		t.Errorf("a name twice: %v", err)
	}
}
