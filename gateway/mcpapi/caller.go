package mcpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

// caller executes the operations of one request of the protocol, for its account.
type caller struct {
	o       Options
	account schemas.AccountID
	hold    *web.Hold // of the request that is answered
}

// Tools implements [mcp.Caller].
func (c caller) Tools(ctx context.Context, agent schemas.AgentID) ([]mcp.Tool, error) {
	if c.o.Tools == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway shows no tool definitions")
	}
	visible := schemas.AllTools()
	if agent != "" && c.o.Agents != nil {
		var err error
		if visible, err = c.o.Agents.ToolVisibility(ctx, c.account, agent); err != nil {
			return nil, err
		}
	}
	list, err := c.o.Tools(visible, "mcp", "")
	if err != nil {
		return nil, err
	}
	b, err := schemas.EncodeJSON(list)
	if err != nil {
		return nil, schemas.Wrap(schemas.Internal, "list tools", "they cannot be encoded", err)
	}
	var tools []mcp.Tool
	if err := json.Unmarshal(b, &tools); err != nil {
		return nil, schemas.Wrap(schemas.Internal, "list tools", "they are of another form", err)
	}
	return tools, nil
}

// Submit implements [mcp.Caller].
func (c caller) Submit(ctx context.Context, r schemas.Request) (mcp.State, error) {
	body, err := schemas.EncodeJSON(r)
	if err != nil {
		return mcp.State{}, schemas.Invalidf("input", "is not JSON")
	}
	if r, err = schemas.DecodeRequest(body); err != nil { // as strictly as what comes in by itself
		return mcp.State{}, err
	}
	got, err := c.o.Calls.Admit(ctx, c.o.Calls.Admitter(admission.API), c.account, r)
	if err != nil {
		return mcp.State{}, err
	}
	if got.Existing {
		return c.state(ctx, got.Call, 0)
	}
	status := mcp.StatusQueued
	if got.Awaiting {
		status = mcp.StatusAwaiting
	}
	return stateOf(got.Call, status), nil
}

func stateOf(c schemas.Call, status string) mcp.State {
	s := mcp.State{ID: c.ID, Conversation: c.Conversation, Status: status, Accepted: c.Accepted}
	if status == mcp.StatusAwaiting {
		s.Approval = c.Approval
	}
	return s
}

// Wait implements [mcp.Caller].
func (c caller) Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (mcp.State, error) {
	call, err := c.o.Calls.Find(ctx, c.account, id)
	if err != nil {
		return mcp.State{}, err
	}
	return c.state(ctx, call, wait)
}

func (c caller) state(ctx context.Context, call schemas.Call, wait time.Duration) (mcp.State, error) {
	status, err := c.o.Calls.Queued(ctx, call)
	if err != nil {
		return mcp.State{}, err
	}
	if status == calls.StateAwaiting {
		return stateOf(call, status), nil
	}
	var state callstate.State
	if wait > 0 {
		got, err := c.o.Calls.UntilEnd(ctx, call, wait)
		code := schemas.CodeOf(err)
		switch {
		case got != nil:
			state = *got
		case ctx.Err() != nil:
			return mcp.State{}, ctx.Err()
		case code != schemas.Timeout && code != schemas.Interrupted && code != schemas.NotFound: // the last: no longer kept
			return mcp.State{}, err
		}
	}
	if state.Result == nil {
		if state, err = c.o.Bus.States().Read(ctx, call); err != nil {
			return mcp.State{}, err
		}
		if err := c.o.Calls.Kept(ctx, &state); err != nil {
			return mcp.State{}, err
		}
	}
	if len(state.Started) > 0 {
		status = mcp.StatusRunning
	}
	s := stateOf(call, status)
	if s.Result = state.Result; s.Result == nil {
		return s, nil
	}
	if err := c.hold.Answer(copies * sizeOf(*s.Result)); err != nil {
		s.Status, s.Result, s.Withheld = mcp.StatusRunning, nil, schemas.Public(err)
		return s, nil
	}
	s.Status = string(s.Result.Status)
	return s, nil
}

// copies is how many times a result is in memory while its client does not read it: as JSON, and as the event that it is sent in.
const copies = 2

