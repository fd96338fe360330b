package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

// The states of a task, by the extension.
const (
	taskWorking   = "working"
	taskInput     = "input_required"
	taskCompleted = "completed"
	taskCancelled = "cancelled"
)

const (
	taskKept = 24 * time.Hour  // that a call is asked about
	jobKept  = 168 * time.Hour // that a job is, from its end on
	taskPoll = 2 * time.Second
)

// taskResult is a task in the answer to a tools/call or tasks/get. A task is a call, and has the call's id, so it is on the log before any
// client knows it, and any process can answer for it.
type taskResult struct {
	sdk.ResultBase

	ResultType    string              `json:"resultType"` //nolint:tagliatelle // the protocol's, and likewise below
	TaskID        string              `json:"taskId"`     //nolint:tagliatelle // likewise
	Status        string              `json:"status"`
	StatusMessage string              `json:"statusMessage,omitempty"`  //nolint:tagliatelle // likewise
	CreatedAt     time.Time           `json:"createdAt"`                //nolint:tagliatelle // likewise
	LastUpdatedAt time.Time           `json:"lastUpdatedAt"`            //nolint:tagliatelle // likewise
	TTLMs         int64               `json:"ttlMs"`                    //nolint:tagliatelle // likewise
	PollMs        int64               `json:"pollIntervalMs,omitempty"` //nolint:tagliatelle // likewise
	Result        *sdk.CallToolResult `json:"result,omitempty"`
	InputRequests sdk.InputRequestMap `json:"inputRequests,omitempty"` //nolint:tagliatelle // likewise
}

// done is the answer without content.
type done struct {
	sdk.ResultBase

	ResultType string `json:"resultType"` //nolint:tagliatelle // the protocol's
}

// taskParams are the parameters of all methods about tasks.
type taskParams struct {
	sdk.ParamsBase

	TaskID         string               `json:"taskId"`                   //nolint:tagliatelle // the protocol's
	InputResponses sdk.InputResponseMap `json:"inputResponses,omitempty"` //nolint:tagliatelle // likewise
}

// hasTasks reports whether the client accepts a task as an answer.
func hasTasks(req interface {
	ClientCapabilities() *sdk.ClientCapabilities
}) bool {
	has := req.ClientCapabilities()
	if has == nil {
		return false
	}
	_, ok := has.Extensions[extensionTasks]
	return ok
}

// createdTask returns the answer to a tools/call that still runs: a task.
func createdTask(st State) *taskResult {
	t := taskOf(st)
	t.ResultType = "task"
	return t
}

// taskOf returns the task of a call without a result.
func taskOf(st State) *taskResult {
	message := "The call is " + st.Status + "."
	if st.Withheld != nil {
		message = "The result is not sent yet: " + st.Withheld.Error() + "."
	}
	return &taskResult{
		ResultType: "complete", TaskID: string(st.ID), Status: taskWorking, StatusMessage: message,
		CreatedAt: st.Accepted, LastUpdatedAt: st.Accepted, TTLMs: taskKept.Milliseconds(), PollMs: taskPoll.Milliseconds(),
	}
}

// addTasks registers the methods of the extension.
func (c *session) addTasks(srv *sdk.Server) {
	err := errors.Join(
		sdk.AddReceivingCustomMethod(srv, "tasks/get", func(ctx context.Context, ss *sdk.ServerSession, p *taskParams) (*taskResult, error) {
			return c.getTask(ctx, ss, p)
		}),
		sdk.AddReceivingCustomMethod(srv, "tasks/update", func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (*done, error) {
			return c.updateTask(ctx, p)
		}),
		sdk.AddReceivingCustomMethod(srv, "tasks/cancel", func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (*done, error) {
			return c.cancelTask(ctx, p)
		}))
	if err != nil {
		panic(fmt.Sprintf("methods of tasks: %v", err)) // the SDK has them by itself: found by any test
	}
}

// requiredForTasks is the data of the error for a client that has not declared the extension.
const requiredForTasks = `{"requiredCapabilities":{"extensions":{"` + extensionTasks + `":{}}}}`

// checkTaskRequest rejects a request of a client that has not declared the extension.
func checkTaskRequest(req sdk.Request) error {
	client, ok := req.(interface {
		ClientCapabilities() *sdk.ClientCapabilities
	})
	if !ok || !hasTasks(client) {
		return &jsonrpc.Error{
			Code:    sdk.CodeMissingRequiredClientCapabilities,
			Message: "the client must declare the extension " + extensionTasks + " in its capabilities", Data: json.RawMessage(requiredForTasks),
		}
	}
	return nil
}

