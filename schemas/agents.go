package schemas

import (
	"bytes"
	"encoding/json"
	"time"
)

// Agent is the record of an agent: the workspaces that it sees, where its commands run, which tools it has, and which model it uses. For
// an agent without a model, its harness has model and prompt.
type Agent struct {
	ID          AgentID   `json:"id"`
	Account     AccountID `json:"account"`
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	// Manifest names the manifest that the record was applied with; empty: it was made by hand.
	Manifest string    `json:"manifest,omitzero"`
	Created  time.Time `json:"created"`
	Updated  time.Time `json:"updated,omitzero"`

	AgentConfig
}

// AgentConfig is what a client says of an agent.
type AgentConfig struct {
	// Sandbox is where commands run that have no workspace, and those in workspaces that say nothing
	// else; empty: there is none.
	Sandbox SandboxID `json:"sandbox,omitzero"`
	// Workspaces are those that the agent sees, at most MaxAgentWorkspaces. The first is the default.
	Workspaces []AgentWorkspace `json:"workspaces,omitzero"`
	// Tools changes what is offered and what a person must allow; a tool that is not named is as ever.
	Tools map[Tool]ToolConfig `json:"tools,omitzero"`
	// Skills are the names of those that load_skill gives the model, at most MaxAgentSkills. One that is not there is not offered.
	Skills []string `json:"skills,omitzero"`
	// Turns is which model is asked, and within which limits.
	Turns AgentTurns `json:"turns,omitzero"`
}

// AgentWorkspace is a workspace as one agent sees it.
type AgentWorkspace struct {
	// Name is what the model calls it: unique within the agent.
	Name      string      `json:"name"`
	Workspace WorkspaceID `json:"workspaceId"`
	// Sandbox says where commands run: left out, in the agent's sandbox, if it has one; null: nowhere,
	// and the files are only read; an id: in that one.
	Sandbox SandboxChoice `json:"sandbox,omitzero"`
}

// SandboxChoice is a sandbox that a client may name, exclude (null) or leave open. The zero value leaves it open.
type SandboxChoice struct {
	Given bool
	ID    SandboxID // empty with Given: null, there is to be none
}

// IsZero reports whether the choice was left open.
func (c SandboxChoice) IsZero() bool { return !c.Given }

// MarshalJSON writes null or the id.
func (c SandboxChoice) MarshalJSON() ([]byte, error) {
	if c.ID == "" {
		return []byte("null"), nil
	}
	return json.Marshal(c.ID)
}

// UnmarshalJSON reads null or an id.
func (c *SandboxChoice) UnmarshalJSON(b []byte) error {
	*c = SandboxChoice{Given: true}
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if json.Unmarshal(b, &c.ID) != nil || c.ID.Validate() != nil {
		return Invalidf("", "must be the id of a sandbox, or null for none")
	}
	return nil
}

// ToolConfig changes one tool of an agent.
type ToolConfig struct {
	Enabled *bool `json:"enabled,omitzero"` // default true; false: it is not offered, and its calls are denied
	// NeedsApproval lets a person decide where the permission mode would not ask. It never takes a
	// question away.
	NeedsApproval bool `json:"needsApproval,omitzero"`
}

// AgentSpec is what a client says of an agent.
type AgentSpec struct {
	Name        string      `json:"name"`
	Description string      `json:"description,omitzero"`
	Config      AgentConfig `json:"config,omitzero"`
}

// AgentDocument is an agent as clients see it.
type AgentDocument struct {
	ID          AgentID     `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description,omitzero"`
	Config      AgentConfig `json:"config"`
	Manifest    string      `json:"manifest,omitzero"`
	Created     time.Time   `json:"createdAt"`
	Updated     time.Time   `json:"updatedAt"`
}

// Offered reports whether a tool may be called at all.
func (c AgentConfig) Offered(t Tool) bool {
	enabled := c.Tools[t].Enabled
	return enabled == nil || *enabled
}

// Refusal explains, for the model, why a call of the tool cannot be carried out with the workspace and the sandbox that its agent has for
// it, either of which may be empty; "" if it can.
func Refusal(t Tool, w WorkspaceID, s SandboxID) string {
	commands := t == ToolBash || t == ToolAsyncStatus
	switch {
	case s == "" && commands:
		return "no sandbox available for this command"
	case w == "" && t != ToolBash:
		return "this agent has no workspace"
	case s == "" && t != ToolRead && t != ToolGlob && t != ToolLS && !commands:
		return "workspace is read-only"
	}
	return ""
}

// ToolVisibility is what a model should be shown for an agent.
type ToolVisibility struct {
	Tools []Tool // in the order of [Tools]; async_status stands for itself when there are Actions
	// Workspaces are the names that the argument workspace takes; empty: there is nothing to choose.
	Workspaces []string
	Skills     []SkillSummary // that load_skill offers; empty: it is not offered
	Actions    []JobAction    // on background jobs; empty: there are none
	// Notes says that the tools mention where notes and open tasks are kept.
	Notes bool
	// Bare says that there is no workspace: each command begins with nothing, and leaves nothing.
	Bare bool
}

// AllTools is what a model is shown without an agent: every tool and every action.
func AllTools() ToolVisibility { return ToolVisibility{Tools: Tools(), Actions: JobActions()} }

// Variable is a value that an account keeps encrypted for its records: they name it as env:NAME.
type Variable struct {
	Account AccountID `json:"account"`
	Name    string    `json:"name"` // A-Z a-z 0-9 _, no digit first
	Value   string    `json:"value,omitzero"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated,omitzero"`
}

// VariableDocument is a variable as clients see it: its value is never shown.
type VariableDocument struct {
	Name    string    `json:"name"`
	Created time.Time `json:"createdAt"`
	Updated time.Time `json:"updatedAt"`
}

// VariablePrefix begins a value that names a variable of the account.
const VariablePrefix = "env:"
