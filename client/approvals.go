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

// Approvals are the questions of calls that wait for a person, and the answers.
type Approvals struct{ transport }

// Approvals gives access to the account's approvals. It sends nothing.
func (c *Client) Approvals() Approvals { return Approvals{c.transport()} }

// List lists the account's approvals, the newest first. Inputs above 64 KiB are left out. Codes:
// invalid.
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

// Get shows what is asked, with the whole input, and the answer. Codes: not_found, also seven days after the answer.
func (c Approvals) Get(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	var a schemas.Approval
	err := c.ask(ctx, http.MethodGet, approvalPath(id), nil, &a)
	return a, err
}

// Approve lets a call run. Codes: not_found, conflict (it was answered already, or too late),
// unavailable (it may have been answered: look at it).
func (c Approvals) Approve(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, "")
}

// ApproveAll is Approve, and lets later calls of the same agent, tool, workspace and sandbox on the same
// conversation run without a question, for a day. Codes: as [Approvals.Approve].
func (c Approvals) ApproveAll(ctx context.Context, id schemas.ApprovalID, reason string) (schemas.Approval, error) {
	return c.decide(ctx, id, true, reason, schemas.RememberConversation)
}

// Grants lists the answers that count for later calls: all, or those of a conversation.
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

// RevokeGrant lets a remembered answer not count any more. Code: not_found.
func (c Approvals) RevokeGrant(ctx context.Context, id string) error {
	return c.ask(ctx, http.MethodDelete, "/v1/approvals/grants/"+url.PathEscape(id), nil, nil)
}

// Deny refuses a call: its result is then denied, with the reason for the model. Codes: as [Approvals.Approve].
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
