package records

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/internal/netguard"
	"github.com/sandjet/sandjet/schemas"
)

func modelCollection() collection {
	return collection{
		kind: kindModel, noun: "model", prefix: schemas.ModelPrefix, most: schemas.MaxModels,
		fresh: func(a schemas.AccountID, id string, now time.Time) record {
			return record{Model: &schemas.Model{ID: schemas.ModelID(id), Account: a, Created: now}}
		},
		spec: func(old record) any { return modelSpec(*old.Model) },
		build: func(old record, b []byte, now time.Time) (record, error) {
			spec, err := decode[schemas.ModelSpec](b)
			if err != nil {
				return record{}, err
			}
			m, err := modelOf(*old.Model, spec)
			m.Updated = now
			return record{Model: &m}, err
		},
		check:    func(b []byte) error { _, err := decode[schemas.ModelSpec](b); return err },
		document: func(r record) any { return modelDocument(*r.Model) },
		ids:      func(t *tenant) []string { return t.models.ids() },
		count:    func(t *tenant) int { return len(t.models.byID) },
		get: func(t *tenant, id string) (record, stand, bool) {
			m, ok := t.models.byID[schemas.ModelID(id)]
			return record{Model: &m}, t.models.stands[schemas.ModelID(id)], ok
		},
		named: func(t *tenant, r record) []string { return texts(t.models.names[r.Model.Name]) },
		fits:  func(t *tenant, r record) error { return t.checkModelUsers(*r.Model) },
	}
}

// modelOf returns the record for what a client sent, after checking it.
func modelOf(old schemas.Model, spec schemas.ModelSpec) (schemas.Model, error) {
	var p schemas.Problems
	p.Add("", checkNames(schemas.ModelPrefix, spec.Name, spec.Description))
	p.Add("", CheckModel(spec.Config))
	if err := p.Err(); err != nil {
		return schemas.Model{}, err
	}
	m := old
	m.Name, m.Description, m.ModelConfig = spec.Name, spec.Description, spec.Config
	return m, nil
}

func modelSpec(m schemas.Model) schemas.ModelSpec {
	return schemas.ModelSpec{Name: m.Name, Description: m.Description, Config: m.ModelConfig}
}

func modelDocument(m schemas.Model) schemas.ModelDocument {
	return schemas.ModelDocument{
		ID: m.ID, Name: m.Name, Description: m.Description, Config: m.ModelConfig, Manifest: m.Manifest,
		Created: m.Created, Updated: updated(m.Created, m.Updated),
	}
}

