package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Endpoints are the webhook endpoints of accounts.
type Endpoints struct{ *cache }

// List returns the webhook endpoints of an account, the oldest first. It costs no round trip, so it may be
// asked for every event. One that another process has just added may be missing. Code: unavailable (one
// of them cannot be read here: leaving it out would mean that it never gets its deliveries).
func (s Endpoints) List(_ context.Context, a schemas.AccountID) ([]schemas.Endpoint, error) {
	if err := s.lockedOf(a, kindEndpoint); err != nil {
		return nil, err
	}
	t := s.tenantOf(a)
	if t == nil {
		return nil, nil
	}
	list := make([]schemas.Endpoint, 0, len(t.endpoints.byID))
	for _, p := range t.endpoints.byID {
		list = append(list, cloneEndpoint(p))
	}
	slices.SortFunc(list, func(a, b schemas.Endpoint) int { // ids of one millisecond are in no order
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Get returns an endpoint of an account. One that the copy does not have yet is read from the
// log. Codes: not_found, in the same words for another account's.
func (s Endpoints) Get(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) (schemas.Endpoint, error) {
	if id.Validate() != nil || a.Validate() != nil {
		return schemas.Endpoint{}, noEndpoint(id)
	}
	e, err := find(ctx, s.cache, endpointKey(a, id), func(t *tenant) (schemas.Endpoint, bool) {
		e, ok := t.endpoints.byID[id]
		return e, ok
	})
	if errors.Is(err, schemas.ErrNotFound) {
		return e, noEndpoint(id)
	}
	return cloneEndpoint(e), err
}

// Add adds an endpoint. Codes: invalid, exhausted (the account has as many as it may; adding
// at many gateways at the same moment may pass the limit by a few), conflict (the id is there).
func (s Endpoints) Add(ctx context.Context, e schemas.Endpoint) error {
	if err := errors.Join(e.ID.Validate(), e.Account.Validate()); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	have, err := s.List(ctx, e.Account)
	if err != nil {
		return err
	}
	if len(have) >= schemas.MaxEndpoints {
		return schemas.Errorf(schemas.Exhausted, "the account has %d webhook endpoints, the most it may: remove one", len(have))
	}
	e = cloneEndpoint(e)
	r := record{Endpoint: &e}
	if _, err := s.write(ctx, streams.BucketEntry[record]{}, r, true); err != nil {
		return fmt.Errorf("create the record %s: %w", r.key(), err)
	}
	return nil
}

// Update changes an endpoint by change, which is called again with what is there then when
// another has changed it at the same time. It must not block; its error ends the update and is
// returned. Id, account and creation stay. Codes: not_found, invalid, conflict (too many others).
func (s Endpoints) Update(
	ctx context.Context, a schemas.AccountID, id schemas.EndpointID, change func(*schemas.Endpoint) error,
) (schemas.Endpoint, error) {
	return s.change(ctx, a, id, true, func(e *schemas.Endpoint) (bool, error) { return true, change(e) })
}

// change is Update with a change that reports whether there is anything to write. bounded says that the account's quota applies, which it
// does not to notes about deliveries.
func (s Endpoints) change(
	ctx context.Context, a schemas.AccountID, id schemas.EndpointID, bounded bool, change func(*schemas.Endpoint) (bool, error),
) (schemas.Endpoint, error) {
	var contest streams.Contest
	if id.Validate() != nil || a.Validate() != nil {
		return schemas.Endpoint{}, noEndpoint(id)
	}
	key := endpointKey(a, id)
	for {
		p, err := s.bucket.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Value.Endpoint == nil {
			return schemas.Endpoint{}, noEndpoint(id)
		}
		if err != nil {
			return schemas.Endpoint{}, fmt.Errorf("read the record %s: %w", key, err)
		}
		before := *p.Value.Endpoint
		e := cloneEndpoint(before)
		write, err := change(&e)
		if err != nil || !write {
			return e, err
		}
		e.ID, e.Account, e.Created = before.ID, before.Account, before.Created
		if err := e.Validate(); err != nil {
			return schemas.Endpoint{}, err
		}
		_, err = s.write(ctx, p, record{Endpoint: &e}, bounded)
		if err == nil {
			return cloneEndpoint(e), nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return schemas.Endpoint{}, fmt.Errorf("change the record %s: %w", key, err)
		}
		if err := contest.Again(ctx); err != nil {
			return schemas.Endpoint{}, err
		}
	}
}

// Remove removes an endpoint, also one whose secrets cannot be opened any more. Codes: not_found.
func (s Endpoints) Remove(ctx context.Context, a schemas.AccountID, id schemas.EndpointID) error {
	if id.Validate() != nil || a.Validate() != nil {
		return noEndpoint(id)
	}
	err := s.remove(ctx, endpointKey(a, id), 0)
	if errors.Is(err, schemas.ErrNotFound) {
		return noEndpoint(id)
	}
	return err
}

// Disable stops deliveries to an endpoint, with a reason. Code: not_found.
func (s Endpoints) Disable(ctx context.Context, a schemas.AccountID, id schemas.EndpointID, reason string) error {
	_, err := s.change(ctx, a, id, false, func(e *schemas.Endpoint) (bool, error) {
		if e.Disabled {
			return false, nil
		}
		e.Disabled, e.Reason, e.Updated = true, reason, s.now()
		return true, nil
	})
	return err
}

// Failing records that deliveries to an endpoint have begun to fail, unless that is recorded already, or that they succeed. It may be
// called after every delivery: if nothing changes it costs no round trip. Code: not_found.
func (s Endpoints) Failing(ctx context.Context, a schemas.AccountID, id schemas.EndpointID, failing bool, now time.Time) error {
	have, err := s.Get(ctx, a, id)
	if err != nil || have.FailingSince.IsZero() != failing {
		return err
	}
	_, err = s.change(ctx, a, id, false, func(e *schemas.Endpoint) (bool, error) {
		if e.FailingSince.IsZero() != failing {
			return false, nil
		}
		e.FailingSince = time.Time{}
		if failing {
			e.FailingSince = now.UTC()
		}
		return true, nil
	})
	return err
}

func noEndpoint(id schemas.EndpointID) error {
	return schemas.Errorf(schemas.NotFound, "there is no webhook endpoint %q", schemas.Quotable(string(id)))
}

// cloneEndpoint returns a copy that callers may change.
func cloneEndpoint(e schemas.Endpoint) schemas.Endpoint {
	e.Secrets, e.Events = slices.Clone(e.Secrets), slices.Clone(e.Events)
	return e
}
