package gateway

import (
	"context"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// socketCalls is what sockets ask for, as [live.Calls] has it: the same steps as over HTTP, known by another way in.
type socketCalls struct{ g *Gateway }

// Send admits a call.
func (c socketCalls) Send(
	ctx context.Context, a schemas.AccountID, r schemas.Request, allow func(schemas.Call) error,
) (admission.Accepted, error) {
	admitter := admission.Admitter{
		Bus: c.g.Bus, Records: c.g.Records, Kind: admission.WebSocket, Log: c.g.Log, Serving: c.g.Serving, Allow: allow,
	}
	got, err := admitter.Admit(ctx, a, r)
	if err == nil {
		c.g.metrics.accepted(admission.WebSocket, got.Existing)
	}
	return got, err
}

// Find finds a call.
func (c socketCalls) Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	return c.g.lookUp(ctx, a, id)
}

// Cancel asks for the end of a call.
func (c socketCalls) Cancel(ctx context.Context, call schemas.Call, reason string) error {
	return c.g.cancel(ctx, call, admission.WebSocket, reason)
}

// Approval finds a question.
func (c socketCalls) Approval(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) (schemas.Approval, error) {
	p, err := lifecycle.FindApproval(ctx, c.g.Bus, a, id)
	return p.Value, err
}

// Decide answers it.
func (c socketCalls) Decide(
	ctx context.Context, a schemas.AccountID, id schemas.ApprovalID, answer schemas.ApprovalAnswer,
) (schemas.Approval, error) {
	return c.g.approvals.Decide(ctx, a, id, admission.DecisionOf(answer, admission.WebSocket))
}
