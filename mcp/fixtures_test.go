package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// fixtures is a caller with the tools that the public conformance package asks a server to have, as far as tools of Sandjet can be like
// them: they answer with text, and a record.
type fixtures struct {
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[schemas.CallID]*fixture
}

// close ends all calls.
func (f *fixtures) close() {
	f.mu.Lock()
	for _, c := range f.calls {
		c.cancel(errors.New("the test has ended"))
	}
	f.mu.Unlock()
	f.running.Wait()
}

// fixture is a call of one of the tools.
type fixture struct {
	request schemas.Request
	begun   time.Time
	allowed chan struct{} // closed when a person has allowed it; nil: none must
	asks    bool
	cancel  context.CancelCauseFunc
	ended   chan struct{}
	result  *schemas.Result
}

// fixtureTool is what a tool does.
type fixtureTool struct {
	description string
	schema      string // of its input; empty: it has none
	lasts       func(in fixtureInput) time.Duration
	task        bool // a client that knows tasks gets one
	asks        bool // a person must allow it
	lines       int  // that it prints, one at its begin and one each second
	ends        schemas.Status
	says        func(in fixtureInput) string
}

// fixtureInput is the input of all of them.
type fixtureInput struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Label   string  `json:"label"`
}

func saying(text string) func(fixtureInput) string { return func(fixtureInput) string { return text } }

// anyOfMany is a schema with the words of JSON Schema 2020-12 that must reach a client as they are.
const anyOfMany = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","$defs":{"address":{"$anchor":"addressDef",` +
	`"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},"properties":{"name":{"type":"string"},` +
	`"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},` +
	`"email":{"type":"string"}},"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],` +
	`"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},` +
	`"else":{"required":["email"]},"additionalProperties":false}`

func fixtureTools() map[schemas.Tool]fixtureTool {
	inSeconds := func(in fixtureInput) time.Duration { return time.Duration(in.Seconds * float64(time.Second)) }
	return map[schemas.Tool]fixtureTool{
		"test_simple_text":    {description: "says something", says: saying("This is a simple text response for testing.")},
		"test_error_handling": {description: "fails", says: saying("This tool intentionally returns an error for testing"), ends: schemas.StatusFailed},
		"test_tool_with_progress": {description: "prints", says: saying("done"), lines: 3,
			lasts: func(fixtureInput) time.Duration { return 3 * time.Second }},
		"json_schema_2020_12_tool": {description: "has a schema", schema: anyOfMany, says: saying("done")},
		"greet": {description: "greets", says: func(in fixtureInput) string { return "Hello, " + in.Name + "!" },
			schema: `{"type":"object","properties":{"name":{"type":"string"}}}`},
		"slow_compute": {description: "takes its time", task: true, lasts: inSeconds,
			says:   func(in fixtureInput) string { return "computed " + in.Label },
			schema: `{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}`},
		"failing_job": {description: "fails after a while", task: true, says: saying("it failed"), ends: schemas.StatusFailed,
			lasts: func(fixtureInput) time.Duration { return 500 * time.Millisecond }},
		"confirm_delete":    {description: "asks a person", task: true, asks: true, says: saying("deleted")},
		"test_logging_tool": {description: "logs nothing", says: saying("done")},
		"async_status":      {description: "asks about nothing", says: saying("there is none"), ends: schemas.StatusFailed},

		"test_input_required_result_elicitation":    {description: "asks a person", asks: true, says: saying("allowed")},
		"test_input_required_result_request_state":  {description: "asks a person", asks: true, says: saying("allowed")},
		"test_input_required_result_tampered_state": {description: "asks a person", asks: true, says: saying("allowed")},
		"test_input_required_result_capabilities":   {description: "asks a person", asks: true, says: saying("allowed")},
		"test_input_required_result_multi_round":    {description: "asks a person", asks: true, says: saying("allowed")},
		"test_streaming_elicitation":                {description: "asks a person", asks: true, says: saying("allowed")},
		"test_elicitation":                          {description: "asks a person", asks: true, says: saying("allowed")},
	}
}

func (f *fixtures) Tools(context.Context, schemas.AgentID) (list []mcp.Tool, err error) {
	for name, t := range fixtureTools() {
		if t.schema == "" {
			t.schema = `{"type":"object","properties":{}}`
		}
		list = append(list, mcp.Tool{Name: string(name), Description: t.description, InputSchema: json.RawMessage(t.schema)})
	}
	return list, nil
}

