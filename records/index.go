package records

import (
	"crypto/subtle"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// index is the copy in memory. It is not safe for concurrent use: [Store] guards it.
type index struct {
	providers schemas.Catalog // of this build
	tenants   map[schemas.AccountID]*tenant
	keys      map[string]schemas.AccountID // by key hash
}

// tenant is what belongs to one account.
type tenant struct {
	providers  schemas.Catalog  // of this build
	account    *schemas.Account // nil while its own record was not seen yet
	sandboxes  table[schemas.SandboxID, schemas.Sandbox]
	workspaces table[schemas.WorkspaceID, schemas.Workspace]
	agents     table[schemas.AgentID, schemas.Agent]
	models     table[schemas.ModelID, schemas.Model]
	variables  map[string]schemas.Variable
	endpoints  map[schemas.EndpointID]schemas.Endpoint
	channels   map[schemas.ChannelID]schemas.ChatChannel
	skills     map[schemas.SkillID]schemas.Skill
	sessions   *schemas.SandboxSessions // nil: it never had any
}

// table finds records by id or by name. When two records carry one name, the one with the smaller
// id is found by it, in every process alike.
type table[ID ~string, T any] struct {
	byID  map[ID]T
	names map[string][]ID // sorted
}

func newIndex(providers schemas.Catalog) *index {
	return &index{providers: providers, tenants: map[schemas.AccountID]*tenant{}, keys: map[string]schemas.AccountID{}}
}

func (x *index) tenant(a schemas.AccountID) *tenant {
	t := x.tenants[a]
	if t == nil {
		t = &tenant{providers: x.providers}
		x.tenants[a] = t
	}
	return t
}

// account is the account's own record, nil where there is none.
func (x *index) account(a schemas.AccountID) *schemas.Account {
	if t := x.tenants[a]; t != nil {
		return t.account
	}
	return nil
}

// put adds or replaces r. A record of a kind that this version does not know is skipped.
func (x *index) put(r record) {
	switch {
	case r.Account != nil:
		t := x.tenant(r.Account.ID)
		x.forgetKeys(t)
		t.account = r.Account
		x.keys[r.Account.KeyHash] = r.Account.ID
		for _, k := range r.Account.Former {
			x.keys[k.KeyHash] = r.Account.ID
		}
	case r.Sandbox != nil:
		x.tenant(r.Sandbox.Account).sandboxes.put(r.Sandbox.ID, *r.Sandbox, sandboxName)
	case r.Workspace != nil:
		x.tenant(r.Workspace.Account).workspaces.put(r.Workspace.ID, *r.Workspace, workspaceName)
	case r.Agent != nil:
		x.tenant(r.Agent.Account).agents.put(r.Agent.ID, *r.Agent, agentName)
	case r.Model != nil:
		x.tenant(r.Model.Account).models.put(r.Model.ID, *r.Model, modelName)
	case r.Variable != nil:
		t := x.tenant(r.Variable.Account)
		if t.variables == nil {
			t.variables = map[string]schemas.Variable{}
		}
		t.variables[r.Variable.Name] = *r.Variable
	case r.Endpoint != nil:
		t := x.tenant(r.Endpoint.Account)
		if t.endpoints == nil {
			t.endpoints = map[schemas.EndpointID]schemas.Endpoint{}
		}
		t.endpoints[r.Endpoint.ID] = *r.Endpoint
	case r.Channel != nil:
		t := x.tenant(r.Channel.Account)
		if t.channels == nil {
			t.channels = map[schemas.ChannelID]schemas.ChatChannel{}
		}
		t.channels[r.Channel.ID] = *r.Channel
	case r.Skill != nil:
		t := x.tenant(r.Skill.Account)
		if t.skills == nil {
			t.skills = map[schemas.SkillID]schemas.Skill{}
		}
		t.skills[r.Skill.ID] = *r.Skill
	case r.Sessions != nil:
		x.tenant(r.Sessions.Account).sessions = r.Sessions
	}
}

// remove forgets what is kept under key.
func (x *index) remove(key string) {
	kind, a, id, ok := splitKey(key)
	t := x.tenants[a]
	if !ok || t == nil {
		return
	}
	switch kind {
	case kindAccount:
		x.forgetKeys(t)
		t.account = nil
	case kindSandbox:
		t.sandboxes.remove(schemas.SandboxID(id), sandboxName)
	case kindWorkspace:
		t.workspaces.remove(schemas.WorkspaceID(id), workspaceName)
	case kindAgent:
		t.agents.remove(schemas.AgentID(id), agentName)
	case kindModel:
		t.models.remove(schemas.ModelID(id), modelName)
	case kindVariable:
		delete(t.variables, id)
	case kindEndpoint:
		delete(t.endpoints, schemas.EndpointID(id))
	case kindChannel:
		delete(t.channels, schemas.ChannelID(id))
	case kindSkill:
		delete(t.skills, schemas.SkillID(id))
	case kindSessions:
		t.sessions = nil
	}
}

func (x *index) forgetKeys(t *tenant) {
	if t.account == nil {
		return
	}
	for _, k := range append([]schemas.FormerKey{{KeyHash: t.account.KeyHash}}, t.account.Former...) {
		if x.keys[k.KeyHash] == t.account.ID {
			delete(x.keys, k.KeyHash)
		}
	}
}

// authenticate finds the account of a key. The key itself is never compared, only its hash, so
// how long the look-up takes says nothing about a key that exists; the last word is a comparison
// in constant time all the same. A key that was replaced counts until its end.
func (x *index) authenticate(key string, now time.Time) (schemas.AccountID, bool) {
	hash := HashKey(key)
	a, ok := x.keys[hash]
	if !ok {
		return "", false
	}
	t := x.tenants[a]
	if t == nil || t.account == nil {
		return "", false
	}
	same := func(h string) bool { return subtle.ConstantTimeCompare([]byte(h), []byte(hash)) == 1 }
	return a, same(t.account.KeyHash) || slices.ContainsFunc(t.account.Former, func(k schemas.FormerKey) bool {
		return same(k.KeyHash) && now.Before(k.Expires)
	})
}

func (t *table[ID, T]) put(id ID, v T, name func(T) string) {
	t.remove(id, name)
	if t.byID == nil {
		t.byID, t.names = map[ID]T{}, map[string][]ID{}
	}
	t.byID[id] = v
	ids := append(t.names[name(v)], id)
	slices.Sort(ids)
	t.names[name(v)] = ids
}

func (t *table[ID, T]) remove(id ID, name func(T) string) {
	old, ok := t.byID[id]
	if !ok {
		return
	}
	delete(t.byID, id)
	n := name(old)
	t.names[n] = slices.DeleteFunc(t.names[n], func(other ID) bool { return other == id })
	if len(t.names[n]) == 0 {
		delete(t.names, n)
	}
}

// find looks for an id first, then for a name.
func (t *table[ID, T]) find(s string) (T, bool) {
	if v, ok := t.byID[ID(s)]; ok {
		return v, true
	}
	if ids := t.names[s]; len(ids) > 0 {
		return t.byID[ids[0]], true
	}
	return *new(T), false
}

// known lists some names for an error message.
func (t *table[ID, T]) known() string {
	const most = 8
	names := slices.Sorted(maps.Keys(t.names))
	if len(names) == 0 {
		return "none exists yet"
	}
	more := len(names) > most
	names = names[:min(most, len(names))]
	for i, n := range names {
		names[i] = schemas.Quotable(n)
	}
	if more {
		return "use one of " + strings.Join(names, ", ") + ", …"
	}
	return "use " + list(names)
}

func sandboxName(s schemas.Sandbox) string     { return s.Name }
func agentName(a schemas.Agent) string         { return a.Name }
func modelName(m schemas.Model) string         { return m.Name }
func workspaceName(w schemas.Workspace) string { return w.Name }
