package records

import (
	"slices"
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestWhatAnAgentIsShown is the table of exposure: the union over its workspaces, and what is switched off.
func TestWhatAnAgentIsShown(t *testing.T) {
	t.Parallel()
	files := []schemas.Tool{schemas.ToolBash, schemas.ToolRead, schemas.ToolWrite, schemas.ToolEdit, schemas.ToolGlob, schemas.ToolGrep,
		schemas.ToolLS, schemas.ToolLoadSkill}
	off, on := false, true
	one := func(choice schemas.SandboxChoice) []schemas.AgentWorkspace {
		return []schemas.AgentWorkspace{entry("w", choice)}
	}
	without := func(t schemas.Tool) map[schemas.Tool]schemas.ToolConfig {
		return map[schemas.Tool]schemas.ToolConfig{t: {Enabled: &off}}
	}
	for name, tc := range map[string]struct {
		config schemas.AgentConfig
		tools  []schemas.Tool
		names  []string
		jobs   bool
		bare   bool
	}{
		"mounted":          {config: schemas.AgentConfig{Workspaces: one(chosen("sb_1"))}, tools: files},
		"mounted and kept": {config: schemas.AgentConfig{Workspaces: one(chosen("sb_k"))}, tools: schemas.Tools(), jobs: true},
		"none by default": {config: schemas.AgentConfig{Workspaces: one(schemas.SandboxChoice{})},
			tools: []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolLS}},
		"none by null": {config: schemas.AgentConfig{Sandbox: "sb_k", Workspaces: one(chosen(""))},
			tools: []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolLS}},
		"no workspace":          {config: schemas.AgentConfig{Sandbox: "sb_1"}, tools: []schemas.Tool{schemas.ToolBash}, bare: true},
		"no workspace and kept": {config: schemas.AgentConfig{Sandbox: "sb_k"}, tools: []schemas.Tool{schemas.ToolBash}, bare: true},
		"neither":               {config: schemas.AgentConfig{}, bare: true},
		"the union": {
			config: schemas.AgentConfig{Sandbox: "sb_1",
				Workspaces: []schemas.AgentWorkspace{entry("a", chosen("")), entry("b", schemas.SandboxChoice{})}},
			tools: files, names: []string{"a", "b"},
		},
		"two that are read": {
			config: schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("a", chosen("")), entry("b", schemas.SandboxChoice{})}},
			tools:  []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolLS}, names: []string{"a", "b"},
		},
		"jobs in one of them": {
			config: schemas.AgentConfig{Workspaces: []schemas.AgentWorkspace{entry("a", chosen("")), entry("b", chosen("sb_k"))}},
			tools:  schemas.Tools(), names: []string{"a", "b"}, jobs: true,
		},
		"kept where there are no jobs": {config: schemas.AgentConfig{Workspaces: one(chosen("sb_l"))}, tools: files},
		"without bash": {
			config: schemas.AgentConfig{Workspaces: one(chosen("sb_k")), Tools: without(schemas.ToolBash)}, tools: files[1:],
		},
		"without async_status": {
			config: schemas.AgentConfig{Workspaces: one(chosen("sb_k")), Tools: without(schemas.ToolAsyncStatus)}, tools: files,
		},
		"what is switched on is what there is": {
			config: schemas.AgentConfig{Workspaces: one(chosen("")), Tools: map[schemas.Tool]schemas.ToolConfig{schemas.ToolBash: {Enabled: &on}}},
			tools:  []schemas.Tool{schemas.ToolRead, schemas.ToolGlob, schemas.ToolLS},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			house := agentHouse(tc.config)
			for id, provider := range map[schemas.SandboxID]string{"sb_k": "local", "sb_l": "lambda"} {
				house.sandboxes.put(id, schemas.Sandbox{ID: id, Account: alice, Name: string(id), Provider: provider, Persistent: true}, stand{}, sandboxName)
			}
			e, err := house.toolVisibility(house.agents.byID["agent_1"])
			if err != nil {
				t.Fatal(err)
			}
			notes := slices.Contains(tc.tools, schemas.ToolRead) && slices.Contains(tc.tools, schemas.ToolWrite)
			if e.Notes != notes {
				t.Errorf("%s: notes are mentioned: %v", name, e.Notes)
			}
			if !slices.Equal(e.Tools, tc.tools) || !slices.Equal(e.Workspaces, tc.names) || (len(e.Actions) > 0) != tc.jobs || e.Bare != tc.bare {
				t.Errorf("%+v", e)
			}
			// What is shown is carried out in at least one workspace, and what is not shown in none.
			for _, tool := range schemas.Tools() {
				carried := false
				for _, workspace := range append(slices.Clone(tc.names), "") {
					r := callOf(tool)
					r.Workspace = workspace
					c, err := resolve(house, alice, r, noon)
					if err != nil {
						t.Fatal(err)
					}
					carried = carried || c.Refused == ""
				}
				if shown := slices.Contains(e.Tools, tool); shown != carried && tool != schemas.ToolAsyncStatus {
					t.Errorf("%s: shown %t, carried out %t", tool, shown, carried)
				}
			}
		})
	}
}

func TestALostAgentIsNotShown(t *testing.T) {
	t.Parallel()
	house := agentHouse(schemas.AgentConfig{Sandbox: "sb_8"})
	if _, err := house.toolVisibility(house.agents.byID["agent_1"]); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("%v", err)
	}
}
