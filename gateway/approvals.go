package gateway

import (
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// MaxRemembered is how many remembered answers one answer lists.
const MaxRemembered = 1000

func (g *Gateway) approvals() admission.Approvals {
	return admission.Approvals{Bus: g.Bus, Log: g.Log}
}

// getApprovals lists the account's approvals.
func (g *Gateway) getApprovals(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := parseQuery(r.URL.RawQuery, "state", "conversation", "limit")
	if err != nil {
		return err
	}
	want, err := q.approvals()
	if err != nil {
		return err
	}
	limit, err := q.integer("limit", schemas.DefaultApprovalsPage, 1, schemas.MaxApprovalsPage)
	if err != nil {
		return err
	}
	list, err := g.approvals().List(r.Context(), a, want, int(limit))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// approvals reads which approvals are meant.
func (q query) approvals() (admission.Filter, error) {
	var state schemas.ApprovalState
	if s := strings.ToValidUTF8(q.values.Get("state"), "\uFFFD"); s != "" {
		var err error
		if state, err = schemas.ParseApprovalState(s); err != nil {
			return admission.Filter{}, err
		}
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.values.Get("conversation"), "\uFFFD"))
	if conv != "" {
		if err := conv.Validate(); err != nil {
			return admission.Filter{}, err
		}
	}
	return admission.Filter{State: state, Conversation: conv}, nil
}

// getApproval shows one approval, with the whole input that is asked about while that is on the log.
func (g *Gateway) getApproval(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	found, err := g.approvals().Whole(r.Context(), a, pathApproval(r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found)
	return nil
}

// postApproval takes an answer.
func (g *Gateway) postApproval(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := readJSON(w, r)
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
	writeJSON(w, http.StatusOK, decided)
	return nil
}

// RememberedList is the answer about an account's remembered answers, in no order.
type RememberedList struct {
	Remembered []schemas.Remembered `json:"remembered"`
}

// getRemembered lists the answers that count for later calls.
func (g *Gateway) getRemembered(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := parseQuery(r.URL.RawQuery, "conversation")
	if err != nil {
		return err
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.values.Get("conversation"), "\uFFFD"))
	want := func(m schemas.Remembered) bool {
		return m.Revoked.IsZero() && g.Bus.Now().Before(m.Expires) && (conv == "" || m.Conversation == conv)
	}
	list, _, err := streams.Newest(r.Context(), lifecycle.OpenRemembered(g.Bus), schemas.RememberedKey(a, "*"), want, MaxRemembered)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, RememberedList{Remembered: list})
	return nil
}

// deleteRemembered lets an answer not count any more.
func (g *Gateway) deleteRemembered(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := lifecycle.ForgetAnswer(r.Context(), g.Bus, a, strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func pathApproval(r *http.Request) schemas.ApprovalID {
	return schemas.ApprovalID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}
