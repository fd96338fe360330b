package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

func sessionsKey(a schemas.AccountID) string { return kindSessions + "." + string(a) + ".all" }

// Sessions are the sessions of /v1/sandbox: one record for each account, and what they run in.
type Sessions struct{ *cache }

// Get reads the sessions of /v1/sandbox that an account has. Code: unavailable.
func (s Sessions) Get(ctx context.Context, a schemas.AccountID) (schemas.SandboxSessions, error) {
	p, err := s.bucket.Get(ctx, sessionsKey(a))
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.SandboxSessions{Account: a}, nil
	}
	if err != nil {
		return schemas.SandboxSessions{}, fmt.Errorf("read the sessions of %s: %w", a, err)
	}
	if p.Value.Sessions == nil {
		return schemas.SandboxSessions{}, schemas.Errorf(schemas.Unsupported, "the record %s is of another version", p.Key)
	}
	return *p.Value.Sessions, nil
}

// All are the sessions of every account, by account. It costs no round trip, and lags behind other processes.
func (s Sessions) All() []schemas.SandboxSessions {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []schemas.SandboxSessions
	for _, t := range s.index.tenants {
		if t.sessions != nil && len(t.sessions.Sessions) > 0 {
			all = append(all, *t.sessions)
		}
	}
	slices.SortFunc(all, func(x, y schemas.SandboxSessions) int { return cmp.Compare(x.Account, y.Account) })
	return all
}

// Change changes the sessions of an account by compare and set; change may be called several times, and its error is
// returned. A change that leaves them as they are writes nothing. Codes: not_found (there is no such account), unavailable (too many change
// them at once), those of change.
func (s Sessions) Change(ctx context.Context, a schemas.AccountID, change func(*schemas.SandboxSessions) error) (
	schemas.SandboxSessions, error,
) {
	const tries = 100 // of others changing the same record at the same time
	if _, err := (Accounts(s)).Get(ctx, a); err != nil {
		return schemas.SandboxSessions{}, err
	}
	key, pause := sessionsKey(a), wait.Backoff{First: time.Millisecond, Most: 100 * time.Millisecond}
	for try := 1; ; try++ {
		p, err := s.bucket.Get(ctx, key)
		absent := errors.Is(err, schemas.ErrNotFound)
		if err != nil && !absent {
			return schemas.SandboxSessions{}, fmt.Errorf("read the record %s: %w", key, err)
		}
		now := schemas.SandboxSessions{Account: a}
		if !absent {
			if p.Value.Sessions == nil {
				return now, schemas.Errorf(schemas.Unsupported, "the record %s is of another version", key)
			}
			now.Sessions = slices.Clone(p.Value.Sessions.Sessions)
		}
		before := slices.Clone(now.Sessions)
		if err := change(&now); err != nil {
			return now, err
		}
		if slices.Equal(before, now.Sessions) {
			return now, nil
		}
		_, err = s.write(ctx, p, record{Sessions: &now}, true)
		if err == nil {
			return now, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return now, fmt.Errorf("change the record %s: %w", key, err)
		}
		if try == tries || !pause.Sleep(ctx, try) {
			return now, schemas.Errorf(schemas.Unavailable, "too many requests change the sessions of this account at once: try again")
		}
	}
}

// SandboxOf is the id of the sandbox in which an account's sessions of a provider run.
func (s Sessions) SandboxOf(a schemas.AccountID, provider string) schemas.SandboxID {
	return schemas.SandboxID(derivedID(schemas.SandboxPrefix, a, "sessions\x00"+provider))
}

// Idle is after what time unused instances of a sandbox end, as far as the copy knows its record. It costs no round trip.
func (s Sessions) Idle(a schemas.AccountID, id schemas.SandboxID) time.Duration {
	if t := s.tenantOf(a); t != nil && t.sandboxes.byID[id].IdleTimeout > 0 {
		return time.Duration(t.sandboxes.byID[id].IdleTimeout)
	}
	return schemas.DefaultIdleTimeout
}

// Ensure makes the workspace of a session and, of spec, the sandbox that it runs in, where they are not there. A
// sandbox that is there stays as it is. Codes: invalid, denied (more than the operator allows), exhausted (the account has as many
// workspaces as it may), unavailable.
func (s Sessions) Ensure(ctx context.Context, a schemas.AccountID, v schemas.SandboxSession, spec schemas.SandboxSpec) error {
	if err := s.ensureSandbox(ctx, a, v, spec); err != nil {
		return err
	}
	w := schemas.Workspace{
		ID: v.Workspace, Account: a, Name: "session." + v.ID, Sandbox: v.Sandbox, Created: v.Created,
		Description: "Files of a session of /v1/sandbox.",
	}
	known, there := 0, false
	if t := s.tenantOf(a); t != nil {
		_, there = t.workspaces.byID[w.ID]
		known = len(t.workspaces.byID)
	}
	switch {
	case there:
		return nil
	case known >= schemas.MaxWorkspaces:
		return schemas.Errorf(schemas.Exhausted, "the account has %d workspaces, the most it may, and each session is one: remove one", known)
	}
	return s.ensure(ctx, record{Workspace: &w}, true)
}

func (s Sessions) ensureSandbox(ctx context.Context, a schemas.AccountID, v schemas.SandboxSession, spec schemas.SandboxSpec) error {
	there := false
	if t := s.tenantOf(a); t != nil {
		_, there = t.sandboxes.byID[v.Sandbox]
	}
	if there {
		return nil
	}
	box, err := sandboxOf(s.providers, schemas.Sandbox{ID: v.Sandbox, Account: a, Created: s.now()}, spec)
	if err != nil {
		return err
	}
	r := record{Sandbox: &box}
	if err := s.Operator.allowed(s.providers, r); err != nil {
		return err
	}
	return s.ensure(ctx, r, true)
}

// Reopen makes the sandbox of a session where it is not there, if its workspace is. Codes: those of
// [Sessions.Ensure].
func (s Sessions) Reopen(ctx context.Context, a schemas.AccountID, v schemas.SandboxSession, spec schemas.SandboxSpec) (
	there bool, err error,
) {
	if _, err := s.bucket.Get(ctx, workspaceKey(a, v.Workspace)); err != nil {
		if errors.Is(err, schemas.ErrNotFound) {
			return false, nil
		}
		return false, fmt.Errorf("read the workspace of a session: %w", err)
	}
	return true, s.ensureSandbox(ctx, a, v, spec)
}

// Remove removes the workspace of a session, which may be gone already.
func (s Sessions) Remove(ctx context.Context, a schemas.AccountID, v schemas.SandboxSession) error {
	err := s.remove(ctx, workspaceKey(a, v.Workspace), 0)
	if errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	return err
}
