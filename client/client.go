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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
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

// Client talks to one gateway, or to several behind one URL.
type Client struct {
	// HTTP sends the requests. Nil means a client without an overall time limit, as waiting needs.
	HTTP *http.Client
	// Pause is the first pause before another try; it doubles up to 30 s, and each pause is a
	// random part of it. Default 500 ms.
	Pause time.Duration
	// Patience is for how long records, manifests, variables, webhooks, tokens and approvals are asked for again after a first failure that
	// may pass: a person waits for the answer, and an error is better than waiting for an outage to end. Default 1 min.
	Patience time.Duration

	// Warned is called with what the gateway says of a request that it accepted and that will not do what was meant, such as a
	// sandbox whose provider no worker serves. It may be called by several goroutines. Nil: the warning is dropped.
	Warned func(text string)

	base, key string
}

// New makes a client for the gateway at base, such as http://127.0.0.1:8080, with an account's key.
func New(base, key string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), key: key}
}

// URL is the gateway's.
func (c *Client) URL() string { return c.base }

// State is what is known of a call.
type State struct {
	ID           schemas.CallID
	Conversation schemas.ConversationID
	Status       string             // queued, running, awaiting_approval, or the status of the result
	Result       *schemas.Result    // nil while there is none
	Approval     schemas.ApprovalID // of awaiting_approval: the question that a person has to answer
	Accepted     time.Time          // zero: not known, as of a call that has its result
}

// Call runs a tool and returns its result. A command that failed, a denied or an interrupted call are results, not errors. When ctx ends
// first, the call continues: ask for it again by its id, or cancel it.
//
// Codes: invalid, not_found, denied, conflict (the id is another call's).
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

// Submit hands in a call and returns once it is accepted. Codes: as [Client.Call].
func (c *Client) Submit(ctx context.Context, r schemas.Request) (State, error) {
	return c.post(ctx, r, 0)
}

// Get reports what is known of a call now. Codes: not_found, also for a call older than a day.
func (c *Client) Get(ctx context.Context, id schemas.CallID) (State, error) {
	return c.state(ctx, http.MethodGet, callPath(id), nil)
}

// Wait returns the result of a call once there is one. Codes: not_found.
func (c *Client) Wait(ctx context.Context, id schemas.CallID) (schemas.Result, error) {
	for {
		st, err := c.state(ctx, http.MethodGet, callPath(id)+waitQuery(waitPerRequest), nil)
		if err != nil {
			return schemas.Result{}, err
		}
		if st.Result != nil {
			return *st.Result, nil
		}
		if err := c.pause(ctx, 0); err != nil { // a gateway that drains answers early: do not hammer the next one
			return schemas.Result{}, err
		}
	}
}

// WaitFor reports what is known of a call as soon as it has a result, and after wait whatever that is then. Codes: not_found.
func (c *Client) WaitFor(ctx context.Context, id schemas.CallID, wait time.Duration) (State, error) {
	for end := time.Now().Add(wait); ; {
		st, err := c.state(ctx, http.MethodGet, callPath(id)+waitQuery(min(time.Until(end), waitPerRequest)), nil)
		if err != nil || st.Result != nil || !time.Now().Before(end) {
			return st, err
		}
		if err := c.pause(ctx, 0); err != nil { // as above
			return State{}, err
		}
	}
}

// Cancel asks for the end of a call; its result then says whether that came in time. Codes:
// not_found, conflict (it has ended already).
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

// state sends a request until it is answered with a call's state or result.
func (c *Client) state(ctx context.Context, method, path string, body []byte) (State, error) {
	status, b, err := c.answer(ctx, forever, method, path, body)
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

// forever is the patience of what is asked until its context ends.
const forever = time.Duration(math.MaxInt64)

// ask sends in, as JSON unless it is nil, until it is answered or the client's patience ends, and
// decodes the answer into out unless that is nil. Only what does no harm when it is done twice may be
// asked so.
func (c *Client) ask(ctx context.Context, method, path string, in, out any) error {
	patience := c.Patience
	if patience <= 0 {
		patience = firstPatience
	}
	return c.exchange(ctx, patience, method, path, in, out)
}

// keepAsking is ask without an end to its patience.
func (c *Client) keepAsking(ctx context.Context, method, path string, in, out any) error {
	return c.exchange(ctx, forever, method, path, in, out)
}

// postOnce posts without further tries: when it fails for a passing reason, it is unknown whether the request was carried out.
func (c *Client) postOnce(ctx context.Context, path string, in, out any) error {
	return c.exchange(ctx, 0, http.MethodPost, path, in, out)
}

func (c *Client) exchange(ctx context.Context, patience time.Duration, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return schemas.Wrap(schemas.Invalid, "encode", "the request cannot be written as JSON", err)
		}
	}
	_, b, err := c.answer(ctx, patience, method, path, body)
	if err != nil || out == nil {
		return err
	}
	return decodeAnswer(method+" "+path, b, out)
}

