package records

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Applied is what there is after a manifest was applied.
func Applied(have Present, m schemas.Manifest, prune bool) (Present, error) {
	p, err := planOf(have, m, prune, time.Unix(1, 0).UTC())
	if err != nil {
		return have, err
	}
	end := newTenant(have.Providers)
	for _, s := range have.Sandboxes {
		end.put(record{Sandbox: &s}, stand{})
	}
	for _, w := range have.Workspaces {
		end.put(record{Workspace: &w}, stand{})
	}
	for _, g := range have.Agents {
		end.put(record{Agent: &g}, stand{})
	}
	for _, s := range p.steps {
		if s.Action == schemas.ActionDelete {
			end.drop(s.record)
		} else {
			end.put(s.record, stand{})
		}
	}
	out := Present{Account: have.Account, Providers: have.Providers, Variables: have.Variables}
	for _, id := range end.sandboxes.ids() {
		out.Sandboxes = append(out.Sandboxes, end.sandboxes.byID[schemas.SandboxID(id)])
	}
	for _, id := range end.workspaces.ids() {
		out.Workspaces = append(out.Workspaces, end.workspaces.byID[schemas.WorkspaceID(id)])
	}
	for _, id := range end.agents.ids() {
		out.Agents = append(out.Agents, end.agents.byID[schemas.AgentID(id)])
	}
	return out, nil
}

// ApplySome carries out only the first n changes of a manifest, as one does that is killed then, and reports
// whether there were more.
func (s *Store) ApplySome(ctx context.Context, a schemas.AccountID, r schemas.ManifestRequest, n int) (bool, error) {
	have, revisions, err := s.Manifests.present(a)
	if err != nil {
		return false, err
	}
	p, err := planOf(have, r.Manifest, r.Prune, time.Now().UTC())
	if err != nil || n >= len(p.steps) {
		return false, err
	}
	p.steps = p.steps[:n]
	return true, s.Manifests.carryOut(ctx, a, p, revisions, map[string]schemas.ManifestChange{})
}
