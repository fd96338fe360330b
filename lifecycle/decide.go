package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// requested returns the event approval.requested.
func requested(a schemas.Approval) schemas.Event {
	return schemas.NewEvent(a.Call, schemas.ApprovalRequested, schemas.ApprovalRequestedID(a.Account, a.ID), a.Requested,
		schemas.ApprovalRequestedData{
			ID: a.ID, Call: a.Call.ID, Tool: a.Call.Tool, Input: a.Call.Input, InputSize: a.InputSize,
			Workspace: a.Call.Workspace, Sandbox: a.Call.Sandbox, Expires: a.Expires,
		})
}

// Decision is the decision of an approval.
type Decision struct {
	State  schemas.ApprovalState // approved, denied or cancelled
	By     string                // see [schemas.Approval]
	Reason string
	// Remember lets a yes count for later calls too.
	Remember schemas.Remember
}

// ByDeadline is the decider of an approval that was not answered in time.
const ByDeadline = "deadline"

// ByChat is the decider of approvals that people decide in chats. The reason names the person, see [Decision].
const ByChat = "channel"

// Judge applies a decision to an approval: the first decision counts, and after the approval's time it expires. It is pure. The error has
// the code conflict; the approval is then returned unchanged.
func Judge(a schemas.Approval, d Decision, now time.Time) (schemas.Approval, error) {
	if a.State != schemas.ApprovalPending {
		return a, schemas.Errorf(schemas.Conflict, "the approval is %s already, since %s", a.State, a.Decided.UTC().Format(time.RFC3339))
	}
	if !now.Before(a.Expires) {
		d = Decision{State: schemas.ApprovalExpired, By: ByDeadline}
	}
	a.State, a.DecidedBy, a.Decided = d.State, d.By, now.UTC()
	a.Reason = schemas.CutText(d.Reason, schemas.MaxApprovalReason, len(`\u0001`)*schemas.MaxApprovalReason)
	if a.State == schemas.ApprovalApproved {
		a.Remember = d.Remember
	}
	return a, nil
}

// Decide writes the decision of an approval by compare-and-set. It returns the record, and a time at which none of the decision's events
// was stored. The caller must carry out the consequences with [FinishDecision]. Codes: not_found, conflict (it was decided already; the
// record shows how), unavailable: it is unknown whether it was decided; read it. A decision after the approval's time makes it expired.
func Decide(ctx context.Context, b *streams.Bus, a schemas.AccountID, id schemas.ApprovalID,
	d Decision) (streams.BucketEntry[schemas.Approval], streams.Absence, error) {
	var contest streams.Contest
	for {
		p, err := FindApproval(ctx, b, a, id)
		if err != nil {
			return streams.BucketEntry[schemas.Approval]{}, streams.Absence{}, err
		}
		if p.Value, err = Judge(p.Value, d, b.Now()); err != nil {
			return p, streams.Absence{}, err
		}
		absent := b.Absent() // nothing that follows from the answer is there before it
		p.Revision, err = OpenApprovals(b).Update(ctx, p.Key, p.Value, p.Revision)
		switch {
		case errors.Is(err, schemas.ErrConflict): // another process was faster: what did it say?
			if err := contest.Again(ctx); err != nil {
				return streams.BucketEntry[schemas.Approval]{}, streams.Absence{}, err
			}
		case err != nil:
			return streams.BucketEntry[schemas.Approval]{}, streams.Absence{}, err
		default:
			return p, absent, nil
		}
	}
}

// Ask publishes approval.requested, once, posts the question in the chat, and records that. Absent is a time at which the event was not
// stored.
func Ask(ctx context.Context, b *streams.Bus, p streams.BucketEntry[schemas.Approval], absent streams.Absence) error {
	if p.Value.Asked {
		return nil
	}
	if _, err := streams.StoreOnce(ctx, b, requested(p.Value), absent.Cautiously()); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := askInChat(ctx, b, p.Value); err != nil {
		return err
	}
	p.Value.Asked = true
	_, err := OpenApprovals(b).Update(ctx, p.Key, p.Value, p.Revision)
	if errors.Is(err, schemas.ErrConflict) {
		return nil // another process has recorded it, or it was answered: the process that finishes that asks first if it is not recorded
	}
	return err
}