// CheckModel returns all errors of a model's config, see [schemas.Problems]. It is pure, and shows no key. Errors are invalid, and name
// the field.
func CheckModel(c schemas.ModelConfig) error {
	var p schemas.Problems
	bad := func(field, format string, args ...any) { p.Add("config."+field, schemas.Invalidf("", format, args...)) }
	switch {
	case c.Wire == "":
		bad("wire", "is missing: use %s", list(schemas.Wires()))
	case !slices.Contains(schemas.Wires(), c.Wire):
		p.Add("", unknown("config.wire", c.Wire, schemas.Wires()))
	}
	switch {
	case c.Model == "":
		bad("model", "is missing: write the name that the server has for the model")
	case len(c.Model) > schemas.MaxModelName:
		bad("model", "is %d bytes long: the limit is %d", len(c.Model), schemas.MaxModelName)
	case strings.ContainsFunc(c.Model, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }):
		bad("model", "%q has a control character or what is not UTF-8", schemas.Quotable(c.Model))
	}
	if c.URL != "" {
		if why := checkModelURL(c.URL); why != "" {
			bad("url", "%s: write it as https://models.example.com/v1", why)
		}
	}
	if _, ref := schemas.VariableRef(c.Key); c.Key != "" && !ref {
		bad("key", "names no variable: set one with \"sandjet variables set NAME\", and write env:NAME; the key itself is not taken here")
	}
	for _, n := range []struct {
		field       string
		value, most int64
	}{
		{"context", c.Context, schemas.MaxModelContext}, {"maxOutput", c.MaxOutput, schemas.MaxModelOutput},
		{"timeoutSeconds", c.Timeout, schemas.MaxModelSeconds}, {"silenceSeconds", c.Silence, schemas.MaxModelSeconds},
	} {
		if n.value < 0 || n.value > n.most {
			bad(n.field, "%d is out of range: 1 to %d, or leave it out", n.value, n.most)
		}
	}
	if c.Context > 0 && c.MaxOutput >= c.Context {
		bad("maxOutput", "%d leaves nothing of the context, which is %d tokens: a request and its answer share it", c.MaxOutput, c.Context)
	}
	if c.Price != nil {
		prices := map[string]float64{"in": c.Price.In, "out": c.Price.Out}
		if c.Price.Cached != nil {
			prices["cached"] = *c.Price.Cached
		}
		for _, name := range []string{"in", "out", "cached"} {
			if v := prices[name]; !(v >= 0 && v <= schemas.MaxModelPrice) { // also what is no number
				bad("price."+name, "%g is out of range: 0 to %d for a million tokens", v, schemas.MaxModelPrice)
			}
		}
	}
	if b, err := schemas.EncodeJSON(c.Extra); err != nil || len(b) > schemas.MaxModelExtra {
		bad("extra", "is %d bytes of JSON: the limit is %d", len(b), schemas.MaxModelExtra)
	}
	if c.LegacyMaxTokens && c.Wire != schemas.WireOpenAI {
		bad("legacyMaxTokens", "is for servers of the wire openai: leave it out")
	}
	return p.Err()
}

// checkModelURL checks a URL. The addresses of its name are checked when a connection is made.
func checkModelURL(s string) string {
	if len(s) > schemas.MaxModelURL {
		return "is too long"
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "https" && u.Scheme != "http":
		return "does not begin with https:// or http://"
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "has a user, a query or a fragment"
	}
	h, err := netguard.ParseHost(u.Hostname())
	if err != nil {
		return "has no host"
	}
	if u.Scheme == "http" && h.Addr.IsValid() && netguard.Kind(h.Addr) == "" {
		return "would send requests and keys over public networks in the clear"
	}
	return ""
}

// checkModel returns an error for a model at a private address that the operator does not allow. Names are checked when a connection is
// made. Code: denied.
func (o Operator) checkModel(c schemas.ModelConfig) error {
	u, err := url.Parse(c.URL)
	if c.URL == "" || err != nil {
		return nil //nolint:nilerr // the record's own check names it
	}
	h, err := netguard.ParseHost(u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	a := h.Addr
	if name := strings.TrimSuffix(strings.ToLower(h.Name), "."); name == "localhost" || strings.HasSuffix(name, ".localhost") {
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if !a.IsValid() {
		return nil
	}
	if err := ModelAddress(a, true, o.ModelNetworks); err != nil {
		return &schemas.Error{Code: schemas.Denied, Field: "config.url", Message: schemas.Public(err).Message}
	}
	return nil
}

// ModelAddress returns why a model server must not be connected to at an address: it is private and the operator does not allow its
// network, or it is public and the connection is not encrypted. It is pure. Code: denied.
func ModelAddress(a netip.Addr, encrypted bool, networks []netip.Prefix) error {
	plain := a.Unmap().WithZone("")
	kind := netguard.Kind(a)
	if kind == "" && encrypted {
		return nil
	}
	if kind == "" {
		return schemas.OpErrorf(schemas.Denied, "url", "leads to a public address without TLS, where others could read the key: use https")
	}
	if slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(plain) }) && !netguard.Metadata(plain) {
		return nil
	}
	return schemas.OpErrorf(schemas.Denied, "url", "leads to %s address, and the operator of this server does not open it: use a public one, "+
		"or ask for --model-networks %s", kind, netip.PrefixFrom(plain, plain.BitLen()))
}

