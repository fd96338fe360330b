package admission

import (
	"context"
	"errors"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// ApprovalList is the response with an account's approvals, the newest first.
type ApprovalList struct {
	Approvals []schemas.Approval `json:"approvals"`
	// More reports that there are older ones, or that the search ended early.
	More bool `json:"more"`
}

// Filter selects approvals. An empty field matches all.
type Filter struct {
	State        schemas.ApprovalState
	Conversation schemas.ConversationID
}

func (f Filter) wants(a schemas.Approval) bool {
	return (f.State == "" || a.State == f.State) && (f.Conversation == "" || a.Call.Conversation == f.Conversation)
}

// List lists approvals of the account, the newest first, at most limit. Code: unavailable.
func (s Approvals) List(ctx context.Context, a schemas.AccountID, f Filter, limit int) (ApprovalList, error) {
	list, more, err := streams.Newest(ctx, lifecycle.OpenApprovals(s.Bus), a, schemas.ApprovalKey(a, "*"), f.wants, limit)
	return ApprovalList{Approvals: list, More: more}, err
}

// Whole returns an approval, with the input that a large call's record omits, while that is still on the log. Codes: not_found,
// unavailable.
func (s Approvals) Whole(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) (schemas.Approval, error) {
	p, err := lifecycle.FindApproval(ctx, s.Bus, a, id)
	if err != nil || !p.Value.LeftOut() {
		return p.Value, err
	}
	call, err := s.Bus.Calls().FindWhole(ctx, a, p.Value.Call.ID)
	switch {
	case err == nil && call.Approval == p.Value.ID:
		p.Value.Call.Input = call.Input
	case err != nil && !errors.Is(err, schemas.ErrNotFound):
		return schemas.Approval{}, err
	}
	return p.Value, nil
}

// DecisionOf returns the decision for an answer; by is the API that it came by.
func DecisionOf(in schemas.ApprovalAnswer, by string) lifecycle.Decision {
	d := lifecycle.Decision{State: schemas.ApprovalDenied, By: by, Reason: in.Reason, Remember: in.Remember}
	if *in.Approved {
		d.State = schemas.ApprovalApproved
	}
	return d
}