// sizeOf returns about how many bytes the response with a result has: its text is in it twice, as content and in the record. What JSON
// escaping adds is counted when it is written.
func sizeOf(r schemas.Result) int64 {
	n := 2 * len(r.Text)
	if r.Output != nil {
		n += len(r.Output.Stdout) + len(r.Output.Stderr)
	}
	return int64(n)
}

// Cancel implements [mcp.Caller].
func (c caller) Cancel(ctx context.Context, id schemas.CallID, reason string) error {
	call, err := c.o.Calls.Find(ctx, c.account, id)
	if err != nil {
		return err
	}
	return c.o.Calls.Cancel(ctx, call, admission.API, reason)
}

// Output implements [mcp.Caller].
func (c caller) Output(ctx context.Context, conv schemas.ConversationID, id schemas.CallID, each func(text string)) error {
	for item, err := range streams.Follow(ctx, c.o.Bus, c.account, conv, schemas.Tail) {
		if err != nil {
			return err
		}
		if e := item.Entry.Value; item.Kind == streams.ItemEvent && e.Type == schemas.CallOutput {
			var data schemas.OutputData
			if json.Unmarshal(e.Data, &data) == nil && data.Call == id {
				each(data.Text)
			}
		}
	}
	return nil
}

// Approval implements [mcp.Caller].
func (c caller) Approval(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	return c.o.Approvals.Whole(ctx, c.account, id)
}

// Decide implements [mcp.Caller].
func (c caller) Decide(ctx context.Context, id schemas.ApprovalID, answer schemas.ApprovalAnswer) error {
	_, err := c.o.Approvals.Decide(ctx, c.account, id, admission.DecisionOf(answer, admission.API))
	return err
}

// Artifacts implements [mcp.Caller].
func (c caller) Artifacts(ctx context.Context, conv schemas.ConversationID, limit int, after schemas.ArtifactID) (
	list []schemas.Artifact, next schemas.ArtifactID, err error,
) {
	list, more, err := streams.ListArtifacts(ctx, c.o.Bus, c.account, conv, after, limit)
	if err != nil {
		return nil, "", err
	}
	if more && len(list) > 0 {
		next = list[len(list)-1].ID
	}
	size := int64(0)
	for _, a := range list {
		size += int64(len(a.Path) + len(a.Name) + len(a.MIMEType) + len(a.ID))
	}
	return list, next, c.hold.Answer(copies * size)
}

// Artifact implements [mcp.Caller].
func (c caller) Artifact(ctx context.Context, of schemas.ConversationID, id schemas.ArtifactID, most int64) (
	schemas.Artifact, []byte, error,
) {
	k, err := streams.FindArtifact(ctx, c.o.Bus, c.account, id)
	switch {
	case err != nil:
		return k.Artifact, nil, err
	case of != "" && k.Artifact.Conversation != of:
		return k.Artifact, nil, schemas.Errorf(schemas.NotFound, "there is no such artifact in the conversation")
	case k.Artifact.Size > most:
		return k.Artifact, nil, mcp.ArtifactTooLarge(id, k.Artifact.Size, most)
	}
	if err := c.hold.Answer(copies * int64(base64.StdEncoding.EncodedLen(int(k.Artifact.Size)))); err != nil {
		return k.Artifact, nil, err
	}
	content := make([]byte, 0, k.Artifact.Size)
	for _, name := range k.Chunks {
		chunk, err := streams.ReadArtifactChunk(ctx, c.o.Bus, c.account, name)
		if err != nil {
			return k.Artifact, nil, err
		}
		content = append(content, chunk...)
	}
	return k.Artifact, content, nil
}

// Job implements [mcp.Caller].
func (c caller) Job(ctx context.Context, id schemas.JobID) (schemas.Job, error) {
	p, err := lifecycle.FindJob(ctx, c.o.Bus, c.account, id)
	return p.Value.Public(), err
}

// StopJob implements [mcp.Caller].
func (c caller) StopJob(ctx context.Context, id schemas.JobID, reason string) error {
	_, err := c.o.Jobs.Stop(ctx, c.account, id, reason)
	return err
}
