package records

import (
	"crypto/subtle"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// index is the copy in memory. It is not safe for concurrent use: [Store] guards it.
type index struct {
	providers schemas.Catalog // of this build
	tenants   map[schemas.AccountID]*tenant
	keys      map[string]schemas.AccountID // by key hash
}

// tenant has the records of one account. Once it was handed out it is not changed any more: a change makes a successor, see
// [index.tenant]. So it may be read without a lock.
type tenant struct {
	providers  schemas.Catalog  // of this build
	account    *schemas.Account // nil while its own record was not seen yet
	revision   uint64           // of the account's own record
	sandboxes  table[schemas.SandboxID, schemas.Sandbox]
	workspaces table[schemas.WorkspaceID, schemas.Workspace]
	agents     table[schemas.AgentID, schemas.Agent]
	models     table[schemas.ModelID, schemas.Model]
	skills     table[schemas.SkillID, schemas.Skill]
	variables  table[string, schemas.Variable]
	endpoints  table[schemas.EndpointID, schemas.Endpoint]
	channels   table[schemas.ChannelID, schemas.ChatChannel]
	sessions   *schemas.SandboxSessions // nil: it never had any

	handedOut *atomic.Bool
}

// table finds records by id or, if they have names, by name. Of two records with one name, every process finds the one with the smaller
// id.
type table[ID ~string, T any] struct {
	byID   map[ID]T
	stands map[ID]stand
	names  map[string][]ID // sorted
	shared bool            // another tenant has these maps too: they are copied before they are changed
}

// stand is what is known of a record besides its value.
type stand struct {
	revision uint64
	size     int // bytes on the log
}

func newIndex(providers schemas.Catalog) *index {
	return &index{providers: providers, tenants: map[schemas.AccountID]*tenant{}, keys: map[string]schemas.AccountID{}}
}

func newTenant(providers schemas.Catalog) *tenant {
	return &tenant{providers: providers, handedOut: new(atomic.Bool)}
}

// handOut returns the present tenant of an account, to be read without a lock; nil if there is none. It may be called concurrently.
func (x *index) handOut(a schemas.AccountID) *tenant {
	t := x.tenants[a]
	if t != nil && !t.handedOut.Load() {
		t.handedOut.Store(true)
	}
	return t
}

// tenant returns the tenant of an account for a change. It is copied first if it was handed out.
func (x *index) tenant(a schemas.AccountID) *tenant {
	t := x.tenants[a]
	switch {
	case t == nil:
		t = newTenant(x.providers)
	case t.handedOut.Load():
		t = t.successor()
	default:
		return t
	}
	x.tenants[a] = t
	return t
}

// successor is a tenant with the same records, which share their maps with t until one of them changes.
func (t *tenant) successor() *tenant {
	c := *t
	c.handedOut = new(atomic.Bool)
	c.sandboxes.shared, c.workspaces.shared, c.agents.shared, c.models.shared = true, true, true, true
	c.skills.shared, c.variables.shared, c.endpoints.shared, c.channels.shared = true, true, true, true
	return &c
}

// empty reports whether there is no record of the account any more.
func (t *tenant) empty() bool {
	return t.account == nil && t.sessions == nil && len(t.sandboxes.byID)+len(t.workspaces.byID)+len(t.agents.byID)+len(t.models.byID)+
		len(t.skills.byID)+len(t.variables.byID)+len(t.endpoints.byID)+len(t.channels.byID) == 0
}

// account is the account's own record, nil where there is none.
func (x *index) account(a schemas.AccountID) *schemas.Account {
	if t := x.tenants[a]; t != nil {
		return t.account
	}
	return nil
}

// put adds or replaces r. A record of a kind that this version does not know is skipped.
func (x *index) put(r record, at stand) {
	switch {
	case r.Account != nil:
		t := x.tenant(r.Account.ID)
		x.forgetKeys(t)
		t.account, t.revision = r.Account, at.revision
		x.keys[r.Account.KeyHash] = r.Account.ID
		for _, k := range r.Account.Former {
			x.keys[k.KeyHash] = r.Account.ID
		}
	case r.key() != "":
		_, a, _, _ := splitKey(r.key())
		x.tenant(a).put(r, at)
	}
}

// put adds or replaces a record of an account, but not the account's own.
func (t *tenant) put(r record, at stand) {
	switch {
	case r.Sandbox != nil:
		t.sandboxes.put(r.Sandbox.ID, *r.Sandbox, at, sandboxName)
	case r.Workspace != nil:
		t.workspaces.put(r.Workspace.ID, *r.Workspace, at, workspaceName)
	case r.Agent != nil:
		t.agents.put(r.Agent.ID, *r.Agent, at, agentName)
	case r.Model != nil:
		t.models.put(r.Model.ID, *r.Model, at, modelName)
	case r.Variable != nil:
		t.variables.put(r.Variable.Name, *r.Variable, at, nil)
	case r.Endpoint != nil:
		t.endpoints.put(r.Endpoint.ID, *r.Endpoint, at, nil)
	case r.Channel != nil:
		t.channels.put(r.Channel.ID, *r.Channel, at, nil)
	case r.Skill != nil:
		t.skills.put(r.Skill.ID, *r.Skill, at, nil)
	case r.Sessions != nil:
		t.sessions = r.Sessions
	}
}

// remove removes the record under key, and the tenant with its last record.
func (x *index) remove(key string) {
	kind, a, id, ok := splitKey(key)
	if !ok || x.tenants[a] == nil {
		return
	}
	t := x.tenant(a)
	if kind == kindAccount {
		x.forgetKeys(t)
		t.account, t.revision = nil, 0
	} else {
		t.remove(kind, id)
	}
	if t.empty() {
		delete(x.tenants, a)
	}
}

// remove removes a record of an account, but not the account's own.
func (t *tenant) remove(kind, id string) {
	switch kind {
	case kindSandbox:
		t.sandboxes.remove(schemas.SandboxID(id), sandboxName)
	case kindWorkspace:
		t.workspaces.remove(schemas.WorkspaceID(id), workspaceName)
	case kindAgent:
		t.agents.remove(schemas.AgentID(id), agentName)
	case kindModel:
		t.models.remove(schemas.ModelID(id), modelName)
	case kindVariable:
		t.variables.remove(id, nil)
	case kindEndpoint:
		t.endpoints.remove(schemas.EndpointID(id), nil)
	case kindChannel:
		t.channels.remove(schemas.ChannelID(id), nil)
	case kindSkill:
		t.skills.remove(schemas.SkillID(id), nil)
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

// authenticate finds the account of a key by its hash. The key itself is never compared, only its hash, so how long the look-up takes says
// nothing about a key that exists; the final comparison is in constant time nevertheless. A key that was replaced counts until its end.
func (x *index) authenticate(hash string, now time.Time) (schemas.AccountID, bool) {
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

// put adds or replaces a record; name is nil where records of its kind have none.
func (t *table[ID, T]) put(id ID, v T, at stand, name func(T) string) {
	t.remove(id, name)
	t.own()
	t.byID[id], t.stands[id] = v, at
	if name == nil {
		return
	}
	ids := append(slices.Clip(t.names[name(v)]), id) // a new list: others may look at the one before
	slices.Sort(ids)
	t.names[name(v)] = ids
}

func (t *table[ID, T]) remove(id ID, name func(T) string) {
	old, ok := t.byID[id]
	if !ok {
		return
	}
	t.own()
	delete(t.byID, id)
	delete(t.stands, id)
	if name == nil {
		return
	}
	n := name(old)
	t.names[n] = slices.DeleteFunc(slices.Clone(t.names[n]), func(other ID) bool { return other == id })
	if len(t.names[n]) == 0 {
		delete(t.names, n)
	}
}

// own copies the table's maps if they are shared.
func (t *table[ID, T]) own() {
	switch {
	case t.byID == nil:
		t.byID, t.stands, t.names = map[ID]T{}, map[ID]stand{}, map[string][]ID{}
	case t.shared:
		t.byID, t.stands, t.names = maps.Clone(t.byID), maps.Clone(t.stands), maps.Clone(t.names)
	}
	t.shared = false
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

// known lists some names for an error message: the first ones, without sorting all.
func (t *table[ID, T]) known() string {
	const most = 8
	if len(t.names) == 0 {
		return "none exists yet"
	}
	first := make([]string, 0, most+1)
	for n := range t.names {
		if len(first) == most && n > first[most-1] {
			continue
		}
		i, _ := slices.BinarySearch(first, n)
		first = slices.Insert(first, i, n)
		first = first[:min(most, len(first))]
	}
	for i, n := range first {
		first[i] = schemas.Quotable(n)
	}
	if len(t.names) > most {
		return "use one of " + strings.Join(first, ", ") + ", …"
	}
	return "use " + list(first)
}

func sandboxName(s schemas.Sandbox) string     { return s.Name }
func agentName(a schemas.Agent) string         { return a.Name }
func modelName(m schemas.Model) string         { return m.Name }
func workspaceName(w schemas.Workspace) string { return w.Name }
