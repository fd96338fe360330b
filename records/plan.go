package records

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// Present is what an account has, as far as manifests can change it.
type Present struct {
	Account    schemas.AccountID
	Sandboxes  []schemas.Sandbox
	Workspaces []schemas.Workspace
	Models     []schemas.Model
	Agents     []schemas.Agent
	Variables  []string // their names
	Providers  schemas.Catalog
	Operator   Operator // what its sandboxes may have

	bytes, quota int64                     // of all its records; without a quota nothing of this is looked at
	sizes        map[string]int            // of those above, by id
	size         func(record) (int, error) // that a record will have
}

// Plan says what has to change for an account to be as a manifest says. It is pure.
//
// A record of the manifest's name is changed to what the manifest says; one that was made by hand is
// adopted, one of another project refused. A record of this project that the manifest has no more is
// renamed where exactly one new resource of its kind has its very config; else it stays, or with prune is
// deleted. A manifest may also name records that are not of this project. The changes are in an order in
// which each finds what it names. Code: invalid, with all that is wrong; conflict; exhausted.
func Plan(have Present, m schemas.Manifest, prune bool) (schemas.ManifestAnswer, error) {
	p, err := planOf(have, m, prune, time.Time{})
	if err != nil {
		return schemas.ManifestAnswer{}, err
	}
	return p.answer(), nil
}

// plan has the changes and the records that they make.
type plan struct {
	steps    []step
	warnings schemas.ManifestWarnings
	more     int64 // bytes by which the account's records grow at least, where it has a quota
}

// step is one change. record is the new record, or the old one for a deletion; was is the old one.
type step struct {
	schemas.ManifestChange

	record, was record
}

func (p plan) answer() schemas.ManifestAnswer {
	a := schemas.ManifestAnswer{Changes: make([]schemas.ManifestChange, len(p.steps)), Warnings: p.warnings}
	for i, s := range p.steps {
		a.Changes[i] = s.ManifestChange
	}
	return a
}

// planner makes a plan, one kind after the other, in an order in which each names only earlier ones.
type planner struct {
	have     Present
	manifest schemas.Manifest
	prune    bool
	now      time.Time

	present  map[schemas.ResourceKind]map[string]existing // by name
	ids      map[schemas.ResourceKind]map[string]string   // by the name that a record is to have
	names    map[string]string                            // the other way round
	gone     map[schemas.ResourceKind][]existing          // of the project, and not in the manifest
	made     []step
	at       []int           // for each step, which resource it is of
	failed   map[string]bool // ids of records that could not be made of their resources
	checks   int             // of records against others
	problems schemas.Problems
}

// existing is a record that exists.
type existing struct {
	record  record
	id      string
	name    string
	project string // empty: made by hand
}

func planOf(have Present, m schemas.Manifest, prune bool, now time.Time) (plan, error) {
	return newPlanner(have, m, prune, now).plan()
}

func newPlanner(have Present, m schemas.Manifest, prune bool, now time.Time) *planner {
	return &planner{
		have: have, manifest: m, prune: prune, now: now, names: map[string]string{}, failed: map[string]bool{}, problems: m.Problems(),
		present: map[schemas.ResourceKind]map[string]existing{}, ids: map[schemas.ResourceKind]map[string]string{},
		gone: map[schemas.ResourceKind][]existing{},
	}
}

func (p *planner) plan() (plan, error) {
	if len(p.manifest.Resources) > schemas.MaxResources {
		return plan{}, p.problems.Err()
	}
	p.look()
	for _, kind := range schemas.ResourceKinds() {
		p.kind(kind)
	}
	out := plan{steps: p.made, warnings: p.warnings()}
	if p.prune {
		for _, kind := range slices.Backward(schemas.ResourceKinds()) {
			for _, s := range p.gone[kind] {
				out.steps = append(out.steps, step{schemas.ManifestChange{Action: schemas.ActionDelete, Kind: kind, Name: s.name, ID: s.id}, s.record, s.record})
			}
		}
	}
	return out, p.check(&out)
}

