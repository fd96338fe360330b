package sandboxapi

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// entry says on which conditions a session is entered.
type entry struct {
	lease  *schemas.SandboxLease // the lease of a new session; nil: none
	leased bool                  // the session must exist, with a lease that has not ended
}

// check checks that a session may be entered. Codes: not_found, conflict, exhausted.
func (e entry) check(l *schemas.SandboxSessions, id string, now time.Time) error {
	i := find(l.Sessions, id)
	switch {
	case e.leased:
		if i < 0 || !Lives(l.Sessions[i], now) {
			return noSession()
		}
	case e.lease == nil:
	case i < 0:
		return roomForLease(l, e.lease.Bytes())
	case !Lives(l.Sessions[i], now):
		return fault(schemas.Conflict, "Idempotency-Key", "the sandbox of this key is being ended: use a new key")
	case !same(*l.Sessions[i].Lease, *e.lease):
		return fault(schemas.Conflict, "Idempotency-Key", "was sent with another request: use a new one for a new sandbox")
	}
	return nil
}

// roomForLease checks that an account's leases would not exceed their limit with more bytes. Code: exhausted.
func roomForLease(l *schemas.SandboxSessions, more int) error {
	used := more
	for _, s := range l.Sessions {
		if s.Lease != nil {
			used += s.Lease.Bytes()
		}
	}
	if used > schemas.MaxSandboxLeases {
		return fault(schemas.Exhausted, "metadata", "the metadata, variables and contexts of the account's sandboxes have %d bytes: at most %d; "+
			"end some sandboxes", used, schemas.MaxSandboxLeases)
	}
	return nil
}

func same(a, b schemas.SandboxLease) bool {
	return a.Template == b.Template && maps.Equal(a.Metadata, b.Metadata) && maps.Equal(a.Env, b.Env)
}

// Lives reports whether a session has a lease that has not ended at now.
func Lives(s schemas.SandboxSession, now time.Time) bool {
	return s.Lease != nil && !s.Ending && now.Before(s.Lease.Expires)
}

// Make makes a session with a lease. If it exists already with an equal lease, it returns that one. It waits for up to PlaceWait if too
// many sessions are active. Codes: those of [API.Enter], conflict (there is another session with this id), exhausted, unsupported (this
// gateway has no sessions).
func (a *sessions) Make(ctx context.Context, tenant schemas.AccountID, id string, lease schemas.SandboxLease) (schemas.SandboxSession, error) {
	if err := a.ready(); err != nil {
		return schemas.SandboxSession{}, err
	}
	s, _, err := a.session(ctx, tenant, id, entry{lease: &lease})
	return s, plain(err)
}

// Enter lets a request use a session with a lease: the session becomes active and is marked as used. It waits for up to PlaceWait if too
// many sessions are active. Codes: not_found (there is none, or its time has ended), exhausted (too many are active), unavailable.
func (a *sessions) Enter(ctx context.Context, tenant schemas.AccountID, id string) (schemas.SandboxSession, error) {
	if err := a.ready(); err != nil {
		return schemas.SandboxSession{}, err
	}
	s, _, err := a.session(ctx, tenant, id, entry{leased: true})
	return s, plain(err)
}

// plain replaces a [fullError] by an error of the code exhausted.
func plain(err error) error {
	if f, ok := errors.AsType[*fullError](err); ok {
		return fault(schemas.Exhausted, "", "the account has %d active sandboxes, the most it may: end one, or wait until one is idle", f.active)
	}
	return err
}

// Leased returns the sessions of an account that have a lease that has not ended, by id. Code: unavailable.
func (a *sessions) Leased(ctx context.Context, tenant schemas.AccountID) ([]schemas.SandboxSession, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	l, err := a.Store.Get(ctx, tenant)
	var out []schemas.SandboxSession
	for _, s := range l.Sessions {
		if Lives(s, a.Now()) {
			out = append(out, s)
		}
	}
	return out, err
}

// Change changes the lease of a session. change may be called more than once, and must not modify the maps and slices of the lease in
// place. Codes: not_found, exhausted (the leases of the account would be too large), unavailable, and the error of change.
func (a *sessions) Change(ctx context.Context, tenant schemas.AccountID, id string, change func(l *schemas.SandboxLease) error) (
	s schemas.SandboxSession, err error,
) {
	if err := a.ready(); err != nil {
		return s, err
	}
	_, err = a.Store.Change(ctx, tenant, func(l *schemas.SandboxSessions) error {
		i := find(l.Sessions, id)
		if i < 0 || !Lives(l.Sessions[i], a.Now()) {
			return noSession()
		}
		changed := *l.Sessions[i].Lease
		if err := change(&changed); err != nil {
			return err
		}
		if grown := changed.Bytes() - l.Sessions[i].Lease.Bytes(); grown > 0 {
			if err := roomForLease(l, grown); err != nil {
				return err
			}
		}
		if !reflect.DeepEqual(changed, *l.Sessions[i].Lease) {
			l.Sessions[i].Lease = &changed
		}
		s = l.Sessions[i]
		return nil
	})
	return s, err
}

// Touch marks a session as used. It is called regularly while a request runs in it.
func (a *sessions) Touch(ctx context.Context, tenant schemas.AccountID, id string) {
	a.touch(ctx, tenant, id)
}
