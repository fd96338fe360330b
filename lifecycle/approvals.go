package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// OpenApprovals returns the bucket of approval records. It does not access the log.
func OpenApprovals(b *streams.Bus) *streams.Bucket[schemas.Approval] {
	return streams.OpenBucket[schemas.Approval](b, streams.ApprovalRecords)
}

// FindApproval returns the record of an account's approval with its revision. Code: not_found, with the same message for one that does not
// exist and for another account's.
func FindApproval(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.ApprovalID) (
	streams.BucketEntry[schemas.Approval], error,
) {
	none := schemas.Errorf(schemas.NotFound, "there is no approval %q: answered ones are known for seven days",
		schemas.Quotable(string(id)))
	if err := a.Validate(); err != nil {
		return streams.BucketEntry[schemas.Approval]{}, err
	}
	if id.Validate() != nil {
		return streams.BucketEntry[schemas.Approval]{}, none
	}
	p, err := OpenApprovals(b).Get(ctx, schemas.ApprovalKey(a, id))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && p.Deleted {
		return streams.BucketEntry[schemas.Approval]{}, none
	}
	if p.Value.LeftOut() {
		p.Value.Call.Input = nil // it was written as null
	}
	return p, err
}

// EnsureApproval returns the record of the approval that a parked call waits for, and makes it if there is none. Any process may call it
// at any time: a new record is derived from the call alone.
func EnsureApproval(ctx context.Context, b *streams.Bus, c schemas.Call) (streams.BucketEntry[schemas.Approval], error) {
	var contest streams.Contest
	for {
		p, err := FindApproval(ctx, b, c.Account, c.Approval)
		if err == nil || !errors.Is(err, schemas.ErrNotFound) {
			return p, err
		}
		a := schemas.Approval{
			ID: c.Approval, Account: c.Account, State: schemas.ApprovalPending, Call: c, InputSize: c.InputBytes(),
			Requested: c.Accepted, Expires: c.Accepted.Add(schemas.DefaultApproval),
		}
		if a.LeftOut() {
			a.Call.Input, a.Call.InputSize = nil, 0 // the record has it
		}
		rev, err := OpenApprovals(b).Create(ctx, a.Key(), a, 0)
		if err == nil {
			return streams.BucketEntry[schemas.Approval]{Key: a.Key(), Value: a, Revision: rev}, nil
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return streams.BucketEntry[schemas.Approval]{}, err
		}
		if err := contest.Again(ctx); err != nil {
			return streams.BucketEntry[schemas.Approval]{}, err
		}
	}
}

// OpenApprovalGrants returns the bucket of grants: answers that are remembered for later calls. It does not access the log.
func OpenApprovalGrants(b *streams.Bus) *streams.Bucket[schemas.ApprovalGrant] {
	return streams.OpenBucket[schemas.ApprovalGrant](b, streams.ApprovalGrants)
}

// FindApprovalGrant returns the grant that lets a call run without an approval. Code: not_found.
func FindApprovalGrant(ctx context.Context, b *streams.Bus, c schemas.Call) (schemas.ApprovalGrant, error) {
	p, err := OpenApprovalGrants(b).Get(ctx, schemas.ApprovalGrantKey(c.Account, schemas.ApprovalGrantID(c)))
	if err == nil && !p.Value.Allows(c, b.Now()) {
		return schemas.ApprovalGrant{}, schemas.Errorf(schemas.NotFound, "no answer is remembered for this call")
	}
	return p.Value, err
}

// StoreApprovalGrant stores a grant. It is idempotent, also if the grant was revoked in between.
func StoreApprovalGrant(ctx context.Context, b *streams.Bus, r schemas.ApprovalGrant) error {
	bucket, key := OpenApprovalGrants(b), schemas.ApprovalGrantKey(r.Account, r.ID)
	var contest streams.Contest
	for {
		ttl := r.Expires.Sub(b.Now()).Truncate(time.Second)
		if ttl < time.Second {
			return nil
		}
		have, err := bucket.Get(ctx, key)
		switch {
		case errors.Is(err, schemas.ErrNotFound):
			_, err = bucket.Create(ctx, key, r, ttl)
		case err != nil:
			return err
		case !have.Value.Decided.Before(r.Decided):
			return nil // this answer, or a later one
		default:
			_, err = bucket.UpdateFor(ctx, key, r, have.Revision, ttl)
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// RevokeApprovalGrant revokes an account's grant. Code: not_found, with the same message for one that does not exist and for another
// account's.
func RevokeApprovalGrant(ctx context.Context, b *streams.Bus, a schemas.AccountID, id string) error {
	none := schemas.Errorf(schemas.NotFound, "no answer is remembered as %q", schemas.Quotable(id))
	if schemas.ValidateApprovalGrantID(id) != nil {
		return none
	}
	bucket, key := OpenApprovalGrants(b), schemas.ApprovalGrantKey(a, id)
	var contest streams.Contest
	for {
		p, err := bucket.Get(ctx, key)
		if errors.Is(err, schemas.ErrNotFound) || err == nil && !p.Value.Revoked.IsZero() {
			return none
		}
		if err != nil {
			return err
		}
		p.Value.Revoked = b.Now()
		_, err = bucket.UpdateFor(ctx, key, p.Value, p.Revision, max(p.Value.Expires.Sub(p.Value.Revoked).Truncate(time.Second), time.Second))
		if !errors.Is(err, schemas.ErrConflict) {
			return err
		}
		if err := contest.Again(ctx); err != nil {
			return err
		}
	}
}

// ReleaseCall releases a parked call to the workers, in place of the parked one. It does nothing if that was done before. Code conflict:
// the id now belongs to another call, which is possible only a day after the call was parked.
func ReleaseCall(ctx context.Context, b *streams.Bus, c schemas.Call) error {
	seq := uint64(0) // of the parked call; 0: it is gone, the call is the first of its id again
	m, err := streams.Calls.Last(ctx, b, c)
	switch {
	case err == nil:
		have, err := streams.Calls.Read(ctx, b, m)
		switch {
		case err != nil:
			return err
		case have.Approval != c.Approval:
			return schemas.Errorf(schemas.Conflict, "the id %q belongs to another call by now", schemas.Quotable(string(c.ID)))
		case !streams.Parked.Holds(b, m, c):
			return nil
		}
		seq = m.Seq()
	case !errors.Is(err, schemas.ErrNotFound):
		return err
	default: // it may have been handed on, run, and forgotten since
		state, err := b.States().Read(ctx, c)
		if err != nil || len(state.Started) > 0 || state.Result != nil || state.Forgotten {
			return err
		}
	}
	err = streams.Calls.Accepted().Replace(ctx, b, c, seq) // it was accepted when it was parked
	if !errors.Is(err, schemas.ErrConflict) {
		return err
	}
	m, ferr := streams.Calls.Last(ctx, b, c) // another process was faster: with this very call?
	if ferr != nil {
		return ferr
	}
	have, ferr := streams.Calls.Read(ctx, b, m)
	switch {
	case ferr != nil:
		return ferr
	case have.Approval != c.Approval:
		return err
	case streams.Parked.Holds(b, m, c): // the parked message is not the released call
		return schemas.Errorf(schemas.Unavailable, "the call %q is parked still: try again", schemas.Quotable(string(c.ID)))
	}
	return nil
}
