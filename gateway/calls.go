package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// The states of a call that has no result yet; the others are [schemas.Statuses].
const (
	stateQueued     = "queued"
	stateRunning    = "running"
	stateCancelling = "cancelling"
	stateAwaiting   = admission.StatusAwaiting
)

// CallState is the answer about a call that has no result yet.
type CallState struct {
	ID           schemas.CallID         `json:"id"`
	Conversation schemas.ConversationID `json:"conversation"`
	Status       string                 `json:"status"` // queued, running, cancelling or awaiting_approval
	// StatusID names the job of a background call, from its acceptance on.
	StatusID schemas.JobID `json:"status_id,omitzero"`
	// Approval names the question that awaiting_approval waits for.
	Approval schemas.ApprovalID `json:"approval,omitzero"`
	Accepted time.Time          `json:"accepted,omitzero"`
}

func stateOf(c schemas.Call, status string) CallState {
	s := CallState{ID: c.ID, Conversation: c.Conversation, Status: status, StatusID: c.Job, Accepted: c.Accepted}
	if status == stateAwaiting {
		s.Approval, s.StatusID = c.Approval, "" // the job is there when the call is
	}
	return s
}

// postCall admits a call and, with ?wait=, waits for its result.
func (g *Gateway) postCall(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "wait")
	if err != nil {
		return err
	}
	wait, err := q.Wait(g.MaxWait)
	if err != nil {
		return err
	}
	if wait > 0 {
		place, err := g.takeWait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	req, err := schemas.DecodeRequest(body)
	if err != nil {
		return err
	}
	admitter := admission.Admitter{Bus: g.Bus, Records: g.Records, Kind: admission.API, Log: g.Log, Serving: g.Serving}
	got, err := admitter.Admit(r.Context(), a, req)
	if err != nil {
		return err
	}
	g.metrics.accepted(admission.API, got.Existing)
	w.Header().Set("Location", "/v1/calls/"+string(got.Call.ID))
	if wait == 0 && !got.Existing {
		status := stateQueued
		if got.Awaiting {
			status = stateAwaiting
		}
		web.WriteJSON(w, http.StatusAccepted, stateOf(got.Call, status))
		return nil
	}
	return g.answerCall(w, r, got.Call, wait)
}

// getCall reports the state and result of a call.
func (g *Gateway) getCall(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "wait")
	if err != nil {
		return err
	}
	wait, err := q.Wait(g.MaxWait)
	if err != nil {
		return err
	}
	if wait > 0 {
		place, err := g.takeWait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
	}
	call, err := g.findCall(r, a)
	if err != nil {
		return err
	}
	return g.answerCall(w, r, call, wait)
}

// postCancel asks for the end of a call.
func (g *Gateway) postCancel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	reason, err := web.ReadReason(w, r)
	if err != nil {
		return err
	}
	call, err := g.findCall(r, a)
	if err != nil {
		return err
	}
	if err := g.cancel(r.Context(), call, admission.API, reason); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, stateOf(call, stateCancelling))
	return nil
}

// cancel asks on the log for the end of call; one that waits for an approval ends here. A call that has
// its result already is a conflict; one that gets it at this moment is not, and keeps it.
func (g *Gateway) cancel(ctx context.Context, call schemas.Call, by, reason string) error {
	state, err := streams.ReadCallState(ctx, g.Bus, call)
	if err != nil {
		return err
	}
	if state.Result != nil {
		return schemas.Errorf(schemas.Conflict, "the call has ended already: it is %s", state.Result.Status)
	}
	over, err := lifecycle.Forgotten(ctx, g.Bus, &state)
	if err != nil {
		return err
	}
	if over {
		return schemas.Errorf(schemas.Conflict, "the call has ended already, and its result is no longer kept")
	}
	if ended, err := g.approvals.Cancel(ctx, call, by, reason); err != nil || ended {
		return err
	}
	return lifecycle.Cancel(ctx, g.Bus, call, reason)
}

// instanceCalls are the calls in instances, for package instances.
type instanceCalls struct{ g *Gateway }

// Running lists calls that run.
func (c instanceCalls) Running(ctx context.Context, a schemas.AccountID, before schemas.CallID, mayRun func(schemas.Call) bool) (
	list []schemas.CallID, next schemas.CallID, err error,
) {
	recent, next, err := c.g.recentCalls(ctx, a, before, MaxRecentPage, mayRun)
	for _, of := range recent {
		if of.Status == stateRunning {
			list = append(list, of.ID)
		}
	}
	return list, next, err
}

