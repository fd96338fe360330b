// Package calls serves the calls of accounts over HTTP, and admits, finds, awaits and cancels them for the gateway's other ways in.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

// Options are the settings of [Calls].
type Options struct {
	Bus       *streams.Bus
	Records   admission.Records
	Log       *slog.Logger
	Approvals approvals.Approvals
	// Serving knows which providers are served: calls of others are refused. Nil: all are taken.
	Serving admission.Serving
	// Waits lets requests wait for what they ask for.
	Waits web.Waits
	// Waiting counts the requests that wait.
	Waiting prometheus.Gauge
	// Accepted counts an admitted call by the API that it came by; repeat says that the call existed already.
	Accepted func(kind string, repeat bool)
	// Draining ends when the gateway begins to stop.
	Draining context.Context //nolint:containedctx // it is a signal to all requests, not the context of one
}

// Calls has the HTTP handlers of calls, and the steps that other APIs of the gateway share with them. It is safe for concurrent use.
type Calls struct{ o Options }

// New returns the handlers.
func New(o Options) *Calls { return &Calls{o} }

// Admitter returns the admitter for requests of an API, such as [admission.API].
func (h *Calls) Admitter(kind string) admission.Admitter {
	return admission.Admitter{Bus: h.o.Bus, Records: h.o.Records, Kind: kind, Log: h.o.Log, Serving: h.o.Serving}
}

// Admit admits a request and counts it in the metrics. Codes: those of [admission.Admitter.Admit].
func (h *Calls) Admit(ctx context.Context, with admission.Admitter, a schemas.AccountID, r schemas.Request) (admission.Accepted, error) {
	got, err := with.Admit(ctx, a, r)
	if err == nil {
		h.o.Accepted(with.Kind, got.Existing)
	}
	return got, err
}

// The states of a call that has no result yet; the others are [schemas.Statuses].
const (
	StateQueued     = "queued"
	StateRunning    = "running"
	StateCancelling = "cancelling"
	StateAwaiting   = admission.StatusAwaiting
)

// State is the response about a call that has no result yet.
type State struct {
	ID           schemas.CallID         `json:"id"`
	Conversation schemas.ConversationID `json:"conversation"`
	Status       string                 `json:"status"` // queued, running, cancelling or awaiting_approval
	// StatusID names the job of a background call, from its acceptance on.
	StatusID schemas.JobID `json:"status_id,omitzero"`
	// Approval names the question that awaiting_approval waits for.
	Approval schemas.ApprovalID `json:"approval,omitzero"`
	Accepted time.Time          `json:"accepted,omitzero"`
}

func stateOf(c schemas.Call, status string) State {
	s := State{ID: c.ID, Conversation: c.Conversation, Status: status, StatusID: c.Job, Accepted: c.Accepted}
	if status == StateAwaiting {
		s.Approval, s.StatusID = c.Approval, "" // the job is there when the call is
	}
	return s
}

// Post admits a call and, with ?wait=, waits for its result.
func (h *Calls) Post(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "wait")
	if err != nil {
		return err
	}
	wait, release, err := h.o.Waits.Begin(w, q, a)
	if err != nil {
		return err
	}
	defer release()
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	req, err := schemas.DecodeRequest(body)
	if err != nil {
		return err
	}
	got, err := h.Admit(r.Context(), h.Admitter(admission.API), a, req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/calls/"+string(got.Call.ID))
	if wait == 0 && !got.Existing {
		status := StateQueued
		if got.Awaiting {
			status = StateAwaiting
		}
		web.WriteJSON(w, http.StatusAccepted, stateOf(got.Call, status))
		return nil
	}
	return h.answer(w, r, got.Call, wait)
}

// Get returns the state or the result of a call.
func (h *Calls) Get(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	q, err := web.ParseQuery(r.URL.RawQuery, "wait")
	if err != nil {
		return err
	}
	wait, release, err := h.o.Waits.Begin(w, q, a)
	if err != nil {
		return err
	}
	defer release()
	call, err := h.ofPath(r, a)
	if err != nil {
		return err
	}
	return h.answer(w, r, call, wait)
}

// PostCancel requests the cancellation of a call.
func (h *Calls) PostCancel(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	reason, err := web.ReadReason(w, r)
	if err != nil {
		return err
	}
	call, err := h.ofPath(r, a)
	if err != nil {
		return err
	}
	if err := h.Cancel(r.Context(), call, admission.API, reason); err != nil {
		return err
	}
	web.WriteJSON(w, http.StatusAccepted, stateOf(call, StateCancelling))
	return nil
}

