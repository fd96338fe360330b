package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandjet/sandjet/schemas"
)

// ApprovalsQuery selects approvals. The zero value selects the account's newest.
type ApprovalsQuery struct {
	State        schemas.ApprovalState  // empty: all
	Conversation schemas.ConversationID // empty: of all
	Limit        int                    // at most 100; 0: 50
}

// Approvals reads and decides approvals: the questions about calls that wait for a person.
type Approvals struct{ transport }

// Approvals returns access to the account's approvals. It sends no request.
func (c *Client) Approvals() Approvals { return Approvals{c.transport()} }

// List returns the account's approvals, the newest first. Inputs larger than 64 KiB are omitted. Code: invalid.
func (c Approvals) List(ctx context.Context, q ApprovalsQuery) ([]schemas.Approval, error) {
	values := url.Values{}
	if q.State != "" {
		values.Set("state", string(q.State))
	}
	if q.Conversation != "" {
		values.Set("conversation", string(q.Conversation))
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	var out struct {
		Approvals []schemas.Approval `json:"approvals"`
	}
	err := c.ask(ctx, http.MethodGet, withQuery("/v1/approvals", values), nil, &out)
	return out.Approvals, err
}

// Get returns an approval with the whole input and, if there is one, the decision. Code: not_found, also seven days after the decision.
func (c Approvals) Get(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	var a schemas.Approval
	err := c.ask(ctx, http.MethodGet, approvalPath(id), nil, &a)
	return a, err
}

// Approve approves a call. Codes: not_found, conflict (it was decided already, or its time is over), unavailable (it may have been
// decided: read it).
func (c Approvals) Approve(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, "")
}

// ApproveAll is Approve, and for a day also approves later calls of the same agent, tool, workspace and sandbox on the same conversation.
// Codes: as [Approvals.Approve].
func (c Approvals) ApproveAll(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, schemas.RememberConversation)
}

// Grants returns the approvals that are remembered for later calls: all, or those of a conversation.
func (c Approvals) Grants(ctx context.Context, conv schemas.ConversationID) ([]schemas.ApprovalGrant, error) {
	values := url.Values{}
	if conv != "" {
		values.Set("conversation", string(conv))
	}
	var out struct {
		Grants []schemas.ApprovalGrant `json:"grants"`
	}
	err := c.ask(ctx, http.MethodGet, withQuery("/v1/approvals/grants", values), nil, &out)
	return out.Grants, err
}

// RevokeGrant revokes a grant. Code: not_found.
func (c Approvals) RevokeGrant(ctx context.Context, id string) error {
	return c.ask(ctx, http.MethodDelete, "/v1/approvals/grants/"+url.PathEscape(id), nil, nil)
}

// Deny denies a call. Its result then has the status denied, and the reason for the model. Codes: as [Approvals.Approve].
func (c Approvals) Deny(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, false, reason, "")
}

func (c Approvals) decide(ctx context.Context, id schemas.ApprovalID, approved bool, reason string,
	remember schemas.Remember) (schemas.Approval, error) {
	var a schemas.Approval
	err := c.postOnce(ctx, approvalPath(id)+"/decide", schemas.ApprovalAnswer{Approved: &approved, Reason: reason, Remember: remember}, &a)
	return a, err
}

func approvalPath(id schemas.ApprovalID) string { return "/v1/approvals/" + url.PathEscape(string(id)) }
