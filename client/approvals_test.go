package client_test

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

func TestApprovalsAreAskedForAndAnswered(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.Method + " " + r.URL.RequestURI() + " " + string(body) {
		case "GET /v1/approvals?conversation=c%2F1&limit=2&state=pending ":
			answer(w, http.StatusOK, `{"approvals":[{"id":"appr_2"},{"id":"appr_1"}],"more":true}`)
		case "GET /v1/approvals/appr_1 ":
			answer(w, http.StatusOK, `{"id":"appr_1","state":"pending","call":{"id":"x","input":{"command":"true"}}}`)
		case `POST /v1/approvals/appr_1/decide {"approved":true,"reason":"fine"}`:
			answer(w, http.StatusOK, `{"id":"appr_1","state":"approved"}`)
		case `POST /v1/approvals/appr_2/decide {"approved":false}`:
			answer(w, http.StatusConflict, `{"error":{"code":"conflict","message":"the approval is approved already"}}`)
		case "GET /v1/calls/x ":
			answer(w, http.StatusAccepted, `{"id":"x","conversation":"c","status":"awaiting_approval","approval":"appr_1"}`)
		default:
			t.Errorf("asked %s %s %s", r.Method, r.URL.RequestURI(), body)
		}
	})
	ctx := t.Context()
	q := client.ApprovalsQuery{State: schemas.ApprovalPending, Conversation: "c/1", Limit: 2}
	if list, err := c.Approvals().List(ctx, q); err != nil || len(list) != 2 || list[0].ID != "appr_2" {
		t.Errorf("%+v, %v", list, err)
	}
	if a, err := c.Approvals().Get(ctx, "appr_1"); err != nil || a.State != schemas.ApprovalPending || string(a.Call.Input) != `{"command":"true"}` {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Approvals().Approve(ctx, "appr_1", "fine"); err != nil || a.State != schemas.ApprovalApproved {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := c.Approvals().Deny(ctx, "appr_2", ""); !errors.Is(err, schemas.ErrConflict) {
		t.Errorf("%v", err)
	}
	if st, err := c.Get(ctx, "x"); err != nil || st.Status != "awaiting_approval" || st.Approval != "appr_1" {
		t.Errorf("%+v, %v", st, err)
	}
}

// An answer whose fate is unknown is not given again: the second would be refused as one too many.
func TestAnAnswerIsGivenOnce(t *testing.T) {
	var tries atomic.Int32
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		answer(w, http.StatusServiceUnavailable, `{"error":{"code":"unavailable","message":"the log is away"}}`)
	})
	if _, err := c.Approvals().Approve(t.Context(), "appr_1", ""); !errors.Is(err, schemas.ErrUnavailable) || tries.Load() != 1 {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
}
