package attachtoken

import (
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// MaxReach is the most entries of each list of a [Reach].
const MaxReach = 32

// Reach limits the calls that are sent with a token. An empty list means no limit of that kind.
type Reach struct {
	Workspaces []schemas.WorkspaceID `json:"workspaces,omitempty"`
	Sandboxes  []schemas.SandboxID   `json:"sandboxes,omitempty"`
	Agents     []schemas.AgentID     `json:"agents,omitempty"` // with some, calls without an agent are refused
	Tools      []schemas.Tool        `json:"tools,omitempty"`
}

// everything reports whether the reach limits nothing.
func (r Reach) everything() bool {
	return len(r.Workspaces)+len(r.Sandboxes)+len(r.Agents)+len(r.Tools) == 0
}

// validate validates the reach of a new token with these ops. Code: invalid.
func (r Reach) validate(ops []Op) error {
	if r.everything() {
		return nil
	}
	for field, n := range map[string]int{
		"workspaces": len(r.Workspaces), "sandboxes": len(r.Sandboxes), "agents": len(r.Agents), "tools": len(r.Tools),
	} {
		switch {
		case n > MaxReach:
			return schemas.Invalidf(field, "has %d entries: at most %d", n, MaxReach)
		case n > 0 && !slices.Contains(ops, Send):
			return schemas.Invalidf(field, "is about calls that are sent: add send to \"ops\", or leave it out")
		}
	}
	for _, id := range r.Workspaces {
		if err := id.Validate(); err != nil {
			return schemas.Invalidf("workspaces", "%q is not the id of a workspace", schemas.Quotable(string(id)))
		}
	}
	for _, id := range r.Sandboxes {
		if err := id.Validate(); err != nil {
			return schemas.Invalidf("sandboxes", "%q is not the id of a sandbox", schemas.Quotable(string(id)))
		}
	}
	for _, id := range r.Agents {
		if err := id.Validate(); err != nil {
			return schemas.Invalidf("agents", "%q is not the id of an agent", schemas.Quotable(string(id)))
		}
	}
	for _, tool := range r.Tools {
		if !slices.Contains(schemas.Tools(), tool) {
			return schemas.Invalidf("tools", "%q is not a tool", schemas.Quotable(string(tool)))
		}
	}
	return nil
}

// CheckCall checks that a resolved call is within the reach. Code: denied.
func (r Reach) CheckCall(c schemas.Call) error {
	for _, part := range []struct {
		what, id string
		out      bool
	}{
		{"tool", string(c.Tool), outside(r.Tools, c.Tool)},
		{"agent", string(c.Agent), outside(r.Agents, c.Agent)},
		{"workspace", string(c.Workspace), outside(r.Workspaces, c.Workspace)},
		{"sandbox", string(c.Sandbox), outside(r.Sandboxes, c.Sandbox)},
	} {
		switch {
		case part.out && part.id == "":
			return &schemas.Error{Code: schemas.Denied, Field: part.what, Message: "is missing: the attach token is for some only, name one of them"}
		case part.out:
			return &schemas.Error{
				Code: schemas.Denied, Field: part.what,
				Message: "the attach token is not for the " + part.what + " " + schemas.Quotable(part.id) +
					": create one with it in \"" + plural(part.what) + "\"",
			}
		}
	}
	return nil
}

func outside[T comparable](list []T, v T) bool { return len(list) > 0 && !slices.Contains(list, v) }

func plural(what string) string {
	if what == "sandbox" {
		return "sandboxes"
	}
	return what + "s"
}
