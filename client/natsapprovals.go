package client

import (
	"context"

	"github.com/sandjet/sandjet/schemas"
)

// Approvals lists the account's approvals, the newest first, as many as fit into one message. Inputs above
// 64 KiB are left out. Codes: invalid, unavailable.
func (n *NATS) Approvals(ctx context.Context, q ApprovalsQuery) ([]schemas.Approval, error) {
	answer, err := n.askApprovals(ctx, schemas.ApprovalOp{
		Op: schemas.ApprovalsList, State: q.State, Conversation: q.Conversation, Limit: q.Limit,
	})
	return answer.Approvals, err
}

// Approval shows what is asked and the answer; an input that does not fit into one message is left out, and [Client.Approval] shows it.
// Codes: not_found, also seven days after the answer; unavailable.
func (n *NATS) Approval(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	answer, err := n.askApprovals(ctx, schemas.ApprovalOp{Op: schemas.ApprovalShow, Approval: id})
	return answer.Approval, err
}

// Approve lets a call run. Codes: not_found, conflict (it was answered already, or too late), unavailable.
// After unavailable, or when ctx ends, it may have been answered: look at it.
func (n *NATS) Approve(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return n.decide(ctx, id, true, reason, "")
}

// ApproveAll is Approve, and lets later calls of the same agent, tool, workspace and sandbox on the same
// conversation run without a question, for a day. Codes: as [NATS.Approve].
func (n *NATS) ApproveAll(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return n.decide(ctx, id, true, reason, schemas.RememberConversation)
}

// Deny refuses a call: its result is then denied, with the reason for the model. Codes: as [NATS.Approve].
func (n *NATS) Deny(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return n.decide(ctx, id, false, reason, "")
}

func (n *NATS) decide(ctx context.Context, id schemas.ApprovalID, approved bool, reason string,
	remember schemas.Remember) (schemas.Approval, error) {
	answer, err := n.askApprovals(ctx, schemas.ApprovalOp{
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

func (n *NATS) askApprovals(ctx context.Context, op schemas.ApprovalOp) (approvalsAnswer, error) {
	var answer approvalsAnswer
	if err := n.ask(ctx, "sandjet.rpc.approvals."+string(n.account), op, &answer); err != nil {
		return approvalsAnswer{}, err
	}
	if answer.Error != nil {
		return approvalsAnswer{}, answer.Error
	}
	return answer, nil
}
