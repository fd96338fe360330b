// Package client calls tools over a gateway's HTTP API and reads conversations.
//
// Every method may be called from many goroutines and blocks until it has its answer or its
// context ends. What fails for a passing reason (the network, a gateway that stops, a 429 or 503)
// is tried again with growing, spread-out pauses: calls, jobs and events until the context ends, so
// give one that does; questions about records and approvals for [Client.Patience]. A 503 that names a field of the request, such
// as a sandbox whose provider no worker serves, is not tried again. A request carries
// an id, which the client makes where the caller gives none, so trying again never runs a call twice.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const (
	waitPerRequest = 30 * time.Second
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
	firstPatience  = time.Minute
	mostAnswer     = 16 << 20 // bytes of an answer
)

// Client sends requests to one gateway, or to several behind one URL. Its fields must be set before it is used: a part of it, such as
// [Client.Jobs], keeps the values from when it was taken.
type Client struct {
	// HTTP sends the requests. Nil means a client without an overall time limit, as waiting needs.
	HTTP *http.Client
	// Pause is the first pause before another try; it doubles up to 30 s, and each pause is a
	// random part of it. Default 500 ms.
	Pause time.Duration
	// Patience is for how long records, manifests, variables, webhooks, tokens and approvals are asked for again after a first failure that
	// may pass: a person waits for the answer, and an error is better than waiting for an outage to end. Default 1 min.
	Patience time.Duration

	// Warned is called with the gateway's warnings about accepted requests that will not have the intended effect, such as a sandbox whose
	// provider no worker serves. It may be called from several goroutines. Nil: warnings are ignored.
	Warned func(text string)

	base, key string
}

// New returns a client for the gateway at base, such as http://127.0.0.1:8080, with an account's key.
func New(base, key string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), key: key}
}

// URL returns the gateway's URL.
func (c *Client) URL() string { return c.base }

// State is the state of a call.
type State struct {
	ID           schemas.CallID
	Conversation schemas.ConversationID
	Status       string             // queued, running, awaiting_approval, or the status of the result
	Result       *schemas.Result    // nil while there is none
	Approval     schemas.ApprovalID // of awaiting_approval: the question that a person has to answer
	Accepted     time.Time          // zero: not known, as of a call that has its result
}

// Call runs a tool and returns its result. A failed command, a denied call and an interrupted call are results, not errors. If ctx ends
// first, the call continues: wait for it by its id, or cancel it.
//
// Codes: invalid, not_found, denied, conflict (the id belongs to another call).
func (c *Client) Call(ctx context.Context, r schemas.Request) (schemas.Result, error) {
	st, err := c.post(ctx, r, waitPerRequest)
	if err != nil {
		return schemas.Result{}, err
	}
	if st.Result != nil {
		return *st.Result, nil
	}
	return c.Wait(ctx, st.ID)
}

// Submit sends a call and returns when it is accepted. Codes: as [Client.Call].
func (c *Client) Submit(ctx context.Context, r schemas.Request) (State, error) {
	return c.post(ctx, r, 0)
}

// Get returns the present state of a call. Code: not_found, also for a call older than a day.
func (c *Client) Get(ctx context.Context, id schemas.CallID) (State, error) {
	return c.state(ctx, http.MethodGet, callPath(id), nil)
}

// Wait returns the result of a call, once it has one. Code: not_found.
func (c *Client) Wait(ctx context.Context, id schemas.CallID) (schemas.Result, error) {
	for {
		st, err := c.state(ctx, http.MethodGet, callPath(id)+waitQuery(waitPerRequest), nil)
		if err != nil {
			return schemas.Result{}, err
		}
		if st.Result != nil {
			return *st.Result, nil
		}
		if err := c.transport().pause(ctx, 0); err != nil { // a gateway that drains answers early: do not hammer the next one
			return schemas.Result{}, err
		}
	}
}

// WaitFor returns the state of a call as soon as it has a result, or after wait. Code: not_found.
func (c *Client) WaitFor(ctx context.Context, id schemas.CallID, wait time.Duration) (State, error) {
	for end := time.Now().Add(wait); ; {
		st, err := c.state(ctx, http.MethodGet, callPath(id)+waitQuery(min(time.Until(end), waitPerRequest)), nil)
		if err != nil || st.Result != nil || !time.Now().Before(end) {
			return st, err
		}
		if err := c.transport().pause(ctx, 0); err != nil { // as above
			return State{}, err
		}
	}
}

// Cancel requests the cancellation of a call; its result then shows whether that came in time. Codes: not_found, conflict (it has ended
// already).
func (c *Client) Cancel(ctx context.Context, id schemas.CallID, reason string) error {
	body, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return fmt.Errorf("encode the reason: %w", err)
	}
	_, err = c.state(ctx, http.MethodPost, callPath(id)+"/cancel", body)
	return err
}

func (c *Client) post(ctx context.Context, r schemas.Request, wait time.Duration) (State, error) {
	if r.ID == "" {
		r.ID = schemas.NewCallID()
	}
	body, err := json.Marshal(r)
	if err != nil {
		return State{}, schemas.Wrap(schemas.Invalid, "encode", "the request cannot be encoded: is its input JSON?", err)
	}
	return c.state(ctx, http.MethodPost, "/v1/calls"+waitQuery(wait), body)
}

// state sends a request, with retries, until the answer is a call's state or result.
func (c *Client) state(ctx context.Context, method, path string, body []byte) (State, error) {
	status, b, err := c.transport().answer(ctx, forever, method, path, body, nil)
	if err != nil {
		return State{}, err
	}
	if status == http.StatusOK {
		var res schemas.Result
		if err := json.Unmarshal(b, &res); err != nil {
			return State{}, fmt.Errorf("decode the result: %w", err)
		}
		return State{ID: res.Call, Conversation: res.Conversation, Status: string(res.Status), Result: &res}, nil
	}
	var st struct {
		ID           schemas.CallID         `json:"id"`
		Conversation schemas.ConversationID `json:"conversation"`
		Status       string                 `json:"status"`
		Approval     schemas.ApprovalID     `json:"approval"`
		Accepted     time.Time              `json:"accepted"`
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return State{}, fmt.Errorf("decode the state: %w", err)
	}
	return State{ID: st.ID, Conversation: st.Conversation, Status: st.Status, Approval: st.Approval, Accepted: st.Accepted}, nil
}

func callPath(id schemas.CallID) string { return "/v1/calls/" + url.PathEscape(string(id)) }

func waitQuery(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "?wait=" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