// look indexes the existing records. Of two records with one name it uses the one with the smaller id, as all lookups do.
func (p *planner) look() {
	for _, kind := range schemas.ResourceKinds() {
		p.present[kind], p.ids[kind] = map[string]existing{}, map[string]string{}
	}
	add := func(kind schemas.ResourceKind, s existing) {
		p.names[s.id] = s.name
		if other, twice := p.present[kind][s.name]; !twice || s.id < other.id {
			p.present[kind][s.name] = s
		}
	}
	for _, s := range p.have.Sandboxes {
		add(schemas.KindSandbox, existing{record{Sandbox: &s}, string(s.ID), s.Name, s.Manifest})
	}
	for _, w := range p.have.Workspaces {
		add(schemas.KindWorkspace, existing{record{Workspace: &w}, string(w.ID), w.Name, w.Manifest})
	}
	for _, m := range p.have.Models {
		add(schemas.KindModel, existing{record{Model: &m}, string(m.ID), m.Name, m.Manifest})
	}
	for _, g := range p.have.Agents {
		add(schemas.KindAgent, existing{record{Agent: &g}, string(g.ID), g.Name, g.Manifest})
	}
}

// kind plans the resources of one kind, after those that they may name.
func (p *planner) kind(kind schemas.ResourceKind) {
	var fresh []int // resources without a record of their name
	asked := map[string]bool{}
	for i, r := range p.manifest.Resources {
		if r.Kind != kind || r.Name == "" || asked[r.Name] {
			continue
		}
		asked[r.Name] = true
		s, there := p.present[kind][r.Name]
		switch {
		case !there:
			fresh = append(fresh, i)
		case s.project != "" && s.project != p.manifest.Project:
			p.problems.Add(schemas.ResourcePath(i), &schemas.Error{
				Code: schemas.Conflict, Field: "name", Message: fmt.Sprintf("the %s %q belongs to the project %s: choose another name",
					kind, schemas.Quotable(r.Name), schemas.Quotable(s.project)),
			})
			fallthrough // who names it makes no further mistake
		default:
			p.ids[kind][r.Name] = s.id
		}
	}
	for _, s := range p.present[kind] {
		switch {
		case asked[s.name]:
		case s.project == p.manifest.Project:
			p.gone[kind] = append(p.gone[kind], s)
		default: // the manifest may name it nevertheless
			p.ids[kind][s.name] = s.id
		}
	}
	slices.SortFunc(p.gone[kind], func(a, b existing) int { return cmp.Compare(a.name, b.name) })
	former := p.renamed(kind, fresh)
	planned := map[string]bool{}
	for i, r := range p.manifest.Resources {
		if r.Kind != kind || r.Name == "" || planned[r.Name] { // which is reported already
			continue
		}
		planned[r.Name] = true
		s, there := p.present[kind][r.Name]
		if old, was := former[i]; was {
			s, there = old, true
		}
		p.resource(i, r, s, there)
	}
}

// renamed finds the records whose only change is their name, by the resource that they become. Where several could
// be meant none is: the files of two workspaces would be confused.
func (p *planner) renamed(kind schemas.ResourceKind, fresh []int) map[int]existing {
	before, after := map[string][]existing{}, map[string][]int{}
	for _, s := range p.gone[kind] {
		key := configKey(p.viewOf(s))
		before[key] = append(before[key], s)
	}
	for _, i := range fresh {
		if v, err := p.viewOfResource(p.manifest.Resources[i]); err == nil {
			key := configKey(v)
			after[key] = append(after[key], i)
		}
	}
	out := map[int]existing{}
	for key, is := range after {
		if len(is) != 1 || len(before[key]) != 1 {
			continue
		}
		s := before[key][0]
		v, err := p.viewOfResource(p.manifest.Resources[is[0]])
		if err != nil || len(changedFields(p.viewOf(s)["config"], v.keeping(s.record)["config"], "config")) > 0 {
			continue // the values of variables differ
		}
		out[is[0]] = s
		p.gone[kind] = slices.DeleteFunc(p.gone[kind], func(g existing) bool { return g.id == s.id })
		p.ids[kind][p.manifest.Resources[is[0]].Name] = s.id
		p.names[s.id] = p.manifest.Resources[is[0]].Name
	}
	return out
}

