package client

import (
	"context"

	"github.com/sandjet/sandjet/schemas"
)

// NATSApprovals reads and decides approvals over NATS.
type NATSApprovals struct{ nats *NATS }

// Approvals returns access to the account's approvals. It sends no request.
func (n *NATS) Approvals() NATSApprovals { return NATSApprovals{n} }

// List returns the account's approvals, the newest first, as many as fit into one message. Inputs larger than 64 KiB are omitted. Codes:
// invalid, unavailable.
func (c NATSApprovals) List(ctx context.Context, q ApprovalsQuery) ([]schemas.Approval, error) {
	answer, err := c.ask(ctx, schemas.ApprovalOp{
		Op: schemas.ApprovalsList, State: q.State, Conversation: q.Conversation, Limit: q.Limit,
	})
	return answer.Approvals, err
}

// Get returns an approval and, if there is one, the decision. An input that does not fit into one message is omitted; use [Approvals.Get]
// for it. Codes: not_found, also seven days after the decision; unavailable.
func (c NATSApprovals) Get(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	answer, err := c.ask(ctx, schemas.ApprovalOp{Op: schemas.ApprovalShow, Approval: id})
	return answer.Approval, err
}

// Approve approves a call. Codes: not_found, conflict (it was decided already, or its time is over), unavailable. After unavailable, or if
// ctx ends, it may have been decided: read it.
func (c NATSApprovals) Approve(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, "")
}

// ApproveAll is Approve, and for a day also approves later calls of the same agent, tool, workspace and sandbox on the same conversation.
// Codes: as [NATSApprovals.Approve].
func (c NATSApprovals) ApproveAll(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, schemas.RememberConversation)
}

// Deny denies a call. Its result then has the status denied, and the reason for the model. Codes: as [NATSApprovals.Approve].
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

// approvalsAnswer is any reply of the NATS API about approvals; one of its fields is set.
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
