package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Variables are the variables of accounts.
type Variables struct{ *cache }

// List lists the variables of an account by name, without their values. It costs no round trip; one that
// another process has just set may be missing.
func (s Variables) List(_ context.Context, a schemas.AccountID) ([]schemas.VariableDocument, error) {
	t := s.tenantOf(a)
	if t == nil {
		return nil, nil
	}
	out := make([]schemas.VariableDocument, 0, len(t.variables.byID))
	for _, name := range t.variables.ids() {
		out = append(out, variableDocument(t.variables.byID[name]))
	}
	return out, nil
}

// Has reports whether an account has a variable, as the copy of this process knows; it costs no round trip.
func (s Variables) Has(a schemas.AccountID, name string) bool {
	t := s.tenantOf(a)
	if t == nil {
		return false
	}
	_, there := t.variables.byID[name]
	return there
}

// Accounts lists the accounts that have a variable, sorted, as the copy of this process knows them; it costs no round trip.
func (s Variables) Accounts(name string) []schemas.AccountID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var with []schemas.AccountID
	for a, t := range s.index.tenants {
		if _, there := t.variables.byID[name]; there {
			with = append(with, a)
		}
	}
	slices.Sort(with)
	return with
}

// Set gives an account a variable, or a variable another value, which counts from the next call on; for
// workers elsewhere within a second. Codes: invalid, exhausted (the account has as many as it may, or its records are as large as they may be; setting at
// many gateways at the same moment may pass the limits by a few), conflict (too many others set the same).
// No error shows a value.
func (s Variables) Set(ctx context.Context, a schemas.AccountID, name, value string) (schemas.VariableDocument, error) {
	var contest streams.Contest
	if err := errors.Join(a.Validate(), checkVariable(name, value)); err != nil {
		return schemas.VariableDocument{}, err
	}
	key := variableKey(a, name)
	for {
		now := s.now()
		v := schemas.Variable{Account: a, Name: name, Value: value, Created: now}
		p, err := s.bucket.Get(ctx, key)
		there := err == nil || p.Revision != 0 // one that does not decrypt is replaced: its value is lost
		if !there && !errors.Is(err, schemas.ErrNotFound) {
			return schemas.VariableDocument{}, fmt.Errorf("read the record %s: %w", key, err)
		}
		if err == nil && p.Value.Variable != nil {
			v.Created, v.Updated = p.Value.Variable.Created, now
		}
		if !there {
			if err := s.room(a); err != nil {
				return schemas.VariableDocument{}, err
			}
		}
		_, err = s.write(ctx, p, record{Variable: &v}, true)
		if err == nil {
			return variableDocument(v), nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return schemas.VariableDocument{}, fmt.Errorf("set the variable %s: %w", name, err)
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.VariableDocument{}, err
		}
	}
}

// Remove takes a variable away. Sandboxes that name it refuse their calls from then on. Code: not_found.
func (s Variables) Remove(ctx context.Context, a schemas.AccountID, name string) error {
	missing := schemas.Errorf(schemas.NotFound, "there is no variable %q", schemas.Quotable(name))
	if a.Validate() != nil || !schemas.VariableName(name) {
		return missing
	}
	err := s.remove(ctx, variableKey(a, name), 0)
	if errors.Is(err, schemas.ErrNotFound) {
		return missing
	}
	return err
}

func (s Variables) room(a schemas.AccountID) error {
	if t := s.tenantOf(a); t != nil && len(t.variables.byID) >= schemas.MaxVariables {
		return schemas.Errorf(schemas.Exhausted, "the account has %d variables, the most it may: remove one", len(t.variables.byID))
	}
	return nil
}

// checkVariable never shows the value.
func checkVariable(name, value string) error {
	switch {
	case !schemas.VariableName(name):
		return schemas.Invalidf("name", "%q is not the name of a variable: use A-Z a-z 0-9 _, no digit first, at most %d bytes",
			schemas.Quotable(name), schemas.MaxName)
	case value == "":
		return schemas.Invalidf("value", "is missing")
	case len(value) > schemas.MaxVariable:
		return schemas.Invalidf("value", "is %d bytes long: the limit is %d", len(value), schemas.MaxVariable)
	case strings.IndexByte(value, 0) >= 0:
		return schemas.Invalidf("value", "has a NUL byte")
	}
	return nil
}

func variableDocument(v schemas.Variable) schemas.VariableDocument {
	return schemas.VariableDocument{Name: v.Name, Created: v.Created, Updated: updated(v.Created, v.Updated)}
}

// withVariables is a sandbox whose variables have the values of those of the account that they name. One that the
// copy does not have is looked for in the log. Values are not looked into again. Codes: invalid (one is
// missing, or all together are too large), unavailable (one does not open).
func (s *cache) withVariables(ctx context.Context, sandbox schemas.Sandbox) (schemas.Sandbox, error) {
	values := sandbox.EnvVars
	total := 0
	for name, value := range sandbox.EnvVars {
		ref, ok := schemas.VariableRef(value)
		if !ok {
			continue
		}
		v, err := s.variable(ctx, sandbox.Account, ref)
		if errors.Is(err, schemas.ErrNotFound) {
			return schemas.Sandbox{}, schemas.Invalidf("config.envVars."+name, // not_found would say that there is no sandbox
				"of sandbox %s names the variable %s, which the account does not have: sandjet variables set %s",
				schemas.Quotable(sandbox.Name), ref, ref)
		}
		if err != nil {
			return schemas.Sandbox{}, err
		}
		if total == 0 {
			values = maps.Clone(values)
		}
		values[name] = v.Value
		total += len(name) + len(v.Value)
	}
	sandbox.EnvVars = values
	if total > schemas.MaxEnvBytes {
		return schemas.Sandbox{}, schemas.Invalidf("config.envVars",
			"of sandbox %s is %d bytes long with the values of the account's variables: at most %d",
			schemas.Quotable(sandbox.Name), total, schemas.MaxEnvBytes)
	}
	return sandbox, nil
}

// lacks reports whether a sandbox names a variable that is not there.
func (t *tenant) lacks(id schemas.SandboxID) bool {
	for _, value := range t.sandboxes.byID[id].EnvVars {
		if ref, ok := schemas.VariableRef(value); ok {
			if _, there := t.variables.byID[ref]; !there {
				return true
			}
		}
	}
	return false
}

func (s *cache) variable(ctx context.Context, a schemas.AccountID, name string) (schemas.Variable, error) {
	return find(ctx, s, variableKey(a, name), func(t *tenant) (schemas.Variable, bool) {
		v, ok := t.variables.byID[name]
		return v, ok
	})
}

// maskVars is what clients see of variables: the names of the account's, and of all else a mask.
func maskVars(vars map[string]string) map[string]string {
	if len(vars) == 0 {
		return vars
	}
	out := make(map[string]string, len(vars))
	for name, value := range vars {
		if _, ref := schemas.VariableRef(value); !ref {
			value = schemas.MaskedSecret
		}
		out[name] = value
	}
	return out
}
