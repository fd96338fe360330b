package records

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/sandjet/sandjet/records/seal"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Settings are what a [Store] needs to know besides the log. Set them right after [Open].
type Settings struct {
	// Log receives records that cannot be read. Nil: silent.
	Log *slog.Logger
	// KeysChanged is called for each account that has other keys than before or is gone, once the copy knows it.
	// It is called by many goroutines and should not take long. Nil: nothing is called.
	KeysChanged func(schemas.AccountID)
	// Living knows what a provider's workers can do where they run. Nil: it is not asked.
	Living Living
	// Operator is what no record may go beyond.
	Operator Operator
	// Quota is how much all records of an account may be together.
	Quota Quota
}

// Store is the records of all accounts: its fields are the records of one kind each. It may be used by many goroutines.
type Store struct {
	*Settings
	*cache

	Accounts  Accounts
	Channels  Channels
	Documents Documents
	Endpoints Endpoints
	Manifests Manifests
	Sessions  Sessions
	Skills    Skills
	Variables Variables
}

// Open reads all records once; [Store.Run] then keeps up with changes by other processes. The ring seals
// and opens their secrets: variables of sandboxes and keys of endpoints. Without the key that a record
// is sealed with, the record is unavailable and all others are as ever. The nil ring is for logs
// without secrets: a record with any is refused.
//
// Providers are those of this build: records may name these, the first is meant where none is named.
func Open(ctx context.Context, bus *streams.Bus, ring *seal.Ring, providers schemas.Catalog) (*Store, error) {
	c, err := openCache(ctx, bus, ring, providers)
	if err != nil {
		return nil, err
	}
	return storeOf(c), nil
}

func storeOf(c *cache) *Store {
	return &Store{
		Settings: &c.Settings, cache: c, Accounts: Accounts{c}, Channels: Channels{c}, Documents: Documents{c}, Endpoints: Endpoints{c},
		Manifests: Manifests{c, &serial{}}, Sessions: Sessions{c}, Skills: Skills{c}, Variables: Variables{c},
	}
}

// Authenticate finds the account of a bearer key. It costs no round trip. Codes: denied.
func (s *Store) Authenticate(_ context.Context, key string) (schemas.AccountID, error) {
	a, ok := s.authenticate(key, s.now())
	if !ok {
		return "", schemas.Errorf(schemas.Denied, "invalid API key")
	}
	return a, nil
}

// Resolve turns a valid request into a call of the account: it finds the workspace, the sandbox and
// its provider, sets the timeout and the deadline, and makes the ids that the request lacks. It
// costs no round trip.
//
// A call that a person must allow gets the id of its approval. Codes: not_found (the account, or a
// workspace or sandbox by that name or id), invalid (the deadline; or the sandbox names a variable that the
// account does not have, which only this case asks the log for), denied (the sandbox has more than the operator allows), unsupported
// (its provider is not in this build, or cannot keep what the record says).
func (s *Store) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, sandbox, lacking, err := s.resolve(a, r)
	if err == nil && s.Living != nil && sandbox.ID != "" {
		workspace := s.workspaceNow(a, c.Workspace)
		err = s.Living.Keeps(ctx, c.Provider, func(p schemas.Profile) error {
			if err := p.Keeps(sandbox); err != nil {
				return err
			}
			return p.Reaches(workspace, sandbox)
		})
	}
	if err != nil {
		return schemas.Call{}, err
	}
	if !lacking {
		return c, nil
	}
	// It may have been set elsewhere just now. What cannot be read here is the worker's to try again.
	if _, err := s.withVariables(ctx, sandbox); errors.Is(err, schemas.ErrInvalid) {
		return schemas.Call{}, err
	}
	return c, nil
}

// workspaceNow is a workspace of the copy; the zero one where there is none.
func (s *Store) workspaceNow(a schemas.AccountID, id schemas.WorkspaceID) schemas.Workspace {
	if t := s.tenantOf(a); t != nil {
		return t.workspaces.byID[id]
	}
	return schemas.Workspace{}
}

