// Package define says in Go which sandboxes, workspaces and agents an account is to have. A program that uses
// it prints a manifest, which is applied like one in YAML:
//
//	go run ./sandjet.go | sandjet apply -f -
//
// What one resource needs of another is the other itself and not its name, so that a name that is not there does not
// compile. Mistakes that only show when the program runs, such as a name that is given twice, are collected and reported
// together by [Project.Manifest]. The values of this package are for one goroutine.
package define

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/sandjet/sandjet/schemas"
)

// The words of configs, so that a program needs one import.
type (
	// SandboxConfig is the rules of a sandbox. What is zero is at its default.
	SandboxConfig = schemas.SandboxConfig
	// Network says what a run may reach.
	Network = schemas.NetworkConfig
	// Lifecycle says how long a kept box lives.
	Lifecycle = schemas.LifecycleConfig
	// Storage says where the files of a workspace are.
	Storage = schemas.StorageConfig
	// Harness says what models read about a workspace beside its tools.
	Harness = schemas.HarnessConfig
	// Tools changes what is offered to an agent and what a person must allow.
	Tools = map[schemas.Tool]schemas.ToolConfig
)

// Project is a set of resources that are applied together.
type Project struct {
	name      string
	resources []*resource
	problems  schemas.Problems
}

// resource is what every resource has.
type resource struct {
	of          *Project
	kind        schemas.ResourceKind
	name        string
	description string
	config      func(*resource) any // with what it names, as a manifest has it
}

// New begins a project: A-Z a-z 0-9 _.- name it.
func New(name string) *Project { return &Project{name: name} }

func (p *Project) add(kind schemas.ResourceKind, name, description string, config func(*resource) any) *resource {
	r := &resource{of: p, kind: kind, name: name, description: description, config: config}
	p.resources = append(p.resources, r)
	return r
}

// Sandbox is a sandbox of a project.
type Sandbox struct{ *resource }

// Sandbox adds a sandbox. The description, for people, may be empty.
func (p *Project) Sandbox(name, description string, c SandboxConfig) Sandbox {
	return Sandbox{p.add(schemas.KindSandbox, name, description, func(*resource) any { return c })}
}

// Workspace is a workspace of a project.
type Workspace struct{ *resource }

// WorkspaceConfig is the settings of a workspace.
type WorkspaceConfig struct {
	Sandbox Sandbox // of calls that name none; zero: they must name one
	Storage Storage
	Harness Harness
}

// Workspace adds a workspace. The description, for people, may be empty.
func (p *Project) Workspace(name, description string, c WorkspaceConfig) Workspace {
	return Workspace{p.add(schemas.KindWorkspace, name, description, func(r *resource) any {
		return schemas.ManifestWorkspace{Storage: c.Storage, Harness: c.Harness, Sandbox: r.nameOf(c.Sandbox.resource)}
	})}
}

// Agent is an agent of a project.
type Agent struct{ *resource }

// AgentConfig is the settings of an agent.
type AgentConfig struct {
	Sandbox    Sandbox // where commands run unless a view says otherwise; zero: nowhere
	Workspaces []View  // the first is the default
	Tools      Tools
	Skills     []string // names of skills, which are uploaded by themselves: sandjet skills add
}

// View is a workspace as one agent sees it.
type View struct {
	Workspace Workspace
	As        string  // what the model calls it; empty: the workspace's name
	Sandbox   Sandbox // where commands run; zero: in the agent's
	ReadOnly  bool    // there is no sandbox: files are only read, nothing runs
}

// Agent adds an agent. The description, for people, may be empty.
func (p *Project) Agent(name, description string, c AgentConfig) Agent {
	return Agent{p.add(schemas.KindAgent, name, description, func(r *resource) any {
		out := schemas.ManifestAgent{Sandbox: r.nameOf(c.Sandbox.resource), Tools: c.Tools, Skills: c.Skills}
		for i, v := range c.Workspaces {
			view := schemas.ManifestView{Name: v.As, Workspace: r.nameOf(v.Workspace.resource)}
			switch own := r.nameOf(v.Sandbox.resource); {
			case v.Workspace.resource == nil:
				r.wrong("view %d has no workspace", i+1)
			case own != "" && v.ReadOnly:
				r.wrong("view %d has a sandbox and is read only: choose one", i+1)
			default:
				view.Sandbox = schemas.NameChoice{Given: own != "" || v.ReadOnly, Name: own}
			}
			out.Workspaces = append(out.Workspaces, view)
		}
		return out
	})}
}

// Env is the value of a variable that the account keeps sealed, see sandjet env. It is for [SandboxConfig.EnvVars].
func Env(name string) string { return schemas.VariablePrefix + name }

// nameOf is how a manifest names another resource; empty for none.
func (r *resource) nameOf(other *resource) string {
	switch {
	case other == nil:
		return ""
	case other.of != r.of:
		r.wrong("it names the %s %q of another project", other.kind, schemas.Quotable(other.name))
	}
	return other.name
}

func (r *resource) wrong(format string, args ...any) {
	r.of.problems.Add(fmt.Sprintf("%s %q", r.kind, schemas.Quotable(r.name)), schemas.Invalidf("", format, args...))
}

// Manifest is what the project says. Code: invalid, with all that is wrong.
func (p *Project) Manifest() (schemas.Manifest, error) {
	m := schemas.Manifest{Version: schemas.ManifestVersion, Project: p.name}
	p.problems = nil
	for _, r := range p.resources {
		config, err := json.Marshal(r.config(r))
		if err != nil {
			r.wrong("its config cannot be written as JSON: %v", err)
		}
		m.Resources = append(m.Resources, schemas.Resource{Kind: r.kind, Name: r.name, Description: r.description, Config: config})
	}
	p.problems.Add("", m.Check())
	return m, p.problems.Err()
}

// Write prints the manifest as JSON. Code: invalid, with all that is wrong, and then nothing is written.
func (p *Project) Write(w io.Writer) error {
	m, err := p.Manifest()
	if err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return fmt.Errorf("print the manifest: %w", err)
	}
	return nil
}

// Main is all that a program has to do with its project: it prints the manifest to stdout, or what is wrong to stderr,
// and then ends the process with 1.
func Main(p *Project) {
	if err := p.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