// FinishDecision carries out a decision: it publishes it, then releases the call to the workers or ends it, and finally records that this
// is done. Absent is a time at which none of its events was stored. Any process may call it, any number of times. Reused reports that an
// approved call cannot run because its id now belongs to another call.
func FinishDecision(ctx context.Context, b *streams.Bus, p streams.BucketEntry[schemas.Approval],
	absent streams.Absence) (reused bool, err error) {
	a := p.Value
	if !a.Asked { // the question comes before its answer
		if _, err := streams.StoreOnce(ctx, b, requested(a), b.AbsentAt(a.Requested).Cautiously()); err != nil {
			return false, fmt.Errorf("ask: %w", err)
		}
		a.Asked = true
	}
	decided := schemas.NewEvent(a.Call, schemas.ApprovalDecided, schemas.ApprovalDecidedID(a.Account, a.ID),
		a.Decided, schemas.ApprovalDecidedData{
			ID: a.ID, Call: a.Call.ID, State: a.State, DecidedBy: a.DecidedBy, Reason: a.Reason, Remember: a.Remember,
		})
	if _, err := streams.StoreOnce(ctx, b, decided, absent.Cautiously()); err != nil {
		return false, fmt.Errorf("publish the answer: %w", err)
	}
	if err := answerInChat(ctx, b, a, decided); err != nil {
		return false, err
	}
	if a.Remember != "" { // before the call is released: the next one may follow from its result
		if err := StoreApprovalGrant(ctx, b, schemas.ApprovalGrantOf(a)); err != nil {
			return false, fmt.Errorf("remember the answer: %w", err)
		}
	}
	if a.State == schemas.ApprovalApproved {
		reused, err = release(ctx, b, a, absent)
	} else {
		err = FinishParked(ctx, b, a.Call, RefusedResult(a), absent)
	}
	if err != nil {
		return reused, err
	}
	a.Done = true
	_, err = OpenApprovals(b).UpdateFor(ctx, p.Key, a, p.Revision, streams.SettledKept)
	if errors.Is(err, schemas.ErrConflict) {
		return reused, nil // another process did the same
	}
	return reused, err
}

// release releases an approved call to the workers. Its time limit begins with the decision, so waiting for a person does not count.
// Reused reports that the id now belongs to another call.
func release(ctx context.Context, b *streams.Bus, a schemas.Approval, absent streams.Absence) (reused bool, err error) {
	c := a.Call
	if a.LeftOut() {
		whole, err := b.Calls().FindWhole(ctx, a.Account, c.ID)
		if errors.Is(err, schemas.ErrNotFound) || err == nil && whole.Approval != a.ID {
			return false, FinishParked(ctx, b, c, InputLostResult(c), absent)
		}
		if err != nil {
			return false, fmt.Errorf("find the call: %w", err)
		}
		c.Input = whole.Input
	}
	c.Accepted, c.Deadline = a.Decided, a.Decided.Add(c.Deadline.Sub(c.Accepted))
	err = ReleaseCall(ctx, b, c)
	if errors.Is(err, schemas.ErrConflict) { // its id is another call's: a result would be taken for that one's
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("hand the call on: %w", err)
	}
	if c.Job != "" {
		if _, err := EnsureJob(ctx, b, c); err != nil {
			return false, fmt.Errorf("make the job's record: %w", err)
		}
	}
	if _, err := streams.StoreOnce(ctx, b, schemas.AcceptedEvent(c), absent.Cautiously()); err != nil {
		return false, fmt.Errorf("publish that the call is accepted: %w", err)
	}
	return false, nil
}