// sendBytes sends a body of a type until it is answered or the client's patience ends. It must do no harm when it is done twice.
func (c *Client) sendBytes(ctx context.Context, method, path, kind string, body []byte, out any) error {
	patience := c.Patience
	if patience <= 0 {
		patience = firstPatience
	}
	began := time.Now()
	for try := 0; ; try++ {
		_, b, passing, err := c.once(ctx, method, path, body, http.Header{"Content-Type": {kind}})
		if err == nil {
			return decodeAnswer(method+" "+path, b, out)
		}
		if !passing || time.Since(began) >= patience {
			return err
		}
		if perr := c.pause(ctx, try); perr != nil {
			return fmt.Errorf("%w (last failure: %w)", perr, err)
		}
	}
}

func decodeAnswer(of string, b []byte, out any) error {
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", of, err)
	}
	return nil
}

// answer sends a request until it is answered with a success, whose status and body it returns. It tries
// no more once patience has gone by: with 0 it sends once.
func (c *Client) answer(ctx context.Context, patience time.Duration, method, path string, body []byte) (int, []byte, error) {
	began := time.Now()
	for try := 0; ; try++ {
		status, b, passing, err := c.once(ctx, method, path, body, nil)
		if err == nil || !passing || time.Since(began) >= patience {
			return status, b, err
		}
		if perr := c.pause(ctx, try); perr != nil {
			return 0, nil, fmt.Errorf("%w (last failure: %w)", perr, err)
		}
	}
}

// once sends a request; again says that its failure may pass.
func (c *Client) once(ctx context.Context, method, path string, body []byte, header http.Header) (
	status int, _ []byte, again bool, _ error,
) {
	resp, err := c.do(ctx, method, path, body, header)
	if err != nil {
		return 0, nil, ctx.Err() == nil && schemas.CodeOf(err) == schemas.Unavailable, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	b, err := readAnswer(resp.Body)
	if err != nil {
		return 0, nil, ctx.Err() == nil && !errors.Is(err, errAnswer), err
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		err := problem(resp.StatusCode, b)
		return resp.StatusCode, nil, passing(resp.StatusCode) && !concernsRequest(err), err
	}
	return resp.StatusCode, b, false, nil
}

// errAnswer is an answer of more than [mostAnswer] bytes.
var errAnswer error = schemas.Errorf(schemas.Exhausted, "",
	"the answer has more than 16 MiB, which this client does not take: ask for less at once, by a limit or by single records")

// readAnswer reads a body whole. One that is larger than [mostAnswer] is an error: a part of it would be no JSON.
func readAnswer(body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, mostAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(b) > mostAnswer:
		return nil, errAnswer
	}
	return b, nil
}

// do sends one request. An error means that there is no answer.
func (c *Client) do(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response, error) {
	all := http.Header{}
	if body != nil {
		all.Set("Content-Type", "application/json")
	}
	maps.Copy(all, header)
	return c.send(ctx, method, path, bytes.NewReader(body), all)
}

// send is [Client.do] with a body that is read once.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, schemas.Wrap(schemas.Invalid, "request", "the gateway's URL is malformed", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.key)
	h := c.HTTP
	if h == nil {
		h = &http.Client{}
	}
	resp, err := h.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, ctx.Err())
		}
		return nil, schemas.Wrap(schemas.Unavailable, method+" "+path, "the gateway cannot be reached", err)
	}
	if text := resp.Header.Get("Sandjet-Warning"); text != "" && c.Warned != nil {
		c.Warned(text)
	}
	return resp, nil
}

// pause sleeps before try number try+2.
func (c *Client) pause(ctx context.Context, try int) error {
	most := c.Pause
	if most <= 0 {
		most = firstPause
	}
	for range min(try, 16) {
		most = min(2*most, longestPause)
	}
	t := time.NewTimer(rand.N(most) + time.Millisecond) // spreading needs no secrecy
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gave up: %w", ctx.Err())
	}
}

// concernsRequest reports whether what is not available is what a field of the request names, such as a provider that no worker
// serves: then another request may help, and time alone will not.
func concernsRequest(err error) bool {
	e, ok := errors.AsType[*schemas.Error](err)
	return ok && e.Code == schemas.Unavailable && e.Field != ""
}

// problem reads the body of a failure.
func problem(status int, body []byte) error {
	var p struct {
		Error  *schemas.Error   `json:"error"`
		Errors []*schemas.Error `json:"errors"`
	}
	if json.Unmarshal(body, &p) == nil && p.Error != nil && p.Error.Code != "" {
		p.Error.Errors = p.Errors
		return p.Error
	}
	code := schemas.Internal
	switch {
	case passing(status):
		code = schemas.Unavailable
	case status == http.StatusNotFound:
		code = schemas.NotFound
	case status < http.StatusInternalServerError:
		code = schemas.Invalid
	}
	return schemas.Errorf(code, "", "the server answered %d without saying why: is the URL a gateway's?", status)
}

func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func callPath(id schemas.CallID) string { return "/v1/calls/" + url.PathEscape(string(id)) }

func waitQuery(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "?wait=" + strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
