package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// MaxRemembered is how many remembered answers one answer lists.
const MaxRemembered = 1000

// ApprovalList is the answer about an account's approvals, the newest first.
type ApprovalList struct {
	Approvals []schemas.Approval `json:"approvals"`
	// More says that there are older ones, or that the search ended before it had looked at all.
	More bool `json:"more"`
}

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
	list, err := findApprovals(r.Context(), g.Bus, a, want, int(limit))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// approvals reads which approvals are meant.
func (q query) approvals() (func(schemas.Approval) bool, error) {
	var state schemas.ApprovalState
	if s := strings.ToValidUTF8(q.values.Get("state"), "\uFFFD"); s != "" {
		var err error
		if state, err = schemas.ParseApprovalState(s); err != nil {
			return nil, err
		}
	}
	conv := schemas.ConversationID(strings.ToValidUTF8(q.values.Get("conversation"), "\uFFFD"))
	if conv != "" {
		if err := conv.Validate(); err != nil {
			return nil, err
		}
	}
	return wantedApprovals(state, conv), nil
}

// wantedApprovals tells those in a state and of a conversation; empty: of any.
func wantedApprovals(state schemas.ApprovalState, conv schemas.ConversationID) func(schemas.Approval) bool {
	return func(a schemas.Approval) bool {
		return (state == "" || a.State == state) && (conv == "" || a.Call.Conversation == conv)
	}
}

// findApprovals lists the approvals of the account, the newest first.
func findApprovals(ctx context.Context, bus *streams.Bus, a schemas.AccountID, want func(schemas.Approval) bool, limit int) (ApprovalList, error) {
	list, more, err := findNewest(ctx, lifecycle.OpenApprovals(bus), schemas.ApprovalKey(a, "*"), want, limit)
	return ApprovalList{Approvals: list, More: more}, err
}

// getApproval shows one approval, with the whole input that is asked about while that is on the log.
func (g *Gateway) getApproval(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := parseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	found, err := wholeApproval(r.Context(), g.Bus, a, pathApproval(r))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found)
	return nil
}

// wholeApproval finds an approval, with an input that its record leaves out. Codes: not_found, unavailable.
func wholeApproval(ctx context.Context, bus *streams.Bus, a schemas.AccountID, id schemas.ApprovalID) (schemas.Approval, error) {
	p, err := lifecycle.FindApproval(ctx, bus, a, id)
	if err != nil || !p.Value.LeftOut() {
		return p.Value, err
	}
	call, err := streams.FindCall(ctx, bus, a, p.Value.Call.ID)
	switch {
	case err == nil && call.Approval == p.Value.ID:
		p.Value.Call.Input = call.Input
	case err != nil && !errors.Is(err, schemas.ErrNotFound):
		return schemas.Approval{}, err
	}
	return p.Value, nil
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
	decided, err := g.approvals().Decide(r.Context(), a, pathApproval(r), decision(in, admission.API))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, decided)
	return nil
}

func decision(in schemas.ApprovalAnswer, by string) admission.Decision {
	d := admission.Decision{State: schemas.ApprovalDenied, By: by, Reason: in.Reason, Remember: in.Remember}
	if *in.Approved {
		d.State = schemas.ApprovalApproved
	}
	return d
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
	list, _, err := findNewest(r.Context(), lifecycle.OpenRemembered(g.Bus), schemas.RememberedKey(a, "*"), want, MaxRemembered)
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