// checkTurns checks an agent's settings for turns, but not whether the models exist.
func checkTurns(c schemas.AgentTurns) error {
	var p schemas.Problems
	bad := func(field, format string, args ...any) {
		p.Add("config.turns"+field, schemas.Invalidf("", format, args...))
	}
	if len(c.Fallback) > schemas.MaxModelFallbacks {
		bad(".fallback", "has %d entries: at most %d", len(c.Fallback), schemas.MaxModelFallbacks)
		return p.Err()
	}
	if c.Model == "" && (len(c.Fallback) > 0 || c.System != "" || c.MaxSteps != 0 || c.MaxTokens != 0 || c.CompactAt != 0 ||
		c.Budget != schemas.TurnBudget{}) {
		bad(".model", "is missing: name the model that is asked, or leave out all of turns")
	}
	for i, id := range c.Models() {
		if id.Validate() != nil {
			bad(fieldOfModel(i), "%q is not the id of a model", schemas.Quotable(string(id)))
		} else if slices.Contains(c.Models()[:i], id) {
			bad(fieldOfModel(i), "%s is given twice", id)
		}
	}
	switch {
	case len(c.System) > schemas.MaxSystem:
		bad(".system", "is %d bytes long: the limit is %d", len(c.System), schemas.MaxSystem)
	case strings.ContainsAny(c.System, "\x00\ufffd"):
		bad(".system", "has a NUL byte or what is not UTF-8")
	}
	for _, n := range []struct {
		field       string
		value, most int64
	}{
		{".maxSteps", int64(c.MaxSteps), schemas.MaxTurnSteps}, {".maxTokens", c.MaxTokens, schemas.MaxModelOutput},
		{".budget.tokens", c.Budget.Tokens, schemas.MaxTurnTokens}, {".budget.tokensPerDay", c.Budget.TokensPerDay, schemas.MaxTurnTokens},
	} {
		if n.value < 0 || n.value > n.most {
			bad(n.field, "%d is out of range: 1 to %d, or leave it out", n.value, n.most)
		}
	}
	if c.CompactAt != 0 && (c.CompactAt < schemas.LeastCompactAt || c.CompactAt > schemas.MostCompactAt) {
		bad(".compactAt", "%d is out of range: %d to %d percent, or leave it out", c.CompactAt, schemas.LeastCompactAt, schemas.MostCompactAt)
	}
	for _, n := range []struct {
		field string
		value float64
	}{{".budget.cost", c.Budget.Cost}, {".budget.costPerDay", c.Budget.CostPerDay}} {
		if !(n.value >= 0 && n.value <= schemas.MaxTurnCost) { // also what is no number
			bad(n.field, "%g is out of range: more than 0 and up to %d, or leave it out", n.value, schemas.MaxTurnCost)
		}
	}
	return p.Err()
}

// fieldOfModel names the n-th model of an agent, below config.turns.
func fieldOfModel(n int) string {
	if n == 0 {
		return ".model"
	}
	return fmt.Sprintf(".fallback[%d]", n-1)
}

// checkModels returns an error for the first model of an agent that does not exist, or that has no price although the agent's budget is in
// money. Code: invalid.
func (t *tenant) checkModels(g schemas.Agent) error {
	for i, id := range g.Turns.Models() {
		field := "config.turns" + fieldOfModel(i)
		m, ok := t.models.byID[id]
		if !ok {
			return schemas.Invalidf(field, "there is no model %q: %s", schemas.Quotable(string(id)), t.models.known())
		}
		if countsMoney(g) && m.Price == nil {
			return schemas.Invalidf(field, "%s has no price, and the agent's budget has a cost: give the model its price, or the budget tokens",
				schemas.Quotable(m.Name))
		}
	}
	return nil
}

func countsMoney(g schemas.Agent) bool {
	return g.Turns.Budget.Cost > 0 || g.Turns.Budget.CostPerDay > 0
}

