package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// FieldIfMatch is the field of the conflict that says a record has another revision than was asked for.
const FieldIfMatch = "If-Match"

// collection is what differs between collections.
type collection struct {
	kind, noun, prefix string
	most               int
	// fresh is an empty record with its id; build makes one of JSON that a client sent, merged into what
	// spec says of the old one. Both are pure.
	fresh func(a schemas.AccountID, id string, now time.Time) record
	spec  func(old record) any
	build func(old record, b []byte, now time.Time) (record, error)
	// check decodes what a client sent, for its mistakes alone.
	check    func(b []byte) error
	document func(r record) any

	ids   func(t *tenant) []string
	count func(t *tenant) int
	get   func(t *tenant, id string) (record, stand, bool)
	named func(t *tenant, r record) []string // ids of the name that r has
	// fits checks a record against the others of its account.
	fits func(t *tenant, r record) error
}

func newCollection(providers schemas.Catalog, c schemas.Collection) (collection, error) {
	switch c {
	case schemas.Sandboxes:
		return sandboxCollection(providers), nil
	case schemas.Workspaces:
		return workspaceCollection(), nil
	case schemas.Models:
		return modelCollection(), nil
	case schemas.Agents:
		return agentCollection(), nil
	}
	return collection{}, schemas.Errorf(schemas.NotFound, "there is no collection %q", schemas.Quotable(string(c)))
}

func sandboxCollection(providers schemas.Catalog) collection {
	return collection{
		kind: kindSandbox, noun: "sandbox", prefix: schemas.SandboxPrefix, most: schemas.MaxSandboxes,
		fresh: func(a schemas.AccountID, id string, now time.Time) record {
			return record{Sandbox: &schemas.Sandbox{ID: schemas.SandboxID(id), Account: a, Created: now}}
		},
		spec: func(old record) any { return sandboxSpec(*old.Sandbox) },
		build: func(old record, b []byte, now time.Time) (record, error) {
			spec, err := decode[schemas.SandboxSpec](b)
			if err != nil {
				return record{}, err
			}
			s, err := sandboxOf(providers, *old.Sandbox, spec)
			s.Updated = now
			return record{Sandbox: &s}, err
		},
		check:    func(b []byte) error { _, err := decode[schemas.SandboxSpec](b); return err },
		document: func(r record) any { return sandboxDocument(*r.Sandbox) },
		ids:      func(t *tenant) []string { return t.sandboxes.ids() },
		count:    func(t *tenant) int { return len(t.sandboxes.byID) },
		get: func(t *tenant, id string) (record, stand, bool) {
			s, ok := t.sandboxes.byID[schemas.SandboxID(id)]
			return record{Sandbox: &s}, t.sandboxes.stands[schemas.SandboxID(id)], ok
		},
		named: func(t *tenant, r record) []string { return texts(t.sandboxes.names[r.Sandbox.Name]) },
		fits: func(t *tenant, r record) error {
			for _, w := range t.workspaces.byID {
				if w.Sandbox == r.Sandbox.ID {
					if err := t.checkHeld(w, *r.Sandbox); err != nil {
						return err
					}
				}
			}
			return t.checkUsers("sandbox",
				func(g schemas.Agent) bool { return t.usesSandbox(g, r.Sandbox.ID) },
				func(after *tenant) { after.sandboxes.byID[r.Sandbox.ID] = *r.Sandbox })
		},
	}
}