// resource plans one. s is the record that it changes, if there is one. A resource with an error is not made, but the rest of it is still
// checked: all errors are reported together.
func (p *planner) resource(i int, r schemas.Resource, s existing, there bool) {
	wrong := func(err error) { p.problems.Add(schemas.ResourcePath(i), err) }
	if there && s.project != "" && s.project != p.manifest.Project {
		return // it is reported already
	}
	change := schemas.ManifestChange{Kind: r.Kind, Name: r.Name, ID: s.id}
	old := s.record
	col, err := newCollection(p.have.Providers, collectionOf(r.Kind))
	if err != nil {
		wrong(err)
		return
	}
	if !there {
		change.Action, change.ID = schemas.ActionCreate, p.freeID(col.prefix, r)
		old = col.fresh(p.have.Account, change.ID, p.now)
		p.ids[r.Kind][r.Name], p.names[change.ID] = change.ID, r.Name
	}
	before := len(p.problems)
	config, err := r.Decode()
	if err != nil {
		p.failed[change.ID] = true
		return // it is reported already
	}
	body, err := schemas.EncodeJSON(p.spec(i, r, config))
	if err != nil {
		wrong(fmt.Errorf("write %s: %w", schemas.ResourcePath(i), err))
		return
	}
	made, err := col.build(old, body, p.now)
	if err != nil || len(p.problems) > before || r.Spoiled() {
		p.failed[change.ID] = true
		wrong(err)
		return
	}
	made.label(p.manifest.Project)
	if there {
		p.compare(&change, r, s)
		if change.Action == schemas.ActionNone {
			made = old
		}
	}
	if change.Action != schemas.ActionNone {
		wrong(p.have.Operator.allowed(p.have.Providers, made))
	}
	p.made, p.at = append(p.made, step{change, made, s.record}), append(p.at, i)
}

// compare says what of a record changes.
func (p *planner) compare(change *schemas.ManifestChange, r schemas.Resource, s existing) {
	v, err := p.viewOfResource(r)
	if err != nil {
		return // it was decoded before
	}
	change.Fields = changedFields(map[string]any(p.viewOf(s)), map[string]any(v.keeping(s.record)), "")
	change.Adopted = s.project == ""
	switch {
	case s.name != r.Name:
		change.Action, change.From = schemas.ActionRename, s.name
	case len(change.Fields) > 0 || change.Adopted:
		change.Action = schemas.ActionUpdate
	default:
		change.Action = schemas.ActionNone
	}
}

// freeID is the id of a new record. It follows from the project and the name, so that two who apply the same
// manifest at the same time, or one after a crash, make one record and not two. A record that was renamed
// keeps the id of its first name, which then is not free.
func (p *planner) freeID(prefix string, r schemas.Resource) string {
	for n := 0; ; n++ {
		id := derivedID(prefix, p.have.Account, "manifest\x00"+p.manifest.Project+"\x00"+r.Name+"\x00"+strconv.Itoa(n))
		if _, taken := p.names[id]; !taken {
			return id
		}
	}
}

// spec returns what a client would send to create the record by hand: with ids in place of names.
func (p *planner) spec(i int, r schemas.Resource, config any) any {
	switch c := config.(type) {
	case schemas.SandboxConfig:
		return schemas.SandboxSpec{Name: r.Name, Description: r.Description, Config: c}
	case schemas.ManifestWorkspace:
		s := schemas.WorkspaceSpec{Name: r.Name, Description: r.Description,
			Config: schemas.WorkspaceConfig{Storage: c.Storage, Harness: c.Harness}}
		if id := p.find(i, "config.sandbox", schemas.KindSandbox, c.Sandbox); id != "" {
			s.Sandbox = new(schemas.SandboxID(id))
		}
		return s
	case schemas.ModelConfig:
		return schemas.ModelSpec{Name: r.Name, Description: r.Description, Config: c}
	case schemas.ManifestAgent:
		return schemas.AgentSpec{Name: r.Name, Description: r.Description, Config: p.agent(i, c)}
	}
	return nil
}

