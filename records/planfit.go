package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sandjet/sandjet/schemas"
)

// check looks at the account as it will be: what fits together, and how many there are.
func (p *planner) check(out *plan) error {
	before, end := &tenant{providers: p.have.Providers}, &tenant{providers: p.have.Providers}
	planned := map[string]bool{}
	for _, kind := range schemas.ResourceKinds() {
		for _, s := range p.present[kind] {
			before.put(s.record)
			end.put(s.record)
		}
	}
	for _, s := range out.steps {
		planned[s.ID] = true
		if s.Action != schemas.ActionDelete {
			end.put(s.record)
		}
	}
	for n, i := range p.at {
		s := out.steps[n]
		col, err := newCollection(p.have.Providers, collectionOf(s.Kind))
		if err != nil {
			return err
		}
		if p.refers(s.record) {
			p.failed[s.ID] = true
			continue
		}
		p.problems.Add(schemas.ResourcePath(i), col.fits(end, s.record))
	}
	if len(p.problems) > 0 { // what would become of other records is not known
		slices.SortStableFunc(p.problems, func(a, b *schemas.Error) int {
			return cmp.Compare(schemas.ResourceIndex(a.Field), schemas.ResourceIndex(b.Field))
		})
		return p.problems.Err()
	}
	p.spoiled(before, end, planned, func(noun, name string, err error) {
		p.problems = append(p.problems, &schemas.Error{
			Code: schemas.Conflict, Message: fmt.Sprintf("the %s %s is not in the manifest, and then could not be used: %s",
				noun, name, schemas.Public(err)),
		})
	})
	kept := end.copied()
	for _, s := range out.steps {
		if s.Action == schemas.ActionDelete {
			end.remove(s.record)
		}
	}
	p.spoiled(kept, end, planned, func(noun, name string, err error) {
		out.warnings.Notes = append(out.warnings.Notes, fmt.Sprintf("calls of the %s %s fail then: %s", noun, name, schemas.Public(err)))
	})
	for _, kind := range schemas.ResourceKinds() {
		col, err := newCollection(p.have.Providers, collectionOf(kind))
		if err != nil {
			return err
		}
		if n := len(col.ids(end)); n > col.most && n > len(col.ids(before)) {
			return schemas.Errorf(schemas.Exhausted, "", "the account would have %d %ss: at most %d", n, col.noun, col.most)
		}
	}
	return p.problems.Err()
}

// spoiled finds the records outside the plan that fit together before and not after.
func (p *planner) spoiled(before, after *tenant, planned map[string]bool, tell func(noun, name string, err error)) {
	for _, kind := range schemas.ResourceKinds() {
		col, err := newCollection(p.have.Providers, collectionOf(kind))
		if err != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(p.present[kind])) {
			s := p.present[kind][name]
			if planned[s.id] || col.fits(before, s.record) != nil {
				continue
			}
			if err := col.fits(after, s.record); err != nil {
				tell(col.noun, s.name, err)
			}
		}
	}
}

// put and remove keep a tenant that no index has.
func (t *tenant) put(r record) {
	switch {
	case r.Sandbox != nil:
		t.sandboxes.put(r.Sandbox.ID, *r.Sandbox, sandboxName)
	case r.Workspace != nil:
		t.workspaces.put(r.Workspace.ID, *r.Workspace, workspaceName)
	case r.Model != nil:
		t.models.put(r.Model.ID, *r.Model, modelName)
	case r.Agent != nil:
		t.agents.put(r.Agent.ID, *r.Agent, agentName)
	}
}

func (t *tenant) remove(r record) {
	switch {
	case r.Sandbox != nil:
		t.sandboxes.remove(r.Sandbox.ID, sandboxName)
	case r.Workspace != nil:
		t.workspaces.remove(r.Workspace.ID, workspaceName)
	case r.Model != nil:
		t.models.remove(r.Model.ID, modelName)
	case r.Agent != nil:
		t.agents.remove(r.Agent.ID, agentName)
	}
}

// refers reports whether a record names one that could not be made: what it would be is not known.
func (p *planner) refers(r record) bool {
	switch {
	case r.Workspace != nil:
		return p.failed[string(r.Workspace.Sandbox)]
	case r.Agent != nil:
		return p.failed[string(r.Agent.Sandbox)] || slices.ContainsFunc(r.Agent.Workspaces, func(e schemas.AgentWorkspace) bool {
			return p.failed[string(e.Workspace)] || p.failed[string(e.Sandbox.ID)]
		}) || slices.ContainsFunc(r.Agent.Turns.Models(), func(m schemas.ModelID) bool { return p.failed[string(m)] })
	}
	return false
}