func workspaceCollection() collection {
	return collection{
		kind: kindWorkspace, noun: "workspace", prefix: schemas.WorkspacePrefix, most: schemas.MaxWorkspaces,
		fresh: func(a schemas.AccountID, id string, now time.Time) record {
			return record{Workspace: &schemas.Workspace{ID: schemas.WorkspaceID(id), Account: a, Created: now}}
		},
		spec: func(old record) any { return workspaceSpec(*old.Workspace) },
		build: func(old record, b []byte, now time.Time) (record, error) {
			spec, err := decode[schemas.WorkspaceSpec](b)
			if err != nil {
				return record{}, err
			}
			w, err := workspaceOf(*old.Workspace, spec)
			w.Updated = now
			return record{Workspace: &w}, err
		},
		check:    func(b []byte) error { _, err := decode[schemas.WorkspaceSpec](b); return err },
		document: func(r record) any { return workspaceDocument(*r.Workspace) },
		ids:      func(t *tenant) []string { return t.workspaces.ids() },
		count:    func(t *tenant) int { return len(t.workspaces.byID) },
		get: func(t *tenant, id string) (record, stand, bool) {
			w, ok := t.workspaces.byID[schemas.WorkspaceID(id)]
			return record{Workspace: &w}, t.workspaces.stands[schemas.WorkspaceID(id)], ok
		},
		named: func(t *tenant, r record) []string { return texts(t.workspaces.names[r.Workspace.Name]) },
		fits: func(t *tenant, r record) error {
			w := *r.Workspace
			if err := t.checkWorkspace(w); err != nil {
				return err
			}
			return t.checkUsers("workspace",
				func(g schemas.Agent) bool { return usesWorkspace(g, w.ID) },
				func(after *tenant) { after.workspaces.byID[w.ID] = w })
		},
	}
}

func agentCollection() collection {
	return collection{
		kind: kindAgent, noun: "agent", prefix: schemas.AgentPrefix, most: schemas.MaxAgents,
		fresh: func(a schemas.AccountID, id string, now time.Time) record {
			return record{Agent: &schemas.Agent{ID: schemas.AgentID(id), Account: a, Created: now}}
		},
		spec: func(old record) any { return agentSpec(*old.Agent) },
		build: func(old record, b []byte, now time.Time) (record, error) {
			spec, err := decode[schemas.AgentSpec](b)
			if err != nil {
				return record{}, err
			}
			g, err := agentOf(*old.Agent, spec)
			g.Updated = now
			return record{Agent: &g}, err
		},
		check:    func(b []byte) error { _, err := decode[schemas.AgentSpec](b); return err },
		document: func(r record) any { return agentDocument(*r.Agent) },
		ids:      func(t *tenant) []string { return t.agents.ids() },
		count:    func(t *tenant) int { return len(t.agents.byID) },
		get: func(t *tenant, id string) (record, stand, bool) {
			g, ok := t.agents.byID[schemas.AgentID(id)]
			return record{Agent: &g}, t.agents.stands[schemas.AgentID(id)], ok
		},
		named: func(t *tenant, r record) []string { return texts(t.agents.names[r.Agent.Name]) },
		fits:  func(t *tenant, r record) error { return t.checkAgent(*r.Agent) },
	}
}

// checkHeld returns an error if the files of a workspace, which are in a sandbox, would no longer be reachable. Code: conflict.
func (t *tenant) checkHeld(w schemas.Workspace, in schemas.Sandbox) error {
	if err := CheckStorage(t.providers, w, in); err != nil {
		return &schemas.Error{
			Code: schemas.Conflict, Field: "config",
			Message: "workspace " + schemas.Quotable(w.Name) + " uses this sandbox, and then could not: " + schemas.Public(err).Message,
		}
	}
	return nil
}

// checkWorkspace checks a workspace against the sandbox that it names.
func (t *tenant) checkWorkspace(w schemas.Workspace) error {
	if w.Sandbox == "" {
		return nil
	}
	s, ok := t.sandboxes.byID[w.Sandbox]
	if !ok {
		return schemas.Invalidf("sandbox", "there is no sandbox %q: make it first", schemas.Quotable(string(w.Sandbox)))
	}
	return CheckStorage(t.providers, w, s)
}

// checkAgent checks an agent against what it names.
func (t *tenant) checkAgent(g schemas.Agent) error {
	if err := t.checkPlacements(g); err != nil {
		return err
	}
	return t.checkModels(g)
}

// Documents are the records of sandboxes, workspaces, models and agents, as clients see them.
type Documents struct{ *cache }