func (p *planner) agent(i int, c schemas.ManifestAgent) schemas.AgentConfig {
	out := schemas.AgentConfig{Sandbox: schemas.SandboxID(p.find(i, "config.sandbox", schemas.KindSandbox, c.Sandbox)), Tools: c.Tools,
		Skills: c.Skills, Turns: p.turns(i, c.Turns)}
	for n, v := range c.Workspaces {
		path := fmt.Sprintf("config.workspaces[%d].", n)
		out.Workspaces = append(out.Workspaces, schemas.AgentWorkspace{
			Name:      v.Name,
			Workspace: schemas.WorkspaceID(p.find(i, path+"workspace", schemas.KindWorkspace, v.Workspace)),
			Sandbox: schemas.SandboxChoice{
				Given: v.Sandbox.Given, ID: schemas.SandboxID(p.find(i, path+"sandbox", schemas.KindSandbox, v.Sandbox.Name)),
			},
		})
	}
	return out
}

// find returns the id of what a resource names; empty if it names nothing. If it does not exist that is recorded, and the returned id
// belongs to nothing.
func (p *planner) find(i int, field string, kind schemas.ResourceKind, name string) string {
	id, ok := p.ids[kind][name]
	if ok || name == "" {
		return id
	}
	var known []string
	for n := range p.ids[kind] {
		known = append(known, n)
	}
	slices.Sort(known)
	remedy := "add it to the manifest"
	if near := schemas.Nearest(name, known); near != "" {
		remedy = fmt.Sprintf("use %q, or add it to the manifest", near)
	}
	p.problems.Add(schemas.ResourcePath(i), schemas.Invalidf(field, "there is no %s %q: %s", kind, schemas.Quotable(name), remedy))
	return map[schemas.ResourceKind]string{
		schemas.KindSandbox: schemas.SandboxPrefix, schemas.KindWorkspace: schemas.WorkspacePrefix,
		schemas.KindModel: schemas.ModelPrefix,
	}[kind] + "missing"
}

// warnings returns the variables that are named but missing, and the records that are left alone.
func (p *planner) warnings() schemas.ManifestWarnings {
	var w schemas.ManifestWarnings
	for _, s := range p.made {
		for _, value := range s.record.refs() {
			if name, ok := schemas.VariableRef(value); ok && !slices.Contains(p.have.Variables, name) {
				w.MissingEnv = append(w.MissingEnv, name)
			}
		}
	}
	slices.Sort(w.MissingEnv)
	w.MissingEnv = slices.Compact(w.MissingEnv)
	for _, kind := range schemas.ResourceKinds() {
		for _, s := range p.gone[kind] {
			if !p.prune {
				w.Notes = append(w.Notes, fmt.Sprintf("the %s %s is in the manifest no more and stays: prune deletes it", kind, s.name))
			}
		}
	}
	return w
}

// label records which manifest a record belongs to, unless it belongs to another one already.
func (r record) label(project string) {
	switch {
	case r.Sandbox != nil:
		r.Sandbox.Manifest = project
	case r.Workspace != nil:
		r.Workspace.Manifest = project
	case r.Model != nil:
		r.Model.Manifest = project
	case r.Agent != nil:
		r.Agent.Manifest = project
	}
}

func collectionOf(kind schemas.ResourceKind) schemas.Collection {
	switch kind {
	case schemas.KindSandbox:
		return schemas.Sandboxes
	case schemas.KindWorkspace:
		return schemas.Workspaces
	case schemas.KindModel:
		return schemas.Models
	case schemas.KindAgent:
		return schemas.Agents
	}
	return schemas.Collection(strings.ToLower(string(kind)))
}
