package admission

import (
	"context"
	"errors"
	"fmt"
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
	err := lifecycle.ParkCall(ctx, d.Bus, call)
	if errors.Is(err, schemas.ErrConflict) {
		if err = lifecycle.RenewCall(ctx, d.Bus, call, d.Since); errors.Is(err, schemas.ErrConflict) {
			return d.existing(ctx, a, r)
		}
	}
	if err != nil {
		return Accepted{}, err
	}
	p, err := lifecycle.EnsureApproval(ctx, d.Bus, call)
	if err != nil {
		return Accepted{}, err
	}
	d.ask(ctx, p, absent)
	return Accepted{Call: call, Awaiting: true}, nil
}

// recall lets a call go on without a question if a person's answer to an earlier one is remembered for it.
// What cannot be looked up is asked: nothing runs because something is away.
func (d Admitter) recall(ctx context.Context, call schemas.Call) schemas.Call {
	r, err := lifecycle.RememberedFor(ctx, d.Bus, call)
	if err == nil {
		call.Approval, call.Remembered = "", r.Approval
	} else if !errors.Is(err, schemas.ErrNotFound) && d.Log != nil {
		d.Log.Warn("remembered answers cannot be looked up: a person is asked", "call", call.ID, "error", err)
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

// ask writes approval.requested. As with call.accepted a failure is logged and not returned: the approval
// can be listed all the same, and a sweeper asks.
func (d Admitter) ask(ctx context.Context, p streams.Pair[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := (Approvals{Bus: d.Bus, Log: d.Log}).ask(ctx, p, absent); err != nil && d.Log != nil {
		d.Log.Warn("a call waits for an approval but its conversation was not told yet", "call", p.Value.Call.ID, "approval", p.Value.ID, "error", err)
	}
}

// request is the event that asks for an approval.
func request(a schemas.Approval) schemas.Event {
	return schemas.NewEvent(a.Call, schemas.ApprovalRequested, schemas.ApprovalRequestedID(a.Account, a.ID), a.Requested, schemas.ApprovalRequestedData{
		ID: a.ID, Call: a.Call.ID, Tool: a.Call.Tool, Input: a.Call.Input, InputSize: a.InputSize,
		Workspace: a.Call.Workspace, Sandbox: a.Call.Sandbox, Expires: a.Expires,
	})
}

// Decision is an answer to an approval.
type Decision struct {
	State  schemas.ApprovalState // approved, denied or cancelled
	By     string                // see [schemas.Approval]
	Reason string
	// Remember lets a yes count for later calls too.
	Remember schemas.Remember
}

// byDeadline is who decided when nobody answered.
const byDeadline = "deadline"

// judge is the whole rule of an answer: the first counts, and none counts after the time to answer.
// The error, of code conflict, comes with the approval as it stands.
func judge(a schemas.Approval, d Decision, now time.Time) (schemas.Approval, error) {
	if a.State != schemas.ApprovalPending {
		return a, schemas.Errorf(schemas.Conflict, "", "the approval is %s already, since %s", a.State, a.Decided.UTC().Format(time.RFC3339))
	}
	if !now.Before(a.Expires) {
		d = Decision{State: schemas.ApprovalExpired, By: byDeadline}
	}
	a.State, a.DecidedBy, a.Reason, a.Decided = d.State, d.By, d.Reason, now.UTC()
	if a.State == schemas.ApprovalApproved {
		a.Remember = d.Remember
	}
	return a, nil
}

// Approvals takes the answers of people and does what follows from them. Its methods may be called
// from many goroutines.
//
// An answer is one write of the record on the condition that nobody was faster. What follows (the call
// for the workers, or its result) may be done by any process at any time and any number of times, see
// [Approvals.Finish].
type Approvals struct {
	Bus *streams.Bus
	Log *slog.Logger // nil: silent
}

// Decide answers an approval and returns it as it stands then. When it returns without an error the
// answer counts, and what follows from it happens, if need be by a sweeper. Codes: not_found, conflict
// (it was answered already, or the time to answer is over; the approval tells), unavailable: nobody knows
// whether it was answered, look at it.
func (s Approvals) Decide(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID, d Decision) (schemas.Approval, error) {
	for {
		p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
		if err != nil {
			return schemas.Approval{}, err
		}
		decided, err := judge(p.Value, d, s.Bus.Now())
		if err != nil {
			return decided, err
		}
		absent := s.Bus.Absent() // nothing that follows from the answer is there before it
		p.Revision, err = lifecycle.OpenApprovals(s.Bus).Update(ctx, p.Key, decided, p.Revision)
		if errors.Is(err, schemas.ErrConflict) {
			continue // somebody was faster: what did they say?
		}
		if err != nil {
			return schemas.Approval{}, err
		}
		p.Value = decided
		s.finishNow(ctx, p, absent)
		if decided.State != d.State {
			return decided, schemas.Errorf(schemas.Conflict, "", "the approval is expired: its time to answer ended at %s", decided.Expires.UTC().Format(time.RFC3339))
		}
		return decided, nil
	}
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
	_, err = s.Decide(ctx, a, id, Decision{State: schemas.ApprovalExpired, By: byDeadline})
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
	a, err := s.Decide(ctx, c.Account, c.Approval, Decision{State: schemas.ApprovalCancelled, By: by, Reason: reason})
	if errors.Is(err, schemas.ErrConflict) {
		if a.State == schemas.ApprovalApproved {
			return false, nil
		}
		return false, schemas.Errorf(schemas.Conflict, "", "the call has ended already: its approval is %s", a.State)
	}
	return err == nil, err
}

// finishNow is Finish for who has just written the answer. It does not stop with the client's
// connection, and a failure is only logged: the answer counts, and a sweeper goes on.
func (s Approvals) finishNow(ctx context.Context, p streams.Pair[schemas.Approval], absent streams.Absence) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.finish(ctx, p, absent); err != nil && s.Log != nil {
		s.Log.Warn("an approval was answered, and what follows is not done yet", "approval", p.Value.ID, "error", err)
	}
}

// Ask tells the conversation of an approval that nobody has told, or may not have: its process has died, or the log
// was away. One that was answered is left alone. Doing it twice does no harm.
func (s Approvals) Ask(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) error {
	p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
	if err != nil {
		return err
	}
	if p.Value.State != schemas.ApprovalPending {
		return nil
	}
	return s.ask(ctx, p, s.Bus.AbsentAt(p.Value.Requested))
}

// ask tells the conversation what is asked, and notes that.
func (s Approvals) ask(ctx context.Context, p streams.Pair[schemas.Approval], absent streams.Absence) error {
	if p.Value.Asked {
		return nil
	}
	if _, err := streams.StoreOnce(ctx, s.Bus, request(p.Value), absent); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	p.Value.Asked = true
	_, err := lifecycle.OpenApprovals(s.Bus).Update(ctx, p.Key, p.Value, p.Revision)
	if errors.Is(err, schemas.ErrConflict) {
		return nil // somebody has noted it, or answered: who ends that asks first where it is not noted
	}
	return err
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

// finish tells the conversation, then lets the call go on or ends it, and notes at last that this is done.
// Absent is when none of the events was there.
func (s Approvals) finish(ctx context.Context, p streams.Pair[schemas.Approval], absent streams.Absence) error {
	a := p.Value
	if !a.Asked { // the question comes before its answer
		if _, err := streams.StoreOnce(ctx, s.Bus, request(a), s.Bus.AbsentAt(a.Requested)); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		a.Asked = true
	}
	told := schemas.NewEvent(a.Call, schemas.ApprovalDecided, schemas.ApprovalDecidedID(a.Account, a.ID), a.Decided, schemas.ApprovalDecidedData{
		ID: a.ID, Call: a.Call.ID, State: a.State, DecidedBy: a.DecidedBy, Reason: a.Reason, Remember: a.Remember,
	})
	if _, err := streams.StoreOnce(ctx, s.Bus, told, absent); err != nil {
		return fmt.Errorf("tell the answer: %w", err)
	}
	if a.Remember != "" { // before the call goes on: the next one may follow from its result
		if err := lifecycle.RememberAnswer(ctx, s.Bus, schemas.RememberedOf(a)); err != nil {
			return fmt.Errorf("remember the answer: %w", err)
		}
	}
	var err error
	if a.State == schemas.ApprovalApproved {
		err = s.release(ctx, a, absent)
	} else {
		err = lifecycle.FinishParked(ctx, s.Bus, a.Call, lifecycle.RefusedResult(a), absent)
	}
	if err != nil {
		return err
	}
	a.Done = true
	_, err = lifecycle.OpenApprovals(s.Bus).UpdateFor(ctx, p.Key, a, p.Revision, streams.SettledKept)
	if errors.Is(err, schemas.ErrConflict) {
		return nil // another process did the same
	}
	return err
}

// release hands an approved call to the workers. Its time begins with the answer: who waited for a
// person has not used it up.
func (s Approvals) release(ctx context.Context, a schemas.Approval, absent streams.Absence) error {
	c := a.Call
	if a.LeftOut() {
		whole, err := streams.FindCall(ctx, s.Bus, a.Account, c.ID)
		if errors.Is(err, schemas.ErrNotFound) || err == nil && whole.Approval != a.ID {
			return lifecycle.FinishParked(ctx, s.Bus, c, lifecycle.InputLostResult(c), absent)
		}
		if err != nil {
			return fmt.Errorf("find the call: %w", err)
		}
		c.Input = whole.Input
	}
	c.Accepted, c.Deadline = a.Decided, a.Decided.Add(c.Deadline.Sub(c.Accepted))
	err := lifecycle.ReleaseCall(ctx, s.Bus, c)
	if errors.Is(err, schemas.ErrConflict) { // its id is another call's: a result would be taken for that one's
		if s.Log != nil {
			s.Log.Error("an approved call cannot go on: its id was used again since", "call", c.ID, "approval", a.ID)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("hand the call on: %w", err)
	}
	if c.Job != "" {
		if _, err := lifecycle.EnsureJob(ctx, s.Bus, c); err != nil {
			return fmt.Errorf("make the job's record: %w", err)
		}
	}
	if _, err := streams.StoreOnce(ctx, s.Bus, schemas.AcceptedEvent(c), absent); err != nil {
		return fmt.Errorf("tell that the call is accepted: %w", err)
	}
	return nil
}
