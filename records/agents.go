package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

// agentOf returns the record for what a client sent, after checking it. The records that it names are checked elsewhere.
func agentOf(old schemas.Agent, spec schemas.AgentSpec) (schemas.Agent, error) {
	var p schemas.Problems
	p.Add("", checkNames(schemas.AgentPrefix, spec.Name, spec.Description))
	p.Add("", CheckAgent(spec.Config))
	if err := p.Err(); err != nil {
		return schemas.Agent{}, err
	}
	g := old
	g.Name, g.Description, g.AgentConfig = spec.Name, spec.Description, spec.Config
	return g, nil
}

// agentSpec returns what a client would send to create the record.
func agentSpec(g schemas.Agent) schemas.AgentSpec {
	return schemas.AgentSpec{Name: g.Name, Description: g.Description, Config: g.AgentConfig}
}

func agentDocument(g schemas.Agent) schemas.AgentDocument {
	return schemas.AgentDocument{
		ID: g.ID, Name: g.Name, Description: g.Description, Config: g.AgentConfig, Manifest: g.Manifest,
		Created: g.Created, Updated: updated(g.Created, g.Updated),
	}
}

// CheckAgent returns all errors of an agent's config, see [schemas.Problems]. It does not check whether the records that it names exist.
// It is pure. Errors are invalid, and name the field.
func CheckAgent(c schemas.AgentConfig) error {
	var p schemas.Problems
	if c.Sandbox != "" && c.Sandbox.Validate() != nil {
		p.Add("config.sandbox", schemas.Invalidf("", "%q is not the id of a sandbox", schemas.Quotable(string(c.Sandbox))))
	}
	if len(c.Workspaces) > schemas.MaxAgentWorkspaces {
		return schemas.Invalidf("config.workspaces", "has %d entries: at most %d", len(c.Workspaces), schemas.MaxAgentWorkspaces)
	}
	for i, e := range c.Workspaces {
		p.Add("", checkEntry(fieldOfEntry(i), e))
		if e.Name != "" && slices.ContainsFunc(c.Workspaces[:i], func(other schemas.AgentWorkspace) bool { return other.Name == e.Name }) {
			p.Add(fieldOfEntry(i)+".name", schemas.Invalidf("", "%q is given twice: the model could not distinguish them", e.Name))
		}
	}
	p.Add("", checkSkillNames(c.Skills))
	p.Add("", checkTurns(c.Turns))
	for _, t := range slices.Sorted(maps.Keys(c.Tools)) {
		if known := schemas.Tools(); !slices.Contains(known, t) {
			p.Add("", unknown("config.tools."+schemas.Quotable(string(t)), t, known))
		}
	}
	return p.Err()
}

// checkSkillNames checks the names of an agent's skills. The skills need not exist: an agent may be created before them.
func checkSkillNames(names []string) error {
	if len(names) > schemas.MaxAgentSkills {
		return schemas.Invalidf("config.skills", "has %d entries: at most %d", len(names), schemas.MaxAgentSkills)
	}
	var p schemas.Problems
	for i, name := range names {
		field := fmt.Sprintf("config.skills[%d]", i)
		p.Add("", schemas.ValidateSkillName(field, name))
		if slices.Contains(names[:i], name) {
			p.Add(field, schemas.Invalidf("", "%q is given twice", schemas.Quotable(name)))
		}
	}
	return p.Err()
}

// fieldOfEntry names the n-th workspace of an agent.
func fieldOfEntry(n int) string { return fmt.Sprintf("config.workspaces[%d]", n) }

func checkEntry(field string, e schemas.AgentWorkspace) error {
	if err := checkNames(schemas.WorkspacePrefix, e.Name, ""); err != nil {
		p := schemas.Public(err)
		return schemas.Invalidf(field+".name", "%s", p.Message)
	}
	if e.Workspace.Validate() != nil {
		return schemas.Invalidf(field+".workspaceId", "%q is not the id of a workspace", schemas.Quotable(string(e.Workspace)))
	}
	return nil
}

// placement is where the calls of an agent run that are for one of its workspaces.
type placement struct {
	workspace schemas.Workspace // the zero one: the agent has none
	sandbox   schemas.Sandbox   // the zero one: there is none
	// provider serves the calls: the sandbox's, else that which holds the files.
	provider string
	// direct: no sandbox was asked for, so that files on S3 are read in the bucket.
	direct bool
}

// misfit is why a call of an agent could not be placed. Its message is built only when it is shown, since it lists the alternatives.
type misfit struct {
	field, noun, id string
	known           func() string
	err             error // in place of all these
}

func (m *misfit) worded() error {
	if m.err != nil {
		return m.err
	}
	return missingAt(m.field, m.noun, m.id, m.known())
}

