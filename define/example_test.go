package define_test

import (
	"os"

	"github.com/sandjet/sandjet/define"
	"github.com/sandjet/sandjet/schemas"
)

// acme is what deploy/manifest.example.yaml says, in Go.
func acme() *define.Project {
	p := define.New("acme")
	build := p.Sandbox("build", "for the nightly build", define.SandboxConfig{
		PermissionMode: schemas.PermissionBypass, Timeout: 120, Persistent: true,
		EnvVars: map[string]string{"STAGE": "test", "TOKEN": define.Env("API_TOKEN")},
	})
	careful := p.Sandbox("careful", "", define.SandboxConfig{PermissionMode: schemas.PermissionAsk})
	docs := p.Workspace("docs", "", define.WorkspaceConfig{Sandbox: build})
	p.Agent("writer", "", define.AgentConfig{Sandbox: build, Workspaces: []define.View{{Workspace: docs}}})
	p.Agent("reviewer", "reads, and asks before it runs anything", define.AgentConfig{
		Workspaces: []define.View{{Workspace: docs, ReadOnly: true}, {Workspace: docs, As: "try", Sandbox: careful}},
		Tools:      define.Tools{schemas.ToolGrep: {Enabled: new(false)}, schemas.ToolBash: {NeedsApproval: true}},
	})
	return p
}

// A program that prints its manifest. Mistakes are reported together, on stderr.
func ExampleMain() {
	p := define.New("small")
	box := p.Sandbox("box", "", define.SandboxConfig{Timeout: 60})
	p.Workspace("docs", "", define.WorkspaceConfig{Sandbox: box})
	_ = p.Write(os.Stdout) // a program calls define.Main(p)
	// Output:
	// {
	//   "version": 1,
	//   "project": "small",
	//   "resources": [
	//     {
	//       "kind": "sandbox",
	//       "name": "box",
	//       "config": {
	//         "timeout": 60
	//       }
	//     },
	//     {
	//       "kind": "workspace",
	//       "name": "docs",
	//       "config": {
	//         "sandbox": "box"
	//       }
	//     }
	//   ]
	// }
}