// Value returns the value of a variable of an account, as env:NAME names it. Codes: invalid (it is not written so, or the account has no
// such variable), unavailable.
func (s *Store) Value(ctx context.Context, a schemas.AccountID, ref string) (string, error) {
	name, ok := schemas.VariableRef(ref)
	if !ok {
		return "", schemas.OpErrorf(schemas.Invalid, "variable", "%q names no variable", schemas.Quotable(ref))
	}
	v, err := s.variable(ctx, a, name)
	if errors.Is(err, schemas.ErrNotFound) {
		return "", schemas.OpErrorf(schemas.Invalid, "variable",
			"the account has no variable %s: sandjet variables set %s", name, name)
	}
	return v.Value, err
}

// Living reports what can be kept now.
type Living interface {
	// Keeps asks the profiles of a provider's living workers, and returns nil where one of them keeps what is asked, or
	// where nothing is known of any; else what one of them said.
	Keeps(ctx context.Context, provider string, ask func(schemas.Profile) error) error
}

// resolve is Resolve by the copy alone. Sandbox is the call's, the zero one where it has none; lacking says that the
// copy lacks one of its variables.
func (s *Store) resolve(a schemas.AccountID, r schemas.Request) (c schemas.Call, sandbox schemas.Sandbox, lacking bool, err error) {
	t := s.tenantOf(a)
	if t == nil || t.account == nil {
		return c, sandbox, false, &schemas.Error{
			Code: schemas.NotFound, Field: "account", Message: "there is no account " + schemas.Quotable(string(a)),
		}
	}
	c, err = resolve(t, a, r, s.now())
	if errors.Is(err, schemas.ErrNotFound) {
		if locked := s.lockedOf(a, kindSandbox); locked != nil { // it may be that one
			err = locked
		}
	}
	if err == nil {
		sandbox = t.sandboxes.byID[c.Sandbox]
		err = s.keeps(c, sandbox)
	}
	return c, sandbox, err == nil && c.Unfit() == nil && t.lacks(c.Sandbox), err
}

// keeps reports what of a call its provider or the operator does not allow: its record may be older than this
// build, or than the operator's word. The zero sandbox is that of a call without one.
func (s *Store) keeps(c schemas.Call, sandbox schemas.Sandbox) error {
	able, ok := s.providers.Find(c.Provider)
	if !ok {
		return &schemas.Error{Code: schemas.Unsupported, Field: "sandbox", Message: fmt.Sprintf(
			"%q is of the provider %q, which this build does not have: it has %s. Give the sandbox another with config.provider, or name another "+
				"sandbox",
			schemas.Quotable(sandbox.Name), schemas.Quotable(c.Provider), list(s.providers.Names()))}
	}
	if sandbox.ID == "" {
		return nil
	}
	if err := s.Operator.check(s.providers, sandbox); err != nil {
		return err
	}
	return able.Keeps(sandbox)
}

// Sandbox returns a sandbox by its id, as calls run in it: a variable that names one of the account's has
// its value. One that the copy does not have yet is read from the log. Codes: not_found, unavailable, invalid
// (it names a variable that the account does not have).
func (s *Store) Sandbox(ctx context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	v, err := find(ctx, s.cache, sandboxKey(a, id), func(t *tenant) (schemas.Sandbox, bool) {
		v, ok := t.sandboxes.byID[id]
		return v, ok
	})
	if err != nil {
		return v, err
	}
	return s.withVariables(ctx, v)
}

// Workspace returns a workspace by its id. One that the copy does not have yet is read from the
// log. Codes: not_found, unavailable.
func (s *Store) Workspace(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	return find(ctx, s.cache, workspaceKey(a, id), func(t *tenant) (schemas.Workspace, bool) {
		v, ok := t.workspaces.byID[id]
		return v, ok
	})
}

// WorkspaceFiles finds the files of a workspace: those that its own sandbox has, and where it names none, those of the default provider.
// Code: not_found.
func (s *Store) WorkspaceFiles(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.WorkspaceFiles, error) {
	return find(ctx, s.cache, workspaceKey(a, id), func(t *tenant) (schemas.WorkspaceFiles, bool) {
		v, ok := t.workspaces.byID[id]
		return t.filesOf(v), ok
	})
}

func (t *tenant) filesOf(w schemas.Workspace) schemas.WorkspaceFiles {
	return schemas.WorkspaceFiles{Workspace: w, Provider: t.holderOf(w)}
}
