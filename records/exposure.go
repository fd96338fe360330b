package records

import (
	"context"
	"errors"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// Exposure says what a model is to be shown for an agent. It costs no round trip for an agent that the copy
// has. Codes: not_found (the agent, or a record that it names).
func (s *Store) Exposure(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.Exposure, error) {
	sh := agentShelf()
	key, err := sh.key(a, string(id))
	if err != nil {
		return schemas.Exposure{}, err
	}
	g, err := find(ctx, s, key, func(x *index) (schemas.Agent, bool) {
		t := x.tenants[a]
		if t == nil {
			return schemas.Agent{}, false
		}
		g, ok := t.agents.byID[id]
		return g, ok
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Exposure{}, sh.missing(string(id))
	}
	if err != nil {
		return schemas.Exposure{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.index.tenants[a]
	if t == nil {
		return schemas.Exposure{}, sh.missing(string(id))
	}
	return t.exposure(g)
}

// exposure is the union over the agent's workspaces of what can be carried out there, without the tools that
// are switched off. Background jobs are offered where a kept box runs them.
func (t *tenant) exposure(g schemas.Agent) (schemas.Exposure, error) {
	e := schemas.Exposure{Bare: len(g.Workspaces) == 0}
	can, jobs := map[schemas.Tool]bool{}, false
	for n := range max(len(g.Workspaces), 1) {
		s, err := t.sceneOf(g, n)
		if err != nil {
			return e, err
		}
		for _, tool := range schemas.Tools() {
			can[tool] = can[tool] || schemas.Refusal(tool, s.workspace.ID, s.sandbox.ID) == ""
		}
		able, _ := t.providers.Find(s.provider)
		jobs = jobs || able.Jobs && s.sandbox.Persistent && s.workspace.ID != ""
		if len(g.Workspaces) > 1 {
			e.Workspaces = append(e.Workspaces, g.Workspaces[n].Name)
		}
	}
	for _, tool := range schemas.Tools() {
		can[tool] = can[tool] && g.Offered(tool)
	}
	// Without bash nothing starts a job, and without async_status nobody looks after one.
	if jobs && can[schemas.ToolBash] && can[schemas.ToolAsyncStatus] {
		e.Actions = schemas.JobActions()
	} else {
		can[schemas.ToolAsyncStatus] = false
	}
	e.Tools = slices.DeleteFunc(schemas.Tools(), func(tool schemas.Tool) bool { return !can[tool] })
	return e, nil
}