// Cancel requests the cancellation of a call on the log; by is the API of the request. A call that waits for an approval ends at once.
// Code: conflict if the call has ended; a call that ends at the same moment keeps its result.
func (h *Calls) Cancel(ctx context.Context, call schemas.Call, by, reason string) error {
	state, err := h.o.Bus.States().Read(ctx, call)
	if err != nil {
		return err
	}
	if state.Result != nil {
		return schemas.Errorf(schemas.Conflict, "the call has ended already: it is %s", state.Result.Status)
	}
	over, err := lifecycle.Forgotten(ctx, h.o.Bus, &state)
	if err != nil {
		return err
	}
	if over {
		return schemas.Errorf(schemas.Conflict, "the call has ended already, and its result is no longer kept")
	}
	if ended, err := h.o.Approvals.Cancel(ctx, call, by, reason); err != nil || ended {
		return err
	}
	return lifecycle.Cancel(ctx, h.o.Bus, call, reason)
}

// ofPath returns the call that a request's path names. For a call of another account, the error not_found is the same as for one that does
// not exist.
func (h *Calls) ofPath(r *http.Request, a schemas.AccountID) (schemas.Call, error) {
	id := schemas.CallID(r.PathValue("id"))
	if err := id.Validate(); err != nil {
		return schemas.Call{}, err
	}
	return h.Find(r.Context(), a, id)
}

// Find returns a call of the account. Code: not_found.
func (h *Calls) Find(ctx context.Context, a schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	call, err := h.o.Bus.Calls().Find(ctx, a, id)
	if errors.Is(err, schemas.ErrNotFound) {
		return call, schemas.Errorf(schemas.NotFound, "there is no call %s: calls are kept for 24 hours", id)
	}
	return call, err
}

// answer responds with the call's result, 200; or, once wait has passed or the gateway drains, with its present state, 202. If the result
// is no longer stored, it returns an error with the status 410.
func (h *Calls) answer(w http.ResponseWriter, r *http.Request, call schemas.Call, wait time.Duration) error {
	call = call.WithoutInput() // it is not held while this waits
	state, err := h.Await(r.Context(), call, wait)
	if err == nil {
		err = h.Kept(r.Context(), &state)
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
		web.WriteJSON(w, http.StatusAccepted, stateOf(call, StateRunning))
		return nil
	}
	status := StateRunning
	if len(state.Started) == 0 {
		if status, err = h.Queued(r.Context(), call); err != nil {
			return err
		}
	}
	web.WriteJSON(w, http.StatusAccepted, stateOf(call, status))
	return nil
}

// Kept returns an error with the status 410 if a call has ended and its result is no longer stored; see [lifecycle.Forgotten].
func (h *Calls) Kept(ctx context.Context, state *callstate.State) error {
	over, err := lifecycle.Forgotten(ctx, h.o.Bus, state)
	if err != nil || !over {
		return err
	}
	return web.WithStatus(http.StatusGone, schemas.Errorf(schemas.NotFound,
		"the call %s has ended, and its result is no longer kept: it was removed with old events of its conversation", state.Call.ID))
}

// Queued returns the status of a call that was not started: whether it waits for a worker or for an approval.
func (h *Calls) Queued(ctx context.Context, call schemas.Call) (string, error) {
	if call.Approval == "" {
		return StateQueued, nil
	}
	p, err := lifecycle.FindApproval(ctx, h.o.Bus, call.Account, call.Approval)
	switch {
	case errors.Is(err, schemas.ErrNotFound): // not asked yet: who asked for the call asks again
		return StateAwaiting, nil
	case err != nil:
		return "", err
	case p.Value.State == schemas.ApprovalPending:
		return StateAwaiting, nil
	}
	return StateQueued, nil
}

// Await returns the state of a call once it has its result, wait has passed, or the gateway drains. Meanwhile the request releases its
// hold: it occupies no slot among the requests in flight, and no memory for its body.
func (h *Calls) Await(ctx context.Context, call schemas.Call, wait time.Duration) (callstate.State, error) {
	if wait > 0 {
		web.HoldOf(ctx).Release()
		state, err := h.UntilEnd(ctx, call, wait)
		if state != nil || ctx.Err() != nil {
			return orNone(state), ctx.Err()
		}
		switch schemas.CodeOf(err) {
		case schemas.Timeout, schemas.Interrupted, schemas.NotFound: // the last: no longer kept, as the state then says
		default:
			return callstate.State{}, err
		}
	}
	return h.o.Bus.States().Read(ctx, call)
}

// UntilEnd waits until the call has its result and returns its state. Codes: timeout (wait has passed), interrupted (the gateway drains),
// not_found (the result is no longer stored); the state is then nil.
func (h *Calls) UntilEnd(ctx context.Context, call schemas.Call, wait time.Duration) (*callstate.State, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(h.o.Draining, cancel)()
	h.o.Waiting.Inc()
	defer h.o.Waiting.Dec()
	return h.o.Bus.AwaitCall(ctx, call)
}

func orNone(s *callstate.State) callstate.State {
	if s == nil {
		return callstate.State{}
	}
	return *s
}
