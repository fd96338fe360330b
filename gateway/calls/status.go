package calls

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// The states of a run as pollers know them. A call with a background job is processing until the job
// has settled.
const (
	runProcessing = "processing"
	runAwaiting   = "awaiting_approval"
	runCompleted  = "completed"
	runFailed     = "failed"
	runNotFound   = "not_found"
)

// runStatus is the response about a run, by its event id, which is the id of its call. The field names are those of the protocol that
// polling clients use.
type runStatus struct {
	EventID      string                 `json:"eventId"`                  //nolint:tagliatelle // pollers know it so
	Conversation schemas.ConversationID `json:"conversationKey,omitzero"` //nolint:tagliatelle // likewise
	Status       string                 `json:"status"`
	// Response is the call's result, or how its job ended.
	Response  any           `json:"response,omitzero"`
	Error     string        `json:"error,omitzero"`
	Approvals []runApproval `json:"approvals,omitzero"`
}

// runApproval is an approval that a run waits for.
type runApproval struct {
	ApprovalID schemas.ApprovalID `json:"approvalId"` //nolint:tagliatelle // pollers know it so
	ToolCallID schemas.CallID     `json:"toolCallId"` //nolint:tagliatelle // likewise
	ToolName   schemas.Tool       `json:"toolName"`   //nolint:tagliatelle // likewise
	Input      json.RawMessage    `json:"input,omitzero"`
}

// statusOf returns the status of a run from its call, the result if there is one, and, if the result names a job, the job. It is pure.
func statusOf(c schemas.Call, r *schemas.Result, j *schemas.Job) runStatus {
	s := runStatus{EventID: string(c.ID), Conversation: c.Conversation, Status: runProcessing}
	switch {
	case r == nil, j != nil && !j.State.Final():
	case j != nil && j.Completion != nil:
		result := schemas.JobResultOf(*j, *j.Completion)
		if s.Status, s.Response = runCompleted, result; j.State != schemas.JobCompleted {
			s.Status, s.Error = runFailed, "the job is "+string(j.State)
		}
		if j.State != schemas.JobCompleted && result.Reason != "" {
			s.Error += ": " + result.Reason
		}
	case r.Status == schemas.StatusCompleted:
		s.Status, s.Response = runCompleted, r
	default:
		s.Status, s.Response, s.Error = runFailed, r, r.Text
	}
	return s
}

// GetStatus returns the status of a run, for clients that poll. A run of another account, or of another agent than the one in the query,
// is not found.
func (h *Calls) GetStatus(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "agentId")
	if err != nil {
		return err
	}
	id := schemas.CallID(r.PathValue("id"))
	if err := id.Validate(); err != nil {
		return err
	}
	call, err := h.o.Bus.Calls().Find(r.Context(), a, id)
	agent := schemas.AgentID(q.Values.Get("agentId"))
	if errors.Is(err, schemas.ErrNotFound) || err == nil && agent != "" && call.Agent != agent {
		web.WriteJSON(w, http.StatusNotFound, runStatus{EventID: string(id), Status: runNotFound})
		return nil
	}
	if err != nil {
		return err
	}
	state, err := h.o.Bus.States().Read(r.Context(), call)
	if err != nil {
		return err
	}
	switch over, err := lifecycle.Forgotten(r.Context(), h.o.Bus, &state); {
	case err != nil:
		return err
	case over: // as one that is forgotten as a whole
		web.WriteJSON(w, http.StatusNotFound, runStatus{EventID: string(id), Status: runNotFound})
		return nil
	}
	var job *schemas.Job
	if state.Result != nil && state.Result.StatusID != "" {
		p, err := lifecycle.FindJob(r.Context(), h.o.Bus, a, schemas.JobID(state.Result.StatusID))
		switch {
		case err == nil:
			job = &p.Value
		case !errors.Is(err, schemas.ErrNotFound): // its record is older than what is kept: the result says what it can
			return err
		}
	}
	s := statusOf(call, state.Result, job)
	if state.Result == nil && len(state.Started) == 0 && call.Approval != "" {
		if s, err = h.awaiting(r, call, s); err != nil {
			return err
		}
	}
	web.WriteJSON(w, http.StatusOK, s)
	return nil
}

// awaiting adds the approval that a call waits for to the status, if it waits for one.
func (h *Calls) awaiting(r *http.Request, c schemas.Call, s runStatus) (runStatus, error) {
	status, err := h.Queued(r.Context(), c)
	if err != nil || status != StateAwaiting {
		return s, err
	}
	s.Status = runAwaiting
	s.Approvals = []runApproval{{ApprovalID: c.Approval, ToolCallID: c.ID, ToolName: c.Tool, Input: c.Input}}
	return s, nil
}
