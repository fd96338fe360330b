package sandboxapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/schemas"
)

// execution is one request and the calls that it makes. Only the goroutine of its handler uses it.
type execution struct {
	api     *sessions
	tenant  schemas.AccountID
	session schemas.SandboxSession
	key     string // the client's; empty: no client asks for it again
	tool    string // of the metrics
	timeout time.Duration
	began   time.Time
	cold    bool // the session had no instance

	artifacts []string // patterns that name those of its calls

	fresh string // the random id if there is no key
	calls int    // that were made
}

const (
	// queueing is how long a call may wait until it runs.
	queueing = time.Minute
	// slack is how much later than its deadline the result of a call may come.
	slack = 30 * time.Second
	// look is how often a session is marked as used while a call runs in it.
	look = schemas.SandboxSessionLag / 2
)

// id returns the id of the n-th call of the request, counted from 1. If the request has a key, the id is derived from the key and the
// session, so that a repeated request finds the same calls.
func (x *execution) id(n int) schemas.CallID {
	if x.key == "" && x.fresh == "" {
		x.fresh = schemas.NewID("exec_")
	}
	id := x.fresh
	if x.key != "" {
		sum := sha256.Sum256([]byte("sandbox\x00" + x.session.ID + "\x00" + x.key))
		id = "exec_" + hex.EncodeToString(sum[:16])
	}
	if n > 1 {
		id += "-" + strconv.Itoa(n)
	}
	return schemas.CallID(id)
}

// enter enters the session. A repeated request uses the workspace of its first call, even if the session was destroyed since.
func (x *execution) enter(ctx context.Context) error {
	if x.key != "" {
		call, err := x.api.Calls.Find(ctx, x.tenant, x.id(1))
		if err == nil {
			x.session.Workspace, x.session.Sandbox, x.session.Provider = call.Workspace, call.Sandbox, call.Provider
			return nil
		}
		if !errors.Is(err, schemas.ErrNotFound) {
			return err
		}
	}
	s, began, err := x.api.session(ctx, x.tenant, x.session.ID, entry{})
	if err != nil {
		return err
	}
	x.session, x.cold = s, began
	return nil
}

// call makes the next call and waits for its result. The result is nil if it did not arrive in time or the gateway is stopping. If the
// client disconnects, a call without a key is cancelled, since no other request could get its result.
func (x *execution) call(ctx context.Context, tool schemas.Tool, input any, d schemas.Dialect, timeout time.Duration) (
	*schemas.Result, schemas.Call, error,
) {
	a := x.api
	b, err := schemas.EncodeJSON(input)
	if err != nil {
		return nil, schemas.Call{}, schemas.Wrap(schemas.Internal, "sandbox", "the input cannot be encoded", err)
	}
	x.calls++
	if timeout == 0 {
		timeout = x.timeout
	}
	r := schemas.Request{
		ID: x.id(x.calls), Conversation: conversationOf(x.session.ID), Tool: tool, Input: b, Dialect: d,
		Workspace: string(x.session.Workspace), Sandbox: string(x.session.Sandbox), Timeout: schemas.Duration(timeout),
		Artifacts: x.artifacts,
	}
	call, err := a.Calls.Submit(ctx, x.tenant, r, queueing)
	if err != nil {
		return nil, call, err
	}
	until := call.Deadline.Add(slack)
	for {
		within := min(look, until.Sub(a.Now()))
		if within <= 0 || a.stopping() {
			return nil, call, nil
		}
		result, err := a.Calls.Await(ctx, call, within)
		if ctx.Err() != nil {
			if x.key == "" {
				x.cancel(ctx, call)
			}
			return nil, call, ctx.Err()
		}
		if result != nil || err != nil {
			x.started(call, result)
			return result, call, err
		}
		a.touch(ctx, x.tenant, x.session.ID)
	}
}

func (x *execution) cancel(ctx context.Context, call schemas.Call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err := x.api.Calls.Cancel(ctx, call, "its client has gone")
	if err != nil && !errors.Is(err, schemas.ErrConflict) {
		x.api.Log.Warn("call not cancelled, its client has gone", "call", call.ID, "error", err)
	}
}

func (x *execution) started(call schemas.Call, r *schemas.Result) {
	if x.cold && r != nil && !r.Started.IsZero() {
		x.cold = false
		x.api.Metrics.Started(max(0, r.Started.Sub(call.Accepted)))
	}
}

func (x *execution) bash(ctx context.Context, command string, timeout time.Duration) (*schemas.Result, schemas.Call, error) {
	return x.call(ctx, schemas.ToolBash, schemas.BashInput{Command: command}, "", timeout)
}

// finished returns the result of a call that has run. Its parameters are what call returns. Codes: those of [failure], unavailable (the
// result did not arrive in time).
func (x *execution) finished(r *schemas.Result, _ schemas.Call, err error) (schemas.Result, error) {
	switch {
	case err != nil:
		return schemas.Result{}, err
	case r == nil:
		return schemas.Result{}, schemas.Errorf(schemas.Unavailable,
			"the answer is not there yet: ask again, with the same Idempotency-Key for what must not be done twice")
	}
	return *r, failure(*r)
}

