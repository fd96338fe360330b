package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Bootstrap describes the account that must exist.
type Bootstrap struct {
	Account  schemas.AccountID // empty: a new one
	Key      string            // its bearer key, at least 16 bytes
	Provider string            // of its default sandbox

	Name, Description string // of a new account
}

// Ensure makes the account with a workspace and a sandbox named [DefaultName], and returns
// it. What is there already stays as it is, but the key: it becomes the given one, and an older one
// stops working. It may be called at the same time by several processes, and again after a crash
// in between: it completes what is missing.
//
// The sandbox is kept between calls, has no network but loopback, asks for no approval, and gives a
// run 30 seconds.
func (s Accounts) Ensure(ctx context.Context, b Bootstrap) (schemas.Account, error) {
	const shortest = 16
	if len(b.Key) < shortest {
		return schemas.Account{}, schemas.Invalidf("key", "is %d bytes long: at least %d", len(b.Key), shortest)
	}
	if b.Provider == "" {
		return schemas.Account{}, schemas.Invalidf("provider", "is missing: the default sandbox needs one")
	}
	if b.Account == "" {
		b.Account = schemas.AccountID(schemas.NewID(schemas.AccountPrefix))
	}
	if err := b.Account.Validate(); err != nil {
		return schemas.Account{}, err
	}
	now := s.now()
	sandbox := schemas.Sandbox{
		ID: schemas.SandboxID(derivedID(schemas.SandboxPrefix, b.Account, DefaultName)), Account: b.Account, Name: DefaultName,
		Provider: b.Provider, Network: schemas.Network{Mode: schemas.DenyAll}, PermissionMode: schemas.PermissionBypass,
		Timeout: schemas.Duration(schemas.DefaultTimeout), Persistent: true, Created: now,
	}
	workspace := schemas.Workspace{
		ID: schemas.WorkspaceID(derivedID(schemas.WorkspacePrefix, b.Account, DefaultName)), Account: b.Account, Name: DefaultName,
		Sandbox: sandbox.ID, Created: now,
	}
	// The account comes last: once its key works, what its calls need is there.
	for _, r := range []record{{Sandbox: &sandbox}, {Workspace: &workspace}} {
		if err := s.ensure(ctx, r, false); err != nil {
			return schemas.Account{}, err
		}
	}
	return s.ensureKey(ctx, schemas.Account{
		ID: b.Account, Name: b.Name, Description: b.Description, KeyHash: HashKey(b.Key), Created: now,
	})
}

// ensure creates r unless it exists, and reads what exists into the copy. bounded says that the account's quota applies.
func (s *cache) ensure(ctx context.Context, r record, bounded bool) error {
	key := r.key()
	_, err := s.write(ctx, streams.BucketEntry[record]{}, r, bounded)
	if errors.Is(err, schemas.ErrConflict) {
		if err = s.fetch(ctx, key); s.isLocked(key) {
			return nil // it is there: calls in need of it wait for its key
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("create the record %s: %w", key, err)
	}
	return nil
}

// ensureKey creates the account or gives the one that is there the key.
func (s Accounts) ensureKey(ctx context.Context, want schemas.Account) (schemas.Account, error) {
	var contest streams.Contest
	key := accountKey(want.ID)
	for {
		if err := s.ensure(ctx, record{Account: &want}, false); err != nil {
			return schemas.Account{}, err
		}
		p, err := s.bucket.Get(ctx, key)
		if err != nil {
			return schemas.Account{}, fmt.Errorf("read the record %s: %w", key, err)
		}
		if p.Value.Account == nil {
			return schemas.Account{}, schemas.Errorf(schemas.Internal, "the record %s is not an account", key)
		}
		have := *p.Value.Account
		if have.KeyHash == want.KeyHash {
			return have, nil
		}
		have.KeyHash, have.Former = want.KeyHash, nil
		_, err = s.write(ctx, p, record{Account: &have}, false)
		if err == nil {
			return have, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return schemas.Account{}, fmt.Errorf("give the account %s its key: %w", want.ID, err)
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.Account{}, err
		}
	}
}
