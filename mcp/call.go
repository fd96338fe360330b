package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// call handles a tools/call. For one request of an older client it may run twice: before and after the client has asked its user.
func (c *session) call(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	p := req.Params
	input := p.Arguments
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	if p.Name == string(schemas.ToolAsyncStatus) {
		if in, ok := callAsked(input); ok {
			return c.status(ctx, req, in)
		}
	}
	r, marked, err := c.requestOf(p, input)
	if err != nil {
		return answerOfError(err)
	}
	u := useOf(ctx)
	if p.RequestState != "" {
		return c.resume(ctx, req, r)
	}
	u.call, u.marked = r.ID, marked
	st, err := c.scope.Caller.Submit(ctx, r)
	if err != nil {
		u.call = "" // there is nothing to cancel, or that is unknown: then the call runs as if it were never asked for again
		return answerOfError(err)
	}
	return c.await(ctx, req, st, r)
}

// requestOf returns the request for the parameters of a tools/call; marked reports whether the client marked the tool use, so that it can
// repeat the request.
func (c *session) requestOf(p *sdk.CallToolParamsRaw, input json.RawMessage) (r schemas.Request, marked bool, err error) {
	key, err := keyOf(p.Meta)
	if err != nil {
		return r, false, err
	}
	r = schemas.Request{
		ID: newCallID(), Agent: c.scope.Agent, Workspace: c.scope.Workspace, Conversation: c.scope.Conversation,
		Tool: schemas.Tool(p.Name), Input: input,
	}
	if key != "" {
		r.ID = CallIDOf(c.scope, key)
	}
	if r.Conversation == "" {
		r.Conversation = schemas.ConversationID(r.ID)
	}
	return r, key != "", nil
}

// await waits until a call has a result or c.Wait has passed, and returns the answer.
func (c *session) await(ctx context.Context, req *sdk.CallToolRequest, st State, r schemas.Request) (*sdk.CallToolResult, error) {
	defer c.attach(st.ID)()
	if st.Result == nil && st.Status != StatusAwaiting {
		var err error
		if st, err = c.wait(ctx, req, st); err != nil {
			return answerOfError(err)
		}
	}
	switch {
	case ctx.Err() != nil && st.Result == nil:
		return nil, context.Cause(ctx)
	case st.Result != nil:
		return answerOf(*st.Result, ofRevision(req))
	case st.Status == StatusAwaiting:
		return c.ask(ctx, req, st, r)
	case hasTasks(req):
		useOf(ctx).task = createdTask(st)
		return &sdk.CallToolResult{}, nil
	}
	return stillRunning(st, r.Tool), nil
}

// wait waits for a call and returns its state; meanwhile it sends progress if the client asked for it.
func (c *session) wait(ctx context.Context, req *sdk.CallToolRequest, st State) (State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var shown sync.WaitGroup
	defer shown.Wait()
	if token := req.Params.GetProgressToken(); token != nil {
		showing, end := context.WithCancel(ctx)
		defer end()
		c.show(showing, &shown, req.Session, token, st)
	}
	waiting, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(c.closing, end)()
	got, err := c.scope.Caller.Wait(waiting, st.ID, max(c.Wait-time.Since(began), 0))
	if err != nil && c.closing.Err() != nil && ctx.Err() == nil {
		return st, nil // it is not known to have ended, and continues
	}
	if err == nil && got.Accepted.IsZero() {
		got.Accepted = st.Accepted
	}
	return got, err
}

const (
	progressEvery = time.Second     // at most
	progressWord  = 5 * time.Second // progress is sent at least this often, also without output: some clients extend their time-out by it
	progressLine  = 200             // bytes of a line
)

