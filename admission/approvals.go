package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// park stores a call where it waits for an approval, and requests that. The id is taken first, so a repeated request finds this call even
// if the sandbox's mode has changed. The record and the event are derived from the call; if the process dies before they are written, a
// repetition writes them.
func (d Admitter) park(ctx context.Context, a schemas.AccountID, r schemas.Request, call schemas.Call) (Accepted, error) {
	absent := d.Bus.Absent()
	// A client that goes away must not leave the call without its question, also while the log has the call and has not confirmed it yet.
	accepting, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := lifecycle.Accept(accepting, d.Bus, call, d.Since)
	if errors.Is(err, schemas.ErrConflict) {
		return d.existing(ctx, a, r)
	}
	if err != nil {
		return Accepted{}, err
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	p, err := lifecycle.EnsureApproval(recording, d.Bus, call)
	if err != nil {
		return Accepted{}, err
	}
	d.ask(ctx, p, absent)
	return Accepted{Call: call, Awaiting: true}, nil
}

// recall looks for a grant: an earlier answer that is remembered for the call. If there is one, the call needs no approval. If the grants
// cannot be read, a person is asked: no call runs because records are unavailable.
func (d Admitter) recall(ctx context.Context, call schemas.Call) schemas.Call {
	r, err := lifecycle.FindApprovalGrant(ctx, d.Bus, call)
	if err == nil {
		call.Approval, call.GrantedBy = "", r.Approval
	} else if !errors.Is(err, schemas.ErrNotFound) && d.Log != nil {
		d.Log.Warn("approval grants not read: a person is asked", "call", call.ID, "error", err)
	}
	return call
}

// parked handles the repetition of a request whose call needs an approval.
func (d Admitter) parked(ctx context.Context, call schemas.Call) (Accepted, error) {
	p, err := lifecycle.EnsureApproval(ctx, d.Bus, call)
	if err != nil {
		return Accepted{}, err
	}
	got := Accepted{Call: call, Existing: true, Awaiting: p.Value.State == schemas.ApprovalPending}
	if got.Awaiting {
		d.ask(ctx, p, d.Bus.AbsentAt(p.Value.Requested))
	}
	return got, nil
}

// ask publishes approval.requested. As with call.accepted, a failure is logged and not returned: the approval can still be listed, and the
// approval expirer publishes the event later.
func (d Admitter) ask(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := lifecycle.Ask(ctx, d.Bus, p, absent); err != nil && d.Log != nil {
		d.Log.Warn("approval.requested not published yet", "call", p.Value.Call.ID, "approval", p.Value.ID, "error", err)
	}
}

// Approvals decides approvals and carries out their consequences. It is safe for concurrent use.
//
// A decision is one compare-and-set of the record. Its consequence (the call is released to the workers, or gets its result) may be
// carried out by any process, at any time and any number of times; see [Approvals.Finish].
type Approvals struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
}

// Decide decides an approval and returns it as it then is. When it returns without an error, the decision is stored, and its consequences
// follow, if necessary by the approval expirer. Codes: not_found, conflict (it was decided already, or its time is over; the returned
// approval says which), unavailable: it is unknown whether it was decided; read it.
func (s Approvals) Decide(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID, d lifecycle.Decision) (schemas.Approval, error) {
	p, absent, err := lifecycle.Decide(ctx, s.Bus, a, id, d)
	if err != nil {
		return p.Value, err
	}
	s.finishNow(ctx, p, absent)
	if p.Value.State != d.State {
		return p.Value, schemas.Errorf(schemas.Conflict, "the approval is expired: its time to answer ended at %s",
			p.Value.Expires.UTC().Format(time.RFC3339))
	}
	return p.Value, nil
}

// Expire expires an approval whose time is over. It does nothing if the approval is not due or was decided.
func (s Approvals) Expire(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) error {
	p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
	if err != nil {
		return err
	}
	if p.Value.State != schemas.ApprovalPending || s.Bus.Now().Before(p.Value.Expires) {
		return nil
	}
	_, err = s.Decide(ctx, a, id, lifecycle.Decision{State: schemas.ApprovalExpired, By: lifecycle.ByDeadline})
	if errors.Is(err, schemas.ErrConflict) {
		return nil
	}
	return err
}

// Cancel cancels a call that waits for an approval, and reports whether it did. If the call does not wait for one, it returns false, and
// the call must be cancelled as any other. Code: conflict (the call has ended already).
func (s Approvals) Cancel(ctx context.Context, c schemas.Call, by, reason string) (bool, error) {
	if c.Approval == "" {
		return false, nil
	}
	if _, err := lifecycle.EnsureApproval(ctx, s.Bus, c); err != nil {
		return false, err
	}
	a, err := s.Decide(ctx, c.Account, c.Approval, lifecycle.Decision{State: schemas.ApprovalCancelled, By: by, Reason: reason})
	if errors.Is(err, schemas.ErrConflict) {
		if a.State == schemas.ApprovalApproved {
			return false, nil
		}
		return false, schemas.Errorf(schemas.Conflict, "the call has ended already: its approval is %s", a.State)
	}
	return err == nil, err
}

// finishNow is Finish for the process that has just written the decision. It does not stop when the client disconnects, and a failure is
// only logged: the decision is stored, and the approval expirer finishes it.
func (s Approvals) finishNow(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.finish(ctx, p, absent); err != nil && s.Log != nil {
		s.Log.Warn("approval decided, but its consequences are pending", "approval", p.Value.ID, "error", err)
	}
}

// Ask publishes approval.requested for an open approval, in case the process that made it died or the log was unavailable. It does nothing
// if the approval was decided. It is idempotent.
func (s Approvals) Ask(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) error {
	p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
	if err != nil {
		return err
	}
	if p.Value.State != schemas.ApprovalPending {
		return nil
	}
	return lifecycle.Ask(ctx, s.Bus, p, s.Bus.AbsentAt(p.Value.Requested))
}

// Finish carries out the consequences of a decision that a process may have left undone: an approved call is released to the workers, any
// other gets its result. It is idempotent.
func (s Approvals) Finish(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) error {
	p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
	if err != nil {
		return err
	}
	if p.Value.State == schemas.ApprovalPending || p.Value.Done {
		return nil
	}
	return s.finish(ctx, p, s.Bus.AbsentAt(p.Value.Decided))
}

// finish carries out the consequences of a decision. Absent is a time at which none of its events was stored.
func (s Approvals) finish(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) error {
	reused, err := lifecycle.FinishDecision(ctx, s.Bus, p, absent)
	if reused && s.Log != nil {
		s.Log.Error("approved call cannot continue, its id has been reused since", "call", p.Value.Call.ID, "approval", p.Value.ID)
	}
	return err
}
