package records

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// KeyPrefix begins the keys of accounts.
const KeyPrefix = "sk_"

// NewKey creates a key of an account, with 128 random bits or more.
func NewKey() string { return KeyPrefix + strings.ToLower(rand.Text()) }

const mostFormer = 4 // keys of an account that were replaced and still work

// Accounts are the accounts with their keys.
type Accounts struct{ *cache }

// Count is how many accounts there are. It may be called from many goroutines.
func (s Accounts) Count() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.index.tenants {
		if t.account != nil {
			n++
		}
	}
	return n
}

// List lists all accounts by id. It costs no round trip.
func (s Accounts) List(context.Context) ([]schemas.Document, error) {
	type one struct {
		account  *schemas.Account // never changed
		revision uint64
	}
	var all []one
	func() {
		s.mu.RLock()
		defer s.mu.RUnlock()
		for _, t := range s.index.tenants {
			if t.account != nil {
				all = append(all, one{t.account, t.revision})
			}
		}
	}()
	list := make([]schemas.Document, 0, len(all))
	for _, o := range all {
		d, err := accountDocument(*o.account, o.revision)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b schemas.Document) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// Get returns an account. One that the copy does not have yet is read from the log. Codes: not_found, with the cause
// [streams.ErrDeleted] if it was removed, unavailable.
func (s Accounts) Get(ctx context.Context, a schemas.AccountID) (schemas.Document, error) {
	if a.Validate() != nil {
		return schemas.Document{}, noAccount(a)
	}
	d, err := find(ctx, s.cache, accountKey(a), func(t *tenant) (schemas.Document, bool) {
		if t.account == nil {
			return schemas.Document{}, false
		}
		d, err := accountDocument(*t.account, t.revision)
		return d, err == nil // a record of ours is always JSON
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return d, schemas.Wrap(schemas.NotFound, "", noAccount(a).Error(), err)
	}
	return d, err
}

// Add makes an account of the JSON that a client sent, with a key, a sandbox and a workspace as
// [Accounts.Ensure] makes them. The key is not kept. Codes: invalid.
func (s Accounts) Add(ctx context.Context, body []byte) (d schemas.Document, key string, err error) {
	spec, err := decode[schemas.AccountSpec](body)
	if err != nil {
		return d, "", err
	}
	if err := checkAccount(spec); err != nil {
		return d, "", err
	}
	key = NewKey()
	made, err := s.Ensure(ctx, Bootstrap{Key: key, Provider: s.providers.Default(), Name: spec.Name, Description: spec.Description})
	if err != nil {
		return d, "", err
	}
	d, err = s.Get(ctx, made.ID)
	return d, key, err
}

// Patch merges a patch into an account's name and description. With a revision other than 0 it does
// so only to that one. Codes: not_found, invalid, conflict (field [FieldIfMatch]: the revision is another).
func (s Accounts) Patch(ctx context.Context, a schemas.AccountID, patch []byte, revision uint64) (schemas.Document, error) {
	if _, err := decode[schemas.AccountSpec](patch); err != nil {
		return schemas.Document{}, err
	}
	return s.change(ctx, a, revision, func(acc *schemas.Account) error {
		before, err := schemas.EncodeJSON(schemas.AccountSpec{Name: acc.Name, Description: acc.Description})
		if err != nil {
			return fmt.Errorf("patch %s: %w", a, err)
		}
		whole, err := merge(before, patch)
		if err != nil {
			return err
		}
		spec, err := decode[schemas.AccountSpec](whole)
		if err != nil {
			return err
		}
		acc.Name, acc.Description = spec.Name, spec.Description
		return checkAccount(spec)
	})
}

// RotateKey gives an account a new key and returns it. Former keys work until overlap has passed, those
// that were to end earlier until then; of too many the oldest ends at once. Codes: not_found.
func (s Accounts) RotateKey(ctx context.Context, a schemas.AccountID, overlap time.Duration) (string, error) {
	key := NewKey()
	_, err := s.change(ctx, a, 0, func(acc *schemas.Account) error {
		acc.Former = former(*acc, overlap, s.now())
		acc.KeyHash = HashKey(key)
		return nil
	})
	if err != nil {
		return "", err
	}
	return key, nil
}

// former returns the keys that stay valid once the present one is replaced, the newest first.
func former(acc schemas.Account, overlap time.Duration, now time.Time) []schemas.FormerKey {
	end := now.Add(overlap).UTC()
	var out []schemas.FormerKey
	for _, k := range append([]schemas.FormerKey{{KeyHash: acc.KeyHash, Expires: end}}, acc.Former...) {
		if k.Expires.After(end) {
			k.Expires = end
		}
		if k.Expires.After(now) && len(out) < mostFormer {
			out = append(out, k)
		}
	}
	return out
}

func (s Accounts) change(
	ctx context.Context, a schemas.AccountID, revision uint64, change func(*schemas.Account) error,
) (schemas.Document, error) {
	if a.Validate() != nil {
		return schemas.Document{}, noAccount(a)
	}
	r, rev, err := s.cache.change(ctx, accountKey(a), revision, func(old record) (record, error) {
		acc := *old.Account
		err := change(&acc)
		acc.Updated = s.now()
		return record{Account: &acc}, err
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return schemas.Document{}, noAccount(a)
	}
	if err != nil {
		return schemas.Document{}, err
	}
	return accountDocument(*r.Account, rev)
}

// Remove removes an account with all its records, and counts them; with a revision other than 0 only that one. The account itself
// goes last: when the removal fails half way, it can be asked for again. Calls and jobs in flight continue. Codes: not_found, conflict
// (field [FieldIfMatch]: the revision is another).
func (s Accounts) Remove(ctx context.Context, a schemas.AccountID, revision uint64) (n schemas.RemovedRecords, err error) {
	d, err := s.Get(ctx, a)
	if err != nil {
		return n, err
	}
	if revision != 0 && d.Revision != revision {
		return n, stale()
	}
	if err := s.removeAll(ctx, a, &n); err != nil {
		return n, err
	}
	if err := s.remove(ctx, accountKey(a), 0); err != nil {
		if errors.Is(err, schemas.ErrNotFound) {
			return n, noAccount(a)
		}
		return n, err
	}
	return n, s.removeAll(ctx, a, &n) // what was added meanwhile, while its key still worked
}

// removeAll removes all records of an account except the account's own, and adds their numbers to n.
func (s Accounts) removeAll(ctx context.Context, a schemas.AccountID, n *schemas.RemovedRecords) error {
	keys, err := s.bucket.Keys(ctx, "*."+string(a)+".*")
	if err != nil {
		return fmt.Errorf("list the records of %s: %w", a, err)
	}
	if len(keys) == 0 {
		return nil
	}
	b := s.boxesOf(ctx, a)
	for _, key := range keys {
		err := s.removeMarked(ctx, key, 0, b.marked(key))
		switch kind, _, _, _ := splitKey(key); {
		case errors.Is(err, schemas.ErrNotFound): // by another
		case err != nil:
			return err
		case kind == kindSandbox:
			n.Sandboxes++
		case kind == kindWorkspace:
			n.Workspaces++
		case kind == kindAgent:
			n.Agents++
		case kind == kindModel:
			n.Models++
		case kind == kindVariable:
			n.Variables++
		case kind == kindEndpoint:
			n.Webhooks++
		case kind == kindChannel:
			n.Channels++
		case kind == kindSkill:
			n.Skills++
		}
	}
	return nil
}

func accountDocument(acc schemas.Account, revision uint64) (schemas.Document, error) {
	b, err := schemas.EncodeJSON(schemas.AccountDocument{
		ID: acc.ID, Name: acc.Name, Description: acc.Description, Created: acc.Created, Updated: updated(acc.Created, acc.Updated),
	})
	if err != nil {
		return schemas.Document{}, fmt.Errorf("show %s: %w", acc.ID, err)
	}
	return schemas.Document{ID: string(acc.ID), Revision: revision, JSON: b}, nil
}

func checkAccount(spec schemas.AccountSpec) error {
	if spec.Name != "" {
		if err := checkNames(schemas.AccountPrefix, spec.Name, ""); err != nil {
			return err
		}
	}
	return checkDescription(spec.Description)
}

func noAccount(a schemas.AccountID) error {
	return schemas.Errorf(schemas.NotFound, "there is no account %q", schemas.Quotable(string(a)))
}
