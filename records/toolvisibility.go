package records

import (
	"context"
	"errors"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// ToolVisibility says what a model is to be shown for an agent. It costs no round trip for an agent that the copy
// has. Codes: not_found (the agent, or a record that it names).
func (s Documents) ToolVisibility(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.ToolVisibility, error) {
	col := agentCollection()
	key, err := col.key(a, string(id))
	if err != nil {
		return schemas.ToolVisibility{}, s.missing(a, col, string(id))
	}
	g, err := find(ctx, s.cache, key, func(t *tenant) (schemas.Agent, bool) {
		g, ok := t.agents.byID[id]
		return g, ok
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.ToolVisibility{}, s.missing(a, col, string(id))
	}
	if err != nil {
		return schemas.ToolVisibility{}, err
	}
	t := s.tenantOf(a)
	if t == nil {
		return schemas.ToolVisibility{}, col.missing(string(id))
	}
	return t.toolVisibility(g)
}

// exposure is the union over the agent's workspaces of what can be carried out there, without the tools that
// are switched off. Background jobs are offered where a kept box runs them.
func (t *tenant) toolVisibility(g schemas.Agent) (schemas.ToolVisibility, error) {
	e := schemas.ToolVisibility{Bare: len(g.Workspaces) == 0}
	can, jobs := map[schemas.Tool]bool{}, false
	for n := range max(len(g.Workspaces), 1) {
		s, err := t.placementOf(g, n)
		if err != nil {
			return e, err
		}
		for _, tool := range schemas.Tools() {
			can[tool] = can[tool] || schemas.Refusal(tool, s.workspace.ID, s.sandbox.ID) == ""
		}
		e.Notes = e.Notes || s.workspace.ID != "" && !s.workspace.NoHarness &&
			schemas.Refusal(schemas.ToolWrite, s.workspace.ID, s.sandbox.ID) == ""
		able, _ := t.providers.Find(s.provider)
		jobs = jobs || able.Jobs && s.sandbox.Persistent && s.workspace.ID != ""
		if len(g.Workspaces) > 1 {
			e.Workspaces = append(e.Workspaces, g.Workspaces[n].Name)
		}
	}
	for _, tool := range schemas.Tools() {
		can[tool] = can[tool] && g.Offered(tool)
	}
	for _, name := range g.Skills {
		if k, ok := t.skills.byID[skillIDOf(g.Account, name)]; ok {
			e.Skills = append(e.Skills, schemas.SkillSummary{Name: k.Name, Description: k.Description})
		}
	}
	e.Notes = e.Notes && can[schemas.ToolRead] && can[schemas.ToolWrite]
	can[schemas.ToolLoadSkill] = can[schemas.ToolLoadSkill] && len(e.Skills) > 0
	// Without bash no call starts a job, and without async_status no agent polls one.
	if jobs && can[schemas.ToolBash] && can[schemas.ToolAsyncStatus] {
		e.Actions = schemas.JobActions()
	} else {
		can[schemas.ToolAsyncStatus] = false
	}
	e.Tools = slices.DeleteFunc(schemas.Tools(), func(tool schemas.Tool) bool { return !can[tool] })
	return e, nil
}