// checkModelUsers returns an error for the first agent with a budget in money that uses the model, which has no price any more. Code:
// conflict.
func (t *tenant) checkModelUsers(m schemas.Model) error {
	if before, ok := t.models.byID[m.ID]; m.Price != nil || ok && before.Price == nil {
		return nil
	}
	for _, id := range t.agents.ids() {
		if g := t.agents.byID[schemas.AgentID(id)]; countsMoney(g) && slices.Contains(g.Turns.Models(), m.ID) {
			return &schemas.Error{Code: schemas.Conflict, Field: "config.price",
				Message: "agent " + schemas.Quotable(g.Name) +
					" asks this model, and its budget has a cost: leave the price, or change the agent first"}
		}
	}
	return nil
}

// Agent returns an agent by its id or its name. One that the copy does not have yet is read from the log by its id. Code: not_found.
func (s *Store) Agent(ctx context.Context, a schemas.AccountID, id string) (schemas.Agent, error) {
	valid := schemas.AgentID(id).Validate() == nil
	return called(ctx, s.cache, a, agentCollection(), id, valid, func(t *tenant) (schemas.Agent, bool) { return t.agents.find(id) })
}

// Model returns a model by its id or its name. One that the copy does not have yet is read from the log by its id. Code: not_found.
func (s *Store) Model(ctx context.Context, a schemas.AccountID, id string) (schemas.Model, error) {
	valid := schemas.ModelID(id).Validate() == nil
	return called(ctx, s.cache, a, modelCollection(), id, valid, func(t *tenant) (schemas.Model, bool) { return t.models.find(id) })
}

// called finds a record by its id, if that is valid, or by its name, which only the copy has.
func called[T any](ctx context.Context, s *cache, a schemas.AccountID, col collection, id string, valid bool,
	look func(*tenant) (T, bool)) (T, error) {
	if !valid {
		if t := s.tenantOf(a); t != nil {
			if v, ok := look(t); ok {
				return v, nil
			}
		}
		return *new(T), col.missing(id)
	}
	v, err := find(ctx, s, col.kind+"."+string(a)+"."+id, look)
	if errors.Is(err, schemas.ErrNotFound) {
		return v, s.missing(a, col, id)
	}
	return v, err
}

// ModelKey returns the key of a model's server; "": it needs none. Codes: invalid (the account has no such variable), unavailable.
func (s *Store) ModelKey(ctx context.Context, m schemas.Model) (string, error) {
	if m.Key == "" {
		return "", nil
	}
	return s.Value(ctx, m.Account, m.Key)
}

// turns is what a manifest says of an agent's turns, with ids.
func (p *planner) turns(i int, c schemas.ManifestTurns) schemas.AgentTurns {
	out := schemas.AgentTurns{
		Model:  schemas.ModelID(p.find(i, "config.turns.model", schemas.KindModel, c.Model)),
		System: c.System, MaxSteps: c.MaxSteps, MaxTokens: c.MaxTokens, CompactAt: c.CompactAt, Budget: c.Budget,
	}
	for n, name := range c.Fallback {
		out.Fallback = append(out.Fallback, schemas.ModelID(p.find(i, fmt.Sprintf("config.turns.fallback[%d]", n), schemas.KindModel, name)))
	}
	return out
}

// manifestTurns is what an agent says of its turns, with names.
func manifestTurns(c schemas.AgentTurns, name func(id string) string) schemas.ManifestTurns {
	out := schemas.ManifestTurns{System: c.System, MaxSteps: c.MaxSteps, MaxTokens: c.MaxTokens, CompactAt: c.CompactAt, Budget: c.Budget}
	if c.Model != "" {
		out.Model = name(string(c.Model))
	}
	for _, id := range c.Fallback {
		out.Fallback = append(out.Fallback, name(string(id)))
	}
	return out
}

// refs returns the values of a record that may refer to variables of the account.
func (r record) refs() []string {
	var out []string
	switch {
	case r.Sandbox != nil:
		for _, value := range r.Sandbox.EnvVars {
			out = append(out, value)
		}
	case r.Model != nil:
		out = append(out, r.Model.Key)
	}
	return out
}