// show sends the client the last line that a call has printed, until ctx is done. Its goroutines are added to running.
func (c *session) show(ctx context.Context, running *sync.WaitGroup, to *sdk.ServerSession, token any, st State) {
	lines := make(chan string, 1)
	running.Go(func() {
		err := c.scope.Caller.Output(ctx, st.Conversation, st.ID, func(text string) {
			line := lastLine(text)
			if line == "" {
				return
			}
			select { // the latest replaces one that was not sent yet
			case <-lines:
			default:
			}
			lines <- line
		})
		if err != nil && ctx.Err() == nil {
			c.Log.Debug("progress of a call not followed", "call", st.ID, "error", err)
		}
	})
	running.Go(func() {
		began, last := time.Now(), time.Now()
		for n := 1.0; ; n++ {
			line := ""
			quiet := time.NewTimer(progressWord)
			select {
			case line = <-lines:
			case <-quiet.C:
				line = fmt.Sprintf("running for %s", time.Since(began).Round(time.Second))
			case <-ctx.Done():
			}
			quiet.Stop()
			if ctx.Err() != nil {
				return
			}
			if early := progressEvery - time.Since(last); early > 0 && n > 1 {
				pause := time.NewTimer(early)
				select {
				case <-pause.C:
				case <-ctx.Done():
					pause.Stop()
					return
				}
				select {
				case line = <-lines:
				default:
				}
			}
			last = time.Now()
			_ = to.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: line}) // it is only shown
		}
	})
}

// lastLine returns the last line of a text that is not empty, cut to progressLine bytes.
func lastLine(text string) string {
	text = strings.TrimRight(text, "\r\n\t ")
	text = strings.TrimSpace(text[strings.LastIndexAny(text, "\r\n")+1:])
	if len(text) > progressLine {
		text = strings.ToValidUTF8(text[:progressLine], "") + "…"
	}
	return text
}

// callAsked parses an input of async_status; ok reports whether it names a call.
func callAsked(input json.RawMessage) (in struct {
	StatusID string            `json:"statusId"` //nolint:tagliatelle // as models know it
	Action   schemas.JobAction `json:"action"`
}, ok bool) {
	err := json.Unmarshal(input, &in)
	return in, err == nil && isCall(in.StatusID)
}

// status handles async_status for a call: it stops the call if asked to, waits for its end as long as for any call, and returns its state.
func (c *session) status(ctx context.Context, req *sdk.CallToolRequest, in struct {
	StatusID string            `json:"statusId"` //nolint:tagliatelle // as models know it
	Action   schemas.JobAction `json:"action"`
}) (*sdk.CallToolResult, error) {
	id := schemas.CallID(in.StatusID)
	if err := id.Validate(); err != nil {
		return answerOfError(schemas.Invalidf("input.statusId", "names no call"))
	}
	switch in.Action {
	case "", schemas.JobActionStatus:
		defer c.attach(id)()
	case schemas.JobActionStop:
		if err := c.scope.Caller.Cancel(ctx, id, "stopped by async_status"); err != nil && !errors.Is(err, schemas.ErrConflict) {
			return answerOfError(err)
		}
	default:
		return answerOfError(schemas.Invalidf("input.action", "%q is for background jobs: %s is a call, use status or stop",
			schemas.Quotable(string(in.Action)), id))
	}
	st, err := c.scope.Caller.Wait(ctx, id, 0)
	if err == nil && st.Result == nil && st.Status != StatusAwaiting {
		st, err = c.wait(ctx, req, st)
	}
	switch {
	case err != nil:
		return answerOfError(err)
	case st.Result != nil:
		return answerOf(*st.Result, ofRevision(req))
	case st.Status == StatusAwaiting:
		return waiting(st), nil
	}
	return stillRunning(st, schemas.ToolAsyncStatus), nil
}

// statusOfCalls returns async_status for an agent without background jobs, which can use it for its calls.
func statusOfCalls() Tool {
	return Tool{
		Name:        string(schemas.ToolAsyncStatus),
		Description: "Asks about a call that is still running: status waits for its result and returns it, stop ends it.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"statusId":{"type":"string","description":"The statusId that the call returned."},` +
			`"action":{"type":"string","description":"What to do with the call.","default":"status","enum":["status","stop"]}},` +
			`"required":["statusId"],"additionalProperties":false}`),
		Annotations: Annotations{Destructive: true},
	}
}
