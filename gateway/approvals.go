package gateway

import (
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// MaxApprovalGrants is how many grants one answer lists.
const MaxApprovalGrants = 1000

func (g *Gateway) approvals() admission.Approvals {
	return admission.Approvals{Bus: g.Bus, Log: g.Log}
}

// getApprovals lists the account's approvals.
func (g *Gateway) getApprovals(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "state", "conversation", "limit")
	if err != nil {
		return err
	}
	want, err := approvalFilter(q)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", schemas.DefaultApprovalsPage, 1, schemas.MaxApprovalsPage)
	if err != nil {
		return err
	}
	list, err := g.approvals().List(r.Context(), a, want, int(limit))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// approvalFilter reads which approvals are meant.
func approvalFilter(q web.Query) (admission.Filter, error) {
	var state schemas.ApprovalState
	if s := strings.ToValidUTF8(q.Values.Get("state"), "\uFFFD"); s != "" {
		var err error
		if state, err = schemas.ParseApprovalState(s); err != nil {
			return admission.Filter{}, err
		}
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.Values.Get("conversation"), "\uFFFD"))
	if conv != "" {
		if err := conv.Validate(); err != nil {
			return admission.Filter{}, err
		}
	}
	return admission.Filter{State: state, Conversation: conv}, nil
}

// getApproval shows one approval, with the whole input that is asked about while that is on the log.
func (g *Gateway) getApproval(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	found, err := g.approvals().Whole(r.Context(), a, pathApproval(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, found)
	return nil
}

// postApprovalDecide takes an answer.
func (g *Gateway) postApprovalDecide(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	in, err := schemas.DecodeApprovalAnswer(body)
	if err != nil {
		return err
	}
	decided, err := g.approvals().Decide(r.Context(), a, pathApproval(r), admission.DecisionOf(in, admission.API))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, decided)
	return nil
}

// ApprovalGrantList is the answer about an account's approval grants, in no order.
type ApprovalGrantList struct {
	Grants []schemas.ApprovalGrant `json:"grants"`
}

// getApprovalGrants lists the answers that count for later calls.
func (g *Gateway) getApprovalGrants(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "conversation")
	if err != nil {
		return err
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.Values.Get("conversation"), "\uFFFD"))
	want := func(m schemas.ApprovalGrant) bool {
		return m.Revoked.IsZero() && g.Bus.Now().Before(m.Expires) && (conv == "" || m.Conversation == conv)
	}
	list, _, err := streams.Newest(r.Context(), lifecycle.OpenApprovalGrants(g.Bus), a, schemas.ApprovalGrantKey(a, "*"), want, MaxApprovalGrants)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, ApprovalGrantList{Grants: list})
	return nil
}

// deleteApprovalGrant revokes a grant: the next call asks again.
func (g *Gateway) deleteApprovalGrant(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := lifecycle.RevokeApprovalGrant(r.Context(), g.Bus, a, strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func pathApproval(r *http.Request) schemas.ApprovalID {
	return schemas.ApprovalID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}