// failure returns the error to answer for a call that has not run to its end; nil if it has.
func failure(r schemas.Result) error {
	say := func(code schemas.Code, otherwise string) error {
		e := schemas.Error{Code: code, Message: otherwise}
		if r.Error != nil {
			e = *r.Error
		}
		if r.Error == nil && r.Text != "" {
			e.Message = r.Text
		}
		return &e
	}
	switch r.Status {
	case schemas.StatusCompleted:
		if r.Output == nil && r.StatusID == "" {
			return say(schemas.Internal, "the call has no output")
		}
		return nil
	case schemas.StatusDenied:
		if r.Output != nil && r.Output.Denied != nil {
			return nil // the command has an exit code
		}
		return say(schemas.Denied, "it was denied")
	case schemas.StatusCancelled:
		return say(schemas.Conflict, "it was cancelled")
	case schemas.StatusInterrupted:
		return say(schemas.Interrupted, "its worker died while it ran: whether it took effect is unknown, and it is not run again")
	case schemas.StatusExpired:
		return say(schemas.Timeout, "no worker had a place for it in time")
	case schemas.StatusFailed:
	}
	return say(schemas.Internal, "it failed")
}

// end reports a request to the metrics, with its outcome or the code of its error.
func (x *execution) end(outcome string, err error) {
	if err != nil && !errors.Is(err, errAnswered) {
		outcome = string(schemas.Public(err).Code)
	}
	x.api.Metrics.Executed(x.session.Provider, x.tool, outcome, time.Since(x.began))
}

// ran writes the response with the output of a command, or the response 202 that says where to ask for it. It returns the outcome for the
// metrics.
func (x *execution) ran(w http.ResponseWriter, r *schemas.Result, call schemas.Call, err error) (string, error) {
	if err != nil {
		return "", err
	}
	id := call.ID
	if r == nil {
		web.WriteJSON(w, http.StatusAccepted, Pending{
			ExecutionID: id, SessionID: x.session.ID, StatusURL: "/v1/calls/" + string(id), JobID: string(call.Job),
		})
		return "pending", nil
	}
	if err := failure(*r); err != nil {
		return "", err
	}
	if r.StatusID != "" {
		web.WriteJSON(w, http.StatusAccepted, Pending{
			ExecutionID: id, SessionID: x.session.ID, StatusURL: "/v1/jobs/" + r.StatusID, JobID: r.StatusID,
		})
		return "background", nil
	}
	o := r.Output
	answer := Envelope{
		ExecutionID: id, SessionID: x.session.ID, OK: o.OK, ExitCode: o.ExitCode, TimedOut: o.TimedOut, Truncated: o.Truncated,
		DurationMS: o.DurationMS, Stdout: o.Stdout, Stderr: o.Stderr, Artifacts: []Artifact{},
	}
	for _, f := range r.Artifacts {
		answer.Artifacts = append(answer.Artifacts, Artifact{
			ArtifactID: f.ID, Path: f.Path, Name: f.Name, MIMEType: f.MIMEType, Size: f.Size, SHA256: f.SHA256, Kind: f.Kind, URL: f.URL, CallID: f.Call,
		})
	}
	x.api.Metrics.Artifacts(len(answer.Artifacts))
	web.WriteJSON(w, http.StatusOK, answer)
	switch {
	case o.TimedOut:
		return "timed_out", nil
	case !o.OK:
		return "failed", nil
	}
	return "ok", nil
}

// Envelope is the response to execute and bash.
type Envelope struct {
	ExecutionID schemas.CallID `json:"execution_id"` // the call's id
	SessionID   string         `json:"session_id"`
	OK          bool           `json:"ok"`
	ExitCode    int            `json:"exit_code"`
	TimedOut    bool           `json:"timed_out"`
	Truncated   bool           `json:"truncated"`
	DurationMS  int64          `json:"duration_ms"`
	Stdout      string         `json:"stdout"`
	Stderr      string         `json:"stderr"`
	Artifacts   []Artifact     `json:"artifacts"`
}

// Artifact is an artifact in the format of other sandbox services; see [schemas.Artifact] for its fields.
type Artifact struct {
	ArtifactID schemas.ArtifactID   `json:"artifact_id"`
	Path       string               `json:"path"` // relative to the workspace
	Name       string               `json:"name"`
	MIMEType   string               `json:"mime_type"`
	Size       int64                `json:"size"`
	SHA256     string               `json:"sha256"`
	Kind       schemas.ArtifactKind `json:"kind"`
	URL        string               `json:"url"`
	CallID     schemas.CallID       `json:"call_id"`
}

// Pending is the response 202: the job that was started, or a call that has no result yet.
type Pending struct {
	ExecutionID schemas.CallID `json:"execution_id"`
	SessionID   string         `json:"session_id"`
	JobID       string         `json:"job_id,omitzero"`
	StatusURL   string         `json:"status_url"` // ask there
}
