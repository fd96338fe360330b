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

// park puts a call on the log where it waits for a person, and asks. The id is taken first, so a repeat
// meets this call whatever the sandbox's mode has become; the record and the event come from the call
// and are made again by a repeat if a process dies in between.
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

// recall admits a call without a question if a person's answer to an earlier one is remembered for it. If that cannot be read, the question
// is asked: no call runs because the records are unavailable.
func (d Admitter) recall(ctx context.Context, call schemas.Call) schemas.Call {
	r, err := lifecycle.FindApprovalGrant(ctx, d.Bus, call)
	if err == nil {
		call.Approval, call.GrantedBy = "", r.Approval
	} else if !errors.Is(err, schemas.ErrNotFound) && d.Log != nil {
		d.Log.Warn("approval grants not read: a person is asked", "call", call.ID, "error", err)
	}
	return call
}

// parked answers the repeat of a call that needed an approval.
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

// ask writes approval.requested. As with call.accepted a failure is logged and not returned: the approval can still be listed, and the
// approval expirer asks.
func (d Admitter) ask(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := lifecycle.Ask(ctx, d.Bus, p, absent); err != nil && d.Log != nil {
		d.Log.Warn("approval.requested not published yet", "call", p.Value.Call.ID, "approval", p.Value.ID, "error", err)
	}
}

// Approvals takes the answers of people and does what follows from them. Its methods may be called
// from many goroutines.
//
// An answer is one compare and set of the record. What follows (the call for the workers, or its result) may be done by any process at any
// time and any number of times, see [Approvals.Finish].
type Approvals struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
}

// Decide answers an approval and returns it as it stands then. When it returns without an error the answer counts, and what follows from it
// happens, if need be by the approval expirer. Codes: not_found, conflict (it was answered already, or the time to answer is over; the
// approval says which), unavailable: it is unknown whether it was answered, read it.
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

// Expire ends an approval whose time to answer is over. One that is not due or was answered is left alone.
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

// Cancel ends a call that waits for an approval, and reports whether it did: false when it does not
// wait, and is to be cancelled as any other.
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

// finishNow is Finish for the process that has just written the answer. It does not stop with the client's connection, and a failure is
// only logged: the answer counts, and the approval expirer continues.
func (s Approvals) finishNow(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.finish(ctx, p, absent); err != nil && s.Log != nil {
		s.Log.Warn("approval decided, but its consequences are pending", "approval", p.Value.ID, "error", err)
	}
}

// Ask publishes the event of an approval that may not have been published: its process has died, or the log was unavailable. One that was
// answered is left alone. Doing it twice does no harm.
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

// Finish does what follows from an answer and was left undone by a process that died: an approved call
// goes to the workers, any other gets its result. Doing it twice does no harm.
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

// finish does what follows from an answer. Absent is when none of the events was there.
func (s Approvals) finish(ctx context.Context, p streams.BucketEntry[schemas.Approval], absent streams.Absence) error {
	reused, err := lifecycle.FinishDecision(ctx, s.Bus, p, absent)
	if reused && s.Log != nil {
		s.Log.Error("approved call cannot continue, its id has been reused since", "call", p.Value.Call.ID, "approval", p.Value.ID)
	}
	return err
}