func (f *fixtures) Submit(_ context.Context, r schemas.Request) (mcp.State, error) {
	tool, ok := fixtureTools()[r.Tool]
	if !ok {
		return mcp.State{}, schemas.OpErrorf(schemas.NotFound, "tool", "there is no tool %s", r.Tool)
	}
	var in fixtureInput
	if err := json.Unmarshal(r.Input, &in); err != nil {
		return mcp.State{}, schemas.Invalidf("input", "is not of the tool's form")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[r.ID] == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		c := &fixture{request: r, begun: time.Now(), asks: tool.asks, allowed: make(chan struct{}), cancel: cancel, ended: make(chan struct{})}
		f.calls[r.ID] = c
		f.running.Go(func() {
			defer close(c.ended)
			f.run(ctx, c, tool, in)
		})
	}
	return f.state(f.calls[r.ID]), nil
}

func (f *fixtures) run(ctx context.Context, c *fixture, tool fixtureTool, in fixtureInput) {
	end := schemas.Result{Call: c.request.ID, Conversation: c.request.Conversation, Tool: c.request.Tool, Started: c.begun,
		Status: schemas.StatusCompleted, Text: tool.says(in)}
	if tool.ends != "" {
		end.Status = tool.ends
	}
	lasts := time.Duration(0)
	if tool.lasts != nil {
		lasts = tool.lasts(in)
	}
	if c.asks {
		select {
		case <-c.allowed:
		case <-ctx.Done():
		}
	}
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		end.Status, end.Text = schemas.StatusCancelled, context.Cause(ctx).Error()
	}
	end.Finished = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	c.result = &end
}

func (f *fixtures) state(c *fixture) mcp.State {
	st := mcp.State{ID: c.request.ID, Conversation: c.request.Conversation, Status: mcp.StatusRunning, Accepted: c.begun, Result: c.result}
	switch {
	case c.result != nil:
		st.Status = string(c.result.Status)
	case c.asks:
		st.Status, st.Approval = mcp.StatusAwaiting, schemas.ApprovalID("appr_"+string(c.request.ID))
	}
	return st
}

func (f *fixtures) Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (mcp.State, error) {
	f.mu.Lock()
	c := f.calls[id]
	if c == nil {
		f.mu.Unlock()
		return mcp.State{}, schemas.Errorf(schemas.NotFound, "there is no call %s", id)
	}
	if fixtureTools()[c.request.Tool].task {
		wait = min(wait, 200*time.Millisecond)
	}
	if st := f.state(c); st.Status == mcp.StatusAwaiting || wait <= 0 {
		f.mu.Unlock()
		return st, nil
	}
	f.mu.Unlock()
	select {
	case <-c.ended:
	case <-time.After(wait):
	case <-ctx.Done():
		return mcp.State{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state(c), nil
}

func (f *fixtures) Cancel(_ context.Context, id schemas.CallID, reason string) error {
	f.mu.Lock()
	c := f.calls[id]
	f.mu.Unlock()
	if c == nil {
		return schemas.Errorf(schemas.NotFound, "there is no call %s", id)
	}
	c.cancel(fmt.Errorf("cancelled: %s", reason))
	<-c.ended
	return nil
}

func (f *fixtures) Output(ctx context.Context, _ schemas.ConversationID, id schemas.CallID, each func(string)) error {
	f.mu.Lock()
	lines := fixtureTools()[f.calls[id].request.Tool].lines
	f.mu.Unlock()
	for n := range lines {
		each(fmt.Sprintf("line %d\n", n))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

func (f *fixtures) Approval(_ context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if f.state(c).Approval == id {
			return schemas.Approval{ID: id, Call: schemas.Call{Tool: c.request.Tool, Input: c.request.Input}}, nil
		}
	}
	return schemas.Approval{}, schemas.Errorf(schemas.NotFound, "there is no question %s", id)
}

func (f *fixtures) Decide(_ context.Context, id schemas.ApprovalID, a schemas.ApprovalAnswer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if f.state(c).Approval != id {
			continue
		}
		c.asks = false
		if !*a.Approved {
			c.cancel(errors.New("denied"))
		}
		close(c.allowed)
		return nil
	}
	return schemas.Errorf(schemas.NotFound, "there is no question %s", id)
}

func (f *fixtures) Job(_ context.Context, id schemas.JobID) (schemas.Job, error) {
	return schemas.Job{}, schemas.Errorf(schemas.NotFound, "there is no job %s", id)
}

func (f *fixtures) StopJob(_ context.Context, id schemas.JobID, _ string) error {
	return schemas.Errorf(schemas.NotFound, "there is no job %s", id)
}

// handler answers at an address as a gateway does, but without keys, which the conformance package has none of.
func (f *fixtures) handler(s *mcp.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.Error(w, "POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, schemas.MaxRequest))
		if err != nil {
			return
		}
		s.Serve(w, r, mcp.Scope{Account: "acct_a", Caller: f}, body)
	})
}