// getTask returns a task, with its state from the log.
func (c *session) getTask(ctx context.Context, ss *sdk.ServerSession, p *taskParams) (*taskResult, error) {
	if isJob(p) {
		return c.getJob(ctx, p)
	}
	st, err := c.taskState(ctx, p)
	if err != nil {
		return nil, err
	}
	t := taskOf(st)
	switch {
	case st.Result != nil: // a client that knows tasks knows links
		t.LastUpdatedAt, t.PollMs, t.StatusMessage = st.Result.Finished, 0, "The call is "+string(st.Result.Status)+"."
		if st.Result.Status == schemas.StatusCancelled {
			t.Status = taskCancelled
			return t, nil
		}
		t.Status = taskCompleted
		if t.Result, err = answerOf(*st.Result, stateless); err != nil {
			return nil, err
		}
	case st.Status == StatusAwaiting:
		t.StatusMessage = howToAllow(st)
		ask := &sdk.ServerRequest[*taskParams]{Session: ss, Params: p}
		if !canAsk(ask) {
			return t, nil // it still waits: another person may answer
		}
		a, err := c.scope.Caller.Approval(ctx, st.Approval)
		if err != nil {
			return nil, protocolError(err)
		}
		t.Status = taskInput
		t.InputRequests = sdk.InputRequestMap{string(st.Approval): c.question(a.Call.Tool, a.Call.Input)}
	}
	return t, nil
}

// updateTask accepts the user's answers. Answers to no open question are ignored, as the extension requires.
func (c *session) updateTask(ctx context.Context, p *taskParams) (*done, error) {
	if isJob(p) {
		return &done{ResultType: "complete"}, nil
	}
	st, err := c.taskState(ctx, p)
	if err != nil {
		return nil, err
	}
	if st.Status == StatusAwaiting && st.Result == nil {
		if err := c.decide(ctx, st.Approval, p.InputResponses); err != nil {
			return nil, protocolError(err)
		}
	}
	return &done{ResultType: "complete"}, nil
}

// cancelTask requests the cancellation of a task. A task that has ended stays as it is.
func (c *session) cancelTask(ctx context.Context, p *taskParams) (*done, error) {
	var err error
	if isJob(p) {
		err = c.scope.Caller.StopJob(ctx, schemas.JobID(p.TaskID), "cancelled by the client")
	} else if _, err = c.taskState(ctx, p); err == nil {
		err = c.scope.Caller.Cancel(ctx, schemas.CallID(p.TaskID), "cancelled by the client")
	} else {
		return nil, err
	}
	if err != nil && !errors.Is(err, schemas.ErrConflict) {
		return nil, protocolError(err)
	}
	return &done{ResultType: "complete"}, nil
}

func (c *session) taskState(ctx context.Context, p *taskParams) (State, error) {
	id := schemas.CallID(p.TaskID)
	if err := id.Validate(); err != nil {
		return State{}, protocolError(schemas.Invalidf("taskId", "names no task"))
	}
	st, err := c.scope.Caller.Wait(ctx, id, 0)
	if err != nil {
		return State{}, protocolError(err)
	}
	return st, nil
}

func isJob(p *taskParams) bool { return strings.HasPrefix(p.TaskID, schemas.JobPrefix) }

// getJob returns a background job as a task: a client may follow it by the status_id of the call that started it.
func (c *session) getJob(ctx context.Context, p *taskParams) (*taskResult, error) {
	j, err := c.scope.Caller.Job(ctx, schemas.JobID(p.TaskID))
	if err != nil {
		return nil, protocolError(err)
	}
	t := &taskResult{
		ResultType: "complete", TaskID: p.TaskID, Status: taskWorking, StatusMessage: "The job is " + string(j.State) + ".",
		CreatedAt: j.Created, LastUpdatedAt: later(j.Created, j.Launched),
		TTLMs: (max(j.Deadline.Sub(j.Created), 0) + jobKept).Milliseconds(), PollMs: taskPoll.Milliseconds(),
	}
	if !j.State.Final() || j.Completion == nil {
		return t, nil
	}
	end := *j.Completion
	t.LastUpdatedAt, t.PollMs = end.Finished, 0
	if j.State == schemas.JobStopped {
		t.Status = taskCancelled
		return t, nil
	}
	content, err := json.Marshal(schemas.JobResultOf(j, end))
	if err != nil {
		return nil, protocolError(err)
	}
	text := "The job is " + string(j.State) + "."
	if end.Reason != "" {
		text += " " + end.Reason
	}
	if end.Logs != "" {
		text += "\n" + end.Logs
	}
	t.Status = taskCompleted
	t.Result = &sdk.CallToolResult{
		Content: append([]sdk.Content{&sdk.TextContent{Text: text}}, links(stateless, end.Artifacts)...), StructuredContent: json.RawMessage(content),
		IsError: j.State != schemas.JobCompleted,
	}
	return t, nil
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