// placementOf returns the n-th placement of an agent; an agent without workspaces has one. Codes: not_found (a record that the agent names
// is gone), invalid (the files cannot be reached from there). Errors name the field of the agent.
func (t *tenant) placementOf(g schemas.Agent, n int) (placement, error) {
	s, m := t.placed(g, n)
	if m != nil {
		return s, m.worded()
	}
	return s, nil
}

// placed is placementOf without building the error's message.
func (t *tenant) placed(g schemas.Agent, n int) (s placement, m *misfit) {
	id, field := g.Sandbox, "config.sandbox"
	var ok bool
	if n < len(g.Workspaces) {
		e := g.Workspaces[n]
		if s.workspace, ok = t.workspaces.byID[e.Workspace]; !ok {
			return s, &misfit{field: fieldOfEntry(n) + ".workspaceId", noun: "workspace", id: string(e.Workspace), known: t.workspaces.known}
		}
		if e.Sandbox.Given {
			id, field = e.Sandbox.ID, fieldOfEntry(n)+".sandbox"
			s.direct = id == "" && s.workspace.Storage != ""
		}
	}
	if id != "" {
		if s.sandbox, ok = t.sandboxes.byID[id]; !ok {
			return s, &misfit{field: field, noun: "sandbox", id: string(id), known: t.sandboxes.known}
		}
		s.provider = s.sandbox.Provider
		if err := CheckStorage(t.providers, s.workspace, s.sandbox); err != nil {
			return s, &misfit{err: err}
		}
		return s, nil
	}
	// What holds the files reaches them; those on S3 are read where they are, by a worker of any provider.
	s.provider = t.holderOf(s.workspace)
	return s, nil
}

// holderOf returns the provider that has the files of a workspace, if the record says so.
func (t *tenant) holderOf(w schemas.Workspace) string {
	if own, ok := t.sandboxes.byID[w.Sandbox]; ok {
		return own.Provider
	}
	return t.providers.Default()
}

// misplaced returns the first workspace of an agent that would fail its calls; a nil misfit: none would.
func (t *tenant) misplaced(g schemas.Agent) (n int, m *misfit) {
	for n = range max(len(g.Workspaces), 1) {
		if _, m = t.placed(g, n); m != nil {
			return n, m
		}
	}
	return 0, nil
}

// checkPlacements returns an error for the first workspace of an agent that would fail its calls. Code: invalid.
func (t *tenant) checkPlacements(g schemas.Agent) error {
	n, m := t.misplaced(g)
	if m == nil {
		return nil
	}
	e := schemas.Public(m.worded())
	field := e.Field
	if !strings.HasPrefix(field, "config.sandbox") && !strings.HasPrefix(field, "config.workspaces") {
		field = fieldOfEntry(n)
	}
	return schemas.Invalidf(field, "%s", e.Message)
}

// checkUsers returns an error for the first agent that uses the changed sandbox or workspace and whose calls would fail because of the
// change. Code: conflict.
func (t *tenant) checkUsers(noun string, uses func(schemas.Agent) bool, changed func(*tenant)) error {
	var after *tenant // made only when some agent is concerned
	for _, id := range t.agents.ids() {
		g := t.agents.byID[schemas.AgentID(id)]
		if !uses(g) {
			continue
		}
		if _, already := t.misplaced(g); already != nil {
			continue
		}
		if after == nil {
			after = t.copied()
			changed(after)
		}
		if err := after.checkPlacements(g); err != nil {
			return &schemas.Error{
				Code: schemas.Conflict, Field: "config",
				Message: "agent " + schemas.Quotable(g.Name) + " uses this " + noun + ", and then could not: " + schemas.Public(err).Message,
			}
		}
	}
	return nil
}

// copied returns a copy of the tenant whose sandboxes, workspaces and models may be changed.
func (t *tenant) copied() *tenant {
	c := *t.successor()
	c.sandboxes.byID, c.workspaces.byID = maps.Clone(t.sandboxes.byID), maps.Clone(t.workspaces.byID)
	c.models.byID = maps.Clone(t.models.byID)
	return &c
}

// usesSandbox reports whether calls of an agent may run in a sandbox, or whether its files are there.
func (t *tenant) usesSandbox(g schemas.Agent, id schemas.SandboxID) bool {
	return g.Sandbox == id || slices.ContainsFunc(g.Workspaces, func(e schemas.AgentWorkspace) bool {
		return e.Sandbox.ID == id || t.workspaces.byID[e.Workspace].Sandbox == id
	})
}

func usesWorkspace(g schemas.Agent, id schemas.WorkspaceID) bool {
	return slices.ContainsFunc(g.Workspaces, func(e schemas.AgentWorkspace) bool { return e.Workspace == id })
}
