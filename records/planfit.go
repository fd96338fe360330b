package records

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// check checks the account as it would be after the plan: whether records fit together, their number and their size.
func (p *planner) check(out *plan) error {
	before, end := newTenant(p.have.Providers), newTenant(p.have.Providers)
	planned := map[string]bool{}
	for _, kind := range schemas.ResourceKinds() {
		for _, s := range p.present[kind] {
			before.put(s.record, stand{})
			end.put(s.record, stand{})
		}
	}
	for _, s := range out.steps {
		planned[s.ID] = true
		if s.Action != schemas.ActionDelete {
			end.put(s.record, stand{})
		}
	}
	held := map[schemas.SandboxID][]schemas.Workspace{}
	for _, w := range end.workspaces.byID {
		held[w.Sandbox] = append(held[w.Sandbox], w)
	}
	for n, i := range p.at {
		s := out.steps[n]
		if p.refers(s.record) {
			p.failed[s.ID] = true
			continue
		}
		p.problems.Add(schemas.ResourcePath(i), p.fits(end, held, s.record))
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
			end.drop(s.record)
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
		if n := col.count(end); n > col.most && n > col.count(before) {
			return schemas.Errorf(schemas.Exhausted, "the account would have %d %ss: at most %d", n, col.noun, col.most)
		}
	}
	if err := p.problems.Err(); err != nil {
		return err
	}
	return p.room(out)
}

// fits checks a planned record against what it names and, of a sandbox, against the workspaces whose files are there. What of the records
// outside the plan would then not fit is found by spoiled.
func (p *planner) fits(end *tenant, held map[schemas.SandboxID][]schemas.Workspace, r record) error {
	p.checks++
	switch {
	case r.Sandbox != nil:
		for _, w := range held[r.Sandbox.ID] {
			if err := end.checkHeld(w, *r.Sandbox); err != nil {
				return err
			}
		}
	case r.Workspace != nil:
		return end.checkWorkspace(*r.Workspace)
	case r.Agent != nil:
		return end.checkAgent(*r.Agent)
	}
	return nil
}

// room returns an error if the account's records would exceed its quota. A plan that makes them smaller is carried out even if they exceed
// it already. Code: exhausted.
func (p *planner) room(out *plan) error {
	if p.have.quota == 0 {
		return nil
	}
	var more, grown int64 // with the records' times, and without
	for _, s := range out.steps {
		if s.Action == schemas.ActionNone {
			continue
		}
		had := int64(p.have.sizes[s.ID])
		if s.Action == schemas.ActionDelete {
			more, grown = more-had, grown-had
			continue
		}
		size, err := p.have.size(s.record)
		if err != nil {
			return err
		}
		more, grown = more+int64(size)-had, grown+int64(size)-had
		if s.Action != schemas.ActionCreate && !grows(s.was, s.record) {
			grown -= max(int64(size)-had, 0)
		}
	}
	if p.have.bytes+more <= p.have.quota || grown <= 0 {
		out.more = max(min(more, grown), 0)
		return nil
	}
	return tooLarge("resources", p.have.bytes, more, p.have.quota)
}

// spoiled finds the records outside the plan that fit together before and not after: of those that name something planned, as nothing
// becomes of the others.
func (p *planner) spoiled(before, after *tenant, planned map[string]bool, tell func(noun, name string, err error)) {
	each := func(kind schemas.ResourceKind, check func(*tenant, record) error) {
		for _, name := range slices.Sorted(maps.Keys(p.present[kind])) {
			s := p.present[kind][name]
			if planned[s.id] || !s.record.names(planned) {
				continue
			}
			p.checks++
			if err := check(after, s.record); err != nil && check(before, s.record) == nil {
				tell(strings.ToLower(string(kind)), s.name, err)
			}
		}
	}
	each(schemas.KindWorkspace, func(t *tenant, r record) error { return t.checkWorkspace(*r.Workspace) })
	each(schemas.KindAgent, func(t *tenant, r record) error { return t.checkAgent(*r.Agent) })
}

// drop removes a record.
func (t *tenant) drop(r record) {
	kind, _, id, _ := splitKey(r.key())
	t.remove(kind, id)
}

// names reports whether a record names one of some ids.
func (r record) names(some map[string]bool) bool {
	switch {
	case r.Workspace != nil:
		return some[string(r.Workspace.Sandbox)]
	case r.Agent != nil:
		return some[string(r.Agent.Sandbox)] || slices.ContainsFunc(r.Agent.Workspaces, func(e schemas.AgentWorkspace) bool {
			return some[string(e.Workspace)] || some[string(e.Sandbox.ID)]
		}) || slices.ContainsFunc(r.Agent.Turns.Models(), func(m schemas.ModelID) bool { return some[string(m)] })
	}
	return false
}

// refers reports whether a record names one that could not be planned, so that it cannot be checked.
func (p *planner) refers(r record) bool { return r.names(p.failed) }
