// Package approvals serves the questions that people are asked about calls, their answers, and the answers that also hold for later calls.
package approvals

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// MaxGrants is how many grants one answer lists.
const MaxGrants = 1000

// Approvals has the HTTP handlers of approvals. It is safe for concurrent use.
type Approvals struct{ admission.Approvals }

// GetList lists the account's approvals.
func (h Approvals) GetList(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "state", "conversation", "limit")
	if err != nil {
		return err
	}
	want, err := filter(q)
	if err != nil {
		return err
	}
	limit, err := q.Integer("limit", schemas.DefaultApprovalsPage, 1, schemas.MaxApprovalsPage)
	if err != nil {
		return err
	}
	list, err := h.List(r.Context(), a, want, int(limit))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, list)
	return nil
}

// filter parses the query of a list of approvals. Code: invalid.
func filter(q web.Query) (admission.Filter, error) {
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

// Get returns one approval, with the call's whole input while that is still on the log.
func (h Approvals) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	found, err := h.Whole(r.Context(), a, pathID(r))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, found)
	return nil
}

// PostDecide answers an approval.
func (h Approvals) PostDecide(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
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
	decided, err := h.Decide(r.Context(), a, pathID(r), admission.DecisionOf(in, admission.API))
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, decided)
	return nil
}

// GrantList is the response with an account's approval grants, in no particular order.
type GrantList struct {
	Grants []schemas.ApprovalGrant `json:"grants"`
}

// GetGrants lists the grants: answers that are remembered for later calls.
func (h Approvals) GetGrants(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "conversation")
	if err != nil {
		return err
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.Values.Get("conversation"), "\uFFFD"))
	want := func(m schemas.ApprovalGrant) bool {
		return m.Revoked.IsZero() && h.Bus.Now().Before(m.Expires) && (conv == "" || m.Conversation == conv)
	}
	list, _, err := streams.Newest(r.Context(), lifecycle.OpenApprovalGrants(h.Bus), a, schemas.ApprovalGrantKey(a, "*"), want, MaxGrants)
	if err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusOK, GrantList{Grants: list})
	return nil
}

// DeleteGrant revokes a grant: the next call needs an approval again.
func (h Approvals) DeleteGrant(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	if err := lifecycle.RevokeApprovalGrant(r.Context(), h.Bus, a, strings.ToValidUTF8(r.PathValue("id"), "\uFFFD")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func pathID(r *http.Request) schemas.ApprovalID {
	return schemas.ApprovalID(strings.ToValidUTF8(r.PathValue("id"), "\uFFFD"))
}

// Components returns the types for the OpenAPI document, by name.
func Components() map[string]reflect.Type {
	return map[string]reflect.Type{"ApprovalGrantList": reflect.TypeFor[GrantList]()}
}