// Cancel cancels a call.
func (c instanceCalls) Cancel(ctx context.Context, call schemas.Call, reason string) error {
	return c.g.cancel(ctx, call, admission.API, reason)
}

// findCall finds a call of the account. A call of another account gets the same not_found as one that never existed.
func (g *Gateway) findCall(r *http.Request, a schemas.AccountID) (schemas.Call, error) {
	id := schemas.CallID(r.PathValue("id"))
	if err := id.Validate(); err != nil {
		return schemas.Call{}, err
	}
	return g.lookUp(r.Context(), a, id)
}

func (g *Gateway) lookUp(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	call, err := streams.FindCall(ctx, g.Bus, a, id)
	if errors.Is(err, schemas.ErrNotFound) {
		return call, schemas.Errorf(schemas.NotFound, "there is no call %s: calls are kept for 24 hours", id)
	}
	return call, err
}

// answerCall answers with the result, 200, or with the present state, 202, once wait has passed or
// the gateway drains. A result that is no longer kept is answered with an error, 410.
func (g *Gateway) answerCall(w http.ResponseWriter, r *http.Request, call schemas.Call, wait time.Duration) error {
	call = call.WithoutInput() // it is not held while this waits
	state, err := g.awaitCall(r.Context(), call, wait)
	if err == nil {
		err = g.kept(r.Context(), &state)
	}
	if err != nil {
		return err
	}
	if state.Result != nil {
		err := web.TryJSON(w, http.StatusOK, state.Result)
		if err == nil || r.Method == http.MethodGet {
			return err
		}
		// Sent again, the request might be another call. The result is asked for as that of a call that still runs.
		web.Later(w.Header())
		web.WriteJSON(w, http.StatusAccepted, stateOf(call, stateRunning))
		return nil
	}
	status := stateRunning
	if len(state.Started) == 0 {
		if status, err = g.queued(r.Context(), call); err != nil {
			return err
		}
	}
	web.WriteJSON(w, http.StatusAccepted, stateOf(call, status))
	return nil
}

// kept returns an error if a call has ended and its result is no longer kept; see [lifecycle.Forgotten].
func (g *Gateway) kept(ctx context.Context, state *streams.CallState) error {
	over, err := lifecycle.Forgotten(ctx, g.Bus, state)
	if err != nil || !over {
		return err
	}
	return web.WithStatus(http.StatusGone, schemas.Errorf(schemas.NotFound,
		"the call %s has ended, and its result is no longer kept: it was removed with old events of its conversation", state.Call.ID))
}

// queued reports what a call that was not started waits for: its turn, or a person.
func (g *Gateway) queued(ctx context.Context, call schemas.Call) (string, error) {
	if call.Approval == "" {
		return stateQueued, nil
	}
	p, err := lifecycle.FindApproval(ctx, g.Bus, call.Account, call.Approval)
	switch {
	case errors.Is(err, schemas.ErrNotFound): // not asked yet: who asked for the call asks again
		return stateAwaiting, nil
	case err != nil:
		return "", err
	case p.Value.State == schemas.ApprovalPending:
		return stateAwaiting, nil
	}
	return stateQueued, nil
}

// awaitCall waits until call has its result and returns what is known of it then, or when the wait is over, which ends early when the
// gateway drains. A waiting request holds no slot among the requests in flight, and no body.
func (g *Gateway) awaitCall(ctx context.Context, call schemas.Call, wait time.Duration) (streams.CallState, error) {
	if wait > 0 {
		web.HoldOf(ctx).Release()
		state, err := g.untilEnd(ctx, call, wait)
		if state != nil || ctx.Err() != nil {
			return orNone(state), ctx.Err()
		}
		switch schemas.CodeOf(err) {
		case schemas.Timeout, schemas.Interrupted, schemas.NotFound: // the last: no longer kept, as the state then says
		default:
			return streams.CallState{}, err
		}
	}
	return streams.ReadCallState(ctx, g.Bus, call)
}

func (g *Gateway) untilEnd(ctx context.Context, call schemas.Call, wait time.Duration) (*streams.CallState, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(g.draining, cancel)()
	g.metrics.waiting.Inc()
	defer g.metrics.waiting.Dec()
	return streams.AwaitCall(ctx, g.Bus, call)
}

func orNone(s *streams.CallState) streams.CallState {
	if s == nil {
		return streams.CallState{}
	}
	return *s
}
