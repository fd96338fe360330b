package records

import (
	"testing"

	"github.com/sandjet/sandjet/schemas"
)

// TestFilesAreThoseOfTheSandboxOfAWorkspace, and of the default provider where it names none.
func TestFilesAreThoseOfTheSandboxOfAWorkspace(t *testing.T) {
	x := house()
	x.put(record{Workspace: &schemas.Workspace{ID: "ws_3", Account: alice, Name: "boxes", Sandbox: "sb_2"}}, stand{})
	x.put(record{Workspace: &schemas.Workspace{ID: "ws_4", Account: alice, Name: "gone", Sandbox: "sb_gone"}}, stand{})
	t1 := x.tenants[alice]
	standard := t1.providers.Default()
	for id, want := range map[schemas.WorkspaceID]string{"ws_1": "local", "ws_2": standard, "ws_3": "docker", "ws_4": standard} {
		if got := t1.filesOf(t1.workspaces.byID[id]); got.Provider != want || got.ID != id {
			t.Errorf("%s: %+v, want %s", id, got, want)
		}
	}
}

// TestFilesOfAChannelAreWhereItsCallsFindThem: in the sandbox of its agent, where that has one.
func TestFilesOfAChannelAreWhereItsCallsFindThem(t *testing.T) {
	x := house()
	agent := func(id schemas.AgentID, entries ...schemas.AgentWorkspace) {
		x.put(record{Agent: &schemas.Agent{ID: id, Account: alice, Name: string(id), AgentConfig: schemas.AgentConfig{Workspaces: entries}}}, stand{})
	}
	in := func(id schemas.WorkspaceID, sandbox schemas.SandboxChoice) schemas.AgentWorkspace {
		return schemas.AgentWorkspace{Name: string(id), Workspace: id, Sandbox: sandbox}
	}
	agent("agent_none")
	agent("agent_1", in("ws_2", schemas.SandboxChoice{Given: true, ID: "sb_2"}), in("ws_1", schemas.SandboxChoice{}))
	alices := x.tenants[alice]
	for name, c := range map[string]struct {
		channel   schemas.ChatChannel
		workspace schemas.WorkspaceID
		provider  string
	}{
		"the default one":               {schemas.ChatChannel{}, "ws_1", "local"},
		"its own":                       {schemas.ChatChannel{Workspace: "ws_2"}, "ws_2", alices.providers.Default()},
		"the agent's first":             {schemas.ChatChannel{Agent: "agent_1"}, "ws_2", "docker"},
		"the agent's second":            {schemas.ChatChannel{Agent: "agent_1", Workspace: "ws_1"}, "ws_1", "local"},
		"one that is none of the agent": {schemas.ChatChannel{Agent: "agent_none", Workspace: "ws_1"}, "ws_1", "local"},
		"of an agent without any":       {schemas.ChatChannel{Agent: "agent_none"}, "", ""},
		"of an agent that is gone":      {schemas.ChatChannel{Agent: "agent_gone"}, "", ""},
		"gone":                          {schemas.ChatChannel{Workspace: "ws_gone"}, "", ""},
	} {
		got, err := alices.channelFiles(c.channel)
		if got.ID != c.workspace || got.Provider != c.provider || (err == nil) != (c.workspace != "") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
