package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a caller whose calls end when a test says so.
type desk struct {
	mu        sync.Mutex
	calls     map[schemas.CallID]*held
	submitted []schemas.Request
	cancelled []schemas.CallID
	decided   []schemas.ApprovalAnswer
	changed   chan struct{} // closed and replaced at each change
	refuse    error         // of Submit
	tools     []mcp.Tool    // nil: bash and async_status
	ask       bool          // calls wait for a person
	jobs      map[schemas.JobID]schemas.Job
	output    chan string
	artifacts []left
}

type held struct {
	request schemas.Request
	result  *schemas.Result
	asked   bool
}

func newDesk() *desk {
	return &desk{calls: map[schemas.CallID]*held{}, changed: make(chan struct{}), jobs: map[schemas.JobID]schemas.Job{},
		output: make(chan string)}
}

func (d *desk) change() {
	close(d.changed)
	d.changed = make(chan struct{})
}

var accepted = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func (d *desk) Tools(context.Context, schemas.AgentID) ([]mcp.Tool, error) {
	if d.tools != nil {
		return d.tools, nil
	}
	schema := json.RawMessage(`{"type":"object","properties":{},"additionalProperties":true}`)
	return []mcp.Tool{
		{Name: "bash", Description: "runs", InputSchema: schema, Annotations: mcp.Annotations{Destructive: true, OpenWorld: true}},
		{Name: "async_status", Description: "asks", InputSchema: schema},
	}, nil
}

func (d *desk) Submit(_ context.Context, r schemas.Request) (mcp.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return mcp.State{}, d.refuse
	}
	r, err := r.Parsed()
	if err != nil {
		return mcp.State{}, err
	}
	d.submitted = append(d.submitted, r)
	if d.calls[r.ID] == nil {
		d.calls[r.ID] = &held{request: r, asked: d.ask}
		if misuse := r.Misuse(); misuse != nil {
			d.calls[r.ID].result = &schemas.Result{Call: r.ID, Status: schemas.StatusFailed, Text: "Error: " + misuse.Error(), Error: misuse}
		}
	}
	d.change()
	return d.state(r.ID), nil
}

func (d *desk) state(id schemas.CallID) mcp.State {
	h := d.calls[id]
	st := mcp.State{ID: id, Conversation: h.request.Conversation, Status: mcp.StatusRunning, Accepted: accepted, Result: h.result}
	switch {
	case h.result != nil:
		st.Status = string(h.result.Status)
	case h.asked:
		st.Status, st.Approval = mcp.StatusAwaiting, "appr_"+schemas.ApprovalID("1")
	}
	return st
}

func (d *desk) Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (mcp.State, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		d.mu.Lock()
		h, changed := d.calls[id], d.changed
		if h == nil {
			d.mu.Unlock()
			return mcp.State{}, schemas.Errorf(schemas.NotFound, "there is no call %s", id)
		}
		st := d.state(id)
		d.mu.Unlock()
		if st.Result != nil || st.Status == mcp.StatusAwaiting || wait <= 0 {
			return st, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return st, nil
		case <-ctx.Done():
			return mcp.State{}, ctx.Err()
		}
	}
}

func (d *desk) Cancel(_ context.Context, id schemas.CallID, _ string) error {
	d.finish(id, schemas.StatusCancelled, "cancelled")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancelled = append(d.cancelled, id)
	d.change()
	return nil
}

func (d *desk) Output(ctx context.Context, _ schemas.ConversationID, _ schemas.CallID, each func(string)) error {
	for {
		select {
		case s := <-d.output:
			each(s)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *desk) Approval(_ context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.calls {
		return schemas.Approval{ID: id, Call: schemas.Call{Tool: h.request.Tool, Input: h.request.Input}}, nil
	}
	return schemas.Approval{}, schemas.Errorf(schemas.NotFound, "there is none")
}

func (d *desk) Decide(_ context.Context, _ schemas.ApprovalID, a schemas.ApprovalAnswer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = append(d.decided, a)
	for _, h := range d.calls {
		if h.asked && !*a.Approved {
			h.result = &schemas.Result{Call: h.request.ID, Tool: h.request.Tool, Status: schemas.StatusDenied, Text: "a person said no"}
		}
		h.asked = false
	}
	d.change()
	return nil
}

func (d *desk) Job(_ context.Context, id schemas.JobID) (schemas.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, ok := d.jobs[id]
	if !ok {
		return j, schemas.Errorf(schemas.NotFound, "there is no job %s", id)
	}
	return j, nil
}

func (d *desk) StopJob(_ context.Context, id schemas.JobID, _ string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	j, ok := d.jobs[id]
	if !ok {
		return schemas.Errorf(schemas.NotFound, "there is no job %s", id)
	}
	j.State, j.Completion = schemas.JobStopped, &schemas.Completion{State: schemas.JobStopped, Finished: accepted}
	d.jobs[id] = j
	return nil
}

// finish ends a call, unless it has ended.
func (d *desk) finish(id schemas.CallID, status schemas.Status, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h := d.calls[id]; h != nil && h.result == nil {
		h.result = &schemas.Result{Call: id, Conversation: h.request.Conversation, Tool: h.request.Tool, Status: status, Text: text,
			Started: accepted, Finished: accepted.Add(time.Second)}
	}
	d.change()
}

// next waits for call number n, from 0, and returns its id.
func (d *desk) next(t *testing.T, n int) schemas.CallID {
	t.Helper()
	var id schemas.CallID
	d.until(t, func() bool {
		if len(d.submitted) > n {
			id = d.submitted[n].ID
		}
		return id != ""
	})
	return id
}

// until waits for a change that makes ok true, which is called under the desk's mutex.
func (d *desk) until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.After(time.Minute); ; {
		d.mu.Lock()
		done, changed := ok(), d.changed
		d.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatal("it never came")
		}
	}
}

// line is a client on a pair of streams, beside the server that answers it.
type line struct {
	*sdk.ClientSession

	desk   *desk
	server *mcp.Server
	ended  chan error
	hangUp func() // closes the server's input
}

func scopeOf(d *desk) mcp.Scope {
	return mcp.Scope{Account: "acct_a", Conversation: "c_1", Caller: d}
}

func dial(t *testing.T, d *desk, o mcp.Options, client *sdk.Client) *line {
	t.Helper()
	l := dialScope(t, scopeOf(d), o, client)
	l.desk = d
	return l
}

func dialScope(t *testing.T, scope mcp.Scope, o mcp.Options, client *sdk.Client) *line {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	s := mcp.New(o)
	l := &line{server: s, ended: make(chan error, 1), hangUp: func() { _ = toServer.Close() }}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		err := s.RunStdio(ctx, scope, in, out)
		_ = out.Close()
		l.ended <- err
	}()
	var err error
	l.ClientSession, err = client.Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		cancel()
		l.hangUp()
		_ = in.Close()
		if err := <-l.ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return l
}

func newClient(o *sdk.ClientOptions) *sdk.Client {
	return sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
}

// bash is a call of the tool, with marks.
func bash(meta map[string]any) *sdk.CallToolParams {
	return &sdk.CallToolParams{Meta: meta, Name: "bash", Arguments: map[string]any{"command": "echo"}}
}