// List lists the records of an account's collection by id. It costs no round trip;
// one that another process has just added may be missing.
func (s Documents) List(_ context.Context, a schemas.AccountID, c schemas.Collection) ([]schemas.Document, error) {
	col, err := newCollection(s.providers, c)
	if err != nil {
		return nil, err
	}
	t := s.tenantOf(a)
	if t == nil {
		return nil, nil
	}
	ids := col.ids(t)
	list := make([]schemas.Document, 0, len(ids))
	for _, id := range ids {
		r, at, _ := col.get(t, id)
		d, err := col.shown(r, id, at.revision)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, nil
}

// Get returns a record of an account's collection. One that the copy does not have yet is read from
// the log. Codes: not_found, in the same words for another account's.
func (s Documents) Get(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string) (schemas.Document, error) {
	col, err := newCollection(s.providers, c)
	if err != nil {
		return schemas.Document{}, err
	}
	key, err := col.key(a, id)
	if err != nil {
		return schemas.Document{}, s.missing(a, col, id)
	}
	d, err := find(ctx, s.cache, key, func(t *tenant) (schemas.Document, bool) {
		r, at, ok := col.get(t, id)
		if !ok {
			return schemas.Document{}, false
		}
		d, err := col.shown(r, id, at.revision)
		return d, err == nil // a record of ours is always JSON
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return d, s.missing(a, col, id)
	}
	return d, err
}

// Add makes a record of the JSON that a client sent, and returns it. Codes: invalid, conflict (the
// name is taken; two that are added at many gateways at the same moment may both get it), exhausted (the
// account has as many as it may, or its records would be larger than its quota), denied (more than the operator allows).
func (s Documents) Add(ctx context.Context, a schemas.AccountID, c schemas.Collection, body []byte) (schemas.Document, error) {
	col, err := newCollection(s.providers, c)
	if err != nil {
		return schemas.Document{}, err
	}
	if err := a.Validate(); err != nil {
		return schemas.Document{}, err
	}
	now := s.now()
	id := schemas.NewID(col.prefix)
	r, err := col.change(col.fresh(a, id, now), nil, body, now)
	if err != nil {
		return schemas.Document{}, err
	}
	if err := s.admit(a, col, r, id, true); err != nil {
		return schemas.Document{}, err
	}
	key := r.key()
	rev, err := s.write(ctx, streams.BucketEntry[record]{}, r, true)
	if err != nil {
		return schemas.Document{}, fmt.Errorf("create the record %s: %w", key, err)
	}
	return col.shown(r, id, rev)
}

// Patch merges a patch into a record, as RFC 7396 says, and checks the whole again. With a
// revision other than 0 it does so only to that one. Codes: not_found, invalid, conflict (the name is
// taken; field [FieldIfMatch]: the revision is another), exhausted (the record grows, and the account's quota is used up).
func (s Documents) Patch(
	ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, patch []byte, revision uint64,
) (schemas.Document, error) {
	col, err := newCollection(s.providers, c)
	if err != nil {
		return schemas.Document{}, err
	}
	key, err := col.key(a, id)
	if err != nil {
		return schemas.Document{}, s.missing(a, col, id)
	}
	r, rev, err := s.change(ctx, key, revision, func(old record) (record, error) {
		spec, err := schemas.EncodeJSON(col.spec(old))
		if err != nil {
			return record{}, fmt.Errorf("patch %s: %w", key, err)
		}
		r, err := col.change(old, spec, patch, s.now())
		if err != nil {
			return record{}, err
		}
		return r, s.admit(a, col, r, id, false)
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Document{}, s.missing(a, col, id)
	}
	if err != nil {
		return schemas.Document{}, err
	}
	return col.shown(r, id, rev)
}

// Remove removes a record; with a revision other than 0 only that one. What names it fails from
// then on. Codes: not_found, conflict (field [FieldIfMatch]: the revision is another).
func (s Documents) Remove(ctx context.Context, a schemas.AccountID, c schemas.Collection, id string, revision uint64) error {
	col, err := newCollection(s.providers, c)
	if err != nil {
		return err
	}
	key, err := col.key(a, id)
	if err != nil {
		return s.missing(a, col, id)
	}
	err = s.remove(ctx, key, revision)
	if errors.Is(err, schemas.ErrNotFound) {
		return s.missing(a, col, id)
	}
	return err
}

// admit checks a record against what else the account has.
func (s Documents) admit(a schemas.AccountID, col collection, r record, id string, added bool) error {
	t := s.tenantOf(a)
	if t == nil {
		t = newTenant(s.providers)
	}
	if n := col.count(t); added && n >= col.most {
		return schemas.Errorf(schemas.Exhausted, "the account has %d %ss, the most it may: remove one", n, col.noun)
	}
	for _, other := range col.named(t, r) {
		if other != id {
			return &schemas.Error{Code: schemas.Conflict, Field: "name", Message: "is taken by " + col.noun + " " + other + ": choose another"}
		}
	}
	if err := s.Operator.allowed(s.providers, r); err != nil {
		return err
	}
	return col.fits(t, r)
}

// change replaces the record under key, and repeats that if another process was faster. With a revision other than 0 it changes only that
// revision. Codes: not_found, conflict, those of next.
func (s *cache) change(ctx context.Context, key string, revision uint64, next func(record) (record, error)) (record, uint64, error) {
	var contest streams.Contest
	for {
		p, err := s.bucket.Get(ctx, key)
		if err != nil {
			return record{}, 0, fmt.Errorf("read the record %s: %w", key, err)
		}
		if p.Value.key() != key {
			return record{}, 0, schemas.Errorf(schemas.Unsupported, "the record %s is of another version", key)
		}
		if revision != 0 && p.Revision != revision {
			return record{}, 0, stale()
		}
		r, err := next(p.Value)
		if err != nil {
			return record{}, 0, err
		}
		rev, err := s.write(ctx, p, r, true)
		if err == nil {
			return r, rev, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return record{}, 0, fmt.Errorf("change the record %s: %w", key, err)
		}
		if err := contest.Again(ctx); err != nil {
			return record{}, 0, err
		}
	}
}

func stale() error {
	return &schemas.Error{Code: schemas.Conflict, Field: FieldIfMatch, Message: "the record has changed since: read it again"}
}

// change makes a record of an old one, its spec and what a client sent.
func (col collection) change(old record, spec, sent []byte, now time.Time) (record, error) {
	if err := col.check(sent); err != nil {
		return record{}, err
	}
	whole, err := merge(spec, sent)
	if err != nil {
		return record{}, err
	}
	return col.build(old, whole, now)
}

func (col collection) shown(r record, id string, revision uint64) (schemas.Document, error) {
	b, err := schemas.EncodeJSON(col.document(r))
	if err != nil {
		return schemas.Document{}, fmt.Errorf("show %s: %w", id, err)
	}
	return schemas.Document{ID: id, Revision: revision, JSON: b}, nil
}

// key returns the key of a record. An invalid id is that of no record.
func (col collection) key(a schemas.AccountID, id string) (string, error) {
	bad := a.Validate() != nil
	switch col.kind {
	case kindSandbox:
		bad = bad || schemas.SandboxID(id).Validate() != nil
	case kindWorkspace:
		bad = bad || schemas.WorkspaceID(id).Validate() != nil
	case kindModel:
		bad = bad || schemas.ModelID(id).Validate() != nil
	case kindAgent:
		bad = bad || schemas.AgentID(id).Validate() != nil
	}
	if bad {
		return "", col.missing(id)
	}
	return col.kind + "." + string(a) + "." + id, nil
}

func (col collection) missing(id string) error {
	return schemas.Errorf(schemas.NotFound, "there is no %s %q", col.noun, schemas.Quotable(id))
}

// missing is the error for a client of the account when a record does not exist. If the client sent a name in place of an id, it names the
// id.
func (s *cache) missing(a schemas.AccountID, col collection, id string) error {
	if t := s.tenantOf(a); t != nil {
		if ids := col.idsOf(t, id); len(ids) > 0 {
			return schemas.Errorf(schemas.NotFound, "there is no %s with the id %q, but one of that name: use its id %s",
				col.noun, schemas.Quotable(id), ids[0])
		}
	}
	return col.missing(id)
}

// idsOf are the ids of the records of a name.
func (col collection) idsOf(t *tenant, name string) []string {
	switch col.kind {
	case kindSandbox:
		return texts(t.sandboxes.names[name])
	case kindWorkspace:
		return texts(t.workspaces.names[name])
	case kindModel:
		return texts(t.models.names[name])
	case kindAgent:
		return texts(t.agents.names[name])
	}
	return nil
}

func decode[T any](b []byte) (T, error) {
	var v T
	err := schemas.DecodeStrict(b, schemas.MaxConfig, &v)
	return v, err
}

// ids are sorted.
func (t *table[ID, T]) ids() []string { return texts(slices.Sorted(maps.Keys(t.byID))) }

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}
