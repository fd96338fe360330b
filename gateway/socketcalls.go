package gateway

import (
	"context"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// socketCalls implements [live.Calls] with the same steps as over HTTP. The calls are recorded as having come by WebSocket.
type socketCalls struct {
	bus       *streams.Bus
	calls     *calls.Calls
	approvals approvals.Approvals
}

// Send implements [live.Calls].
func (c socketCalls) Send(
	ctx context.Context, a schemas.AccountID, r schemas.Request, allow func(schemas.Call) error,
) (admission.Accepted, error) {
	with := c.calls.Admitter(admission.WebSocket)
	with.Allow = allow
	return c.calls.Admit(ctx, with, a, r)
}

// Find implements [live.Calls].
func (c socketCalls) Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	return c.calls.Find(ctx, a, id)
}

// Cancel implements [live.Calls].
func (c socketCalls) Cancel(ctx context.Context, call schemas.Call, reason string) error {
	return c.calls.Cancel(ctx, call, admission.WebSocket, reason)
}

// Approval implements [live.Calls].
func (c socketCalls) Approval(ctx context.Context, a schemas.AccountID, id schemas.ApprovalID) (schemas.Approval, error) {
	p, err := lifecycle.FindApproval(ctx, c.bus, a, id)
	return p.Value, err
}

// Decide implements [live.Calls].
func (c socketCalls) Decide(
	ctx context.Context, a schemas.AccountID, id schemas.ApprovalID, answer schemas.ApprovalAnswer,
) (schemas.Approval, error) {
	return c.approvals.Decide(ctx, a, id, admission.DecisionOf(answer, admission.WebSocket))
}

// instanceCalls implements [instances.Calls].
type instanceCalls struct{ *calls.Calls }

// Cancel implements [instances.Calls].
func (c instanceCalls) Cancel(ctx context.Context, call schemas.Call, reason string) error {
	return c.Calls.Cancel(ctx, call, admission.API, reason)
}
