package client

import (
	"context"

	"github.com/sandjet/sandjet/schemas"
)

// NATSApprovals are the questions of calls that wait for a person, over NATS.
type NATSApprovals struct{ nats *NATS }

// Approvals gives access to the account's approvals. It sends nothing.
func (n *NATS) Approvals() NATSApprovals { return NATSApprovals{n} }

// List lists the account's approvals, the newest first, as many as fit into one message. Inputs above
// 64 KiB are left out. Codes: invalid, unavailable.
func (c NATSApprovals) List(ctx context.Context, q ApprovalsQuery) ([]schemas.Approval, error) {
	answer, err := c.ask(ctx, schemas.ApprovalOp{
		Op: schemas.ApprovalsList, State: q.State, Conversation: q.Conversation, Limit: q.Limit,
	})
	return answer.Approvals, err
}

// Get shows what is asked and the answer; an input that does not fit into one message is left out, and [Approvals.Get] shows it.
// Codes: not_found, also seven days after the answer; unavailable.
func (c NATSApprovals) Get(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	answer, err := c.ask(ctx, schemas.ApprovalOp{Op: schemas.ApprovalShow, Approval: id})
	return answer.Approval, err
}

// Approve lets a call run. Codes: not_found, conflict (it was answered already, or too late), unavailable.
// After unavailable, or when ctx ends, it may have been answered: look at it.
func (c NATSApprovals) Approve(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, "")
}

// ApproveAll is Approve, and lets later calls of the same agent, tool, workspace and sandbox on the same
// conversation run without a question, for a day. Codes: as [NATSApprovals.Approve].
func (c NATSApprovals) ApproveAll(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, schemas.RememberConversation)
}

// Deny refuses a call: its result is then denied, with the reason for the model. Codes: as [NATSApprovals.Approve].
func (c NATSApprovals) Deny(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, false, reason, "")
}

func (c NATSApprovals) decide(ctx context.Context, id schemas.ApprovalID, approved bool, reason string,
	remember schemas.Remember) (schemas.Approval, error) {
	answer, err := c.ask(ctx, schemas.ApprovalOp{
		Op: schemas.ApprovalApprove, Approval: id, Approved: &approved, Reason: reason, Remember: remember,
	})
	return answer.Approval, err
}

// approvalsAnswer is the answer of the NATS API: one of them.
type approvalsAnswer struct {
	Approval  schemas.Approval   `json:"approval"`
	Approvals []schemas.Approval `json:"approvals"`
	Error     *schemas.Error     `json:"error"`
}

func (c NATSApprovals) ask(ctx context.Context, op schemas.ApprovalOp) (approvalsAnswer, error) {
	var answer approvalsAnswer
	if err := c.nats.ask(ctx, "sandjet.rpc.approvals."+string(c.nats.account), op, &answer); err != nil {
		return approvalsAnswer{}, err
	}
	if answer.Error != nil {
		return approvalsAnswer{}, answer.Error
	}
	return answer, nil
}
