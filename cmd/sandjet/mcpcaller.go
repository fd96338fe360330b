package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// mcpClient implements [mcp.Caller] with a gateway's HTTP API. It retries an unreachable gateway for at most patience.
type mcpClient struct {
	*client.Client

	patience time.Duration
}

// Tools implements [mcp.Caller].
func (c mcpClient) Tools(ctx context.Context, agent schemas.AgentID) ([]mcp.Tool, error) {
	raw, err := patiently(ctx, c.patience, func(ctx context.Context) (json.RawMessage, error) {
		if agent == "" {
			return c.Client.Tools(ctx, "mcp", "")
		}
		return c.AgentTools(ctx, client.Me, string(agent), "mcp", "")
	})
	if err != nil {
		return nil, err
	}
	var list []mcp.Tool
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("decode the tools: %w", err)
	}
	return list, nil
}

// Submit implements [mcp.Caller].
func (c mcpClient) Submit(ctx context.Context, r schemas.Request) (mcp.State, error) {
	st, err := patiently(ctx, c.patience, func(ctx context.Context) (client.State, error) { return c.Client.Submit(ctx, r) })
	return mcpState(st), err
}

// Wait implements [mcp.Caller].
func (c mcpClient) Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (mcp.State, error) {
	st, err := patiently(ctx, c.patience, func(ctx context.Context) (client.State, error) { return c.Get(ctx, id) })
	if err != nil || wait <= 0 || st.Result != nil || st.Status == mcp.StatusAwaiting {
		return mcpState(st), err
	}
	got, err := patiently(ctx, wait+time.Second, func(ctx context.Context) (client.State, error) { return c.WaitFor(ctx, id, wait) })
	if errors.Is(err, schemas.ErrUnavailable) {
		return mcpState(st), nil // the last known state: the call is on the log, and continues
	}
	return mcpState(got), err
}

// Output implements [mcp.Caller].
func (c mcpClient) Output(ctx context.Context, conv schemas.ConversationID, id schemas.CallID, each func(text string)) error {
	for item, err := range c.Events(ctx, conv, schemas.Tail) {
		if err != nil {
			return err
		}
		if item.Event.Type != schemas.CallOutput {
			continue
		}
		var data schemas.OutputData
		if json.Unmarshal(item.Event.Data, &data) == nil && data.Call == id {
			each(data.Text)
		}
	}
	return nil
}

// Approval implements [mcp.Caller].
func (c mcpClient) Approval(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	return patiently(ctx, c.patience, func(ctx context.Context) (schemas.Approval, error) { return c.Client.Approvals().Get(ctx, id) })
}

// Decide implements [mcp.Caller].
func (c mcpClient) Decide(ctx context.Context, id schemas.ApprovalID, a schemas.ApprovalAnswer) error {
	_, err := patiently(ctx, c.patience, func(ctx context.Context) (schemas.Approval, error) {
		switch {
		case a.Approved == nil || !*a.Approved:
			return c.Approvals().Deny(ctx, id, a.Reason)
		case a.Remember != "":
			return c.Approvals().ApproveAll(ctx, id, a.Reason)
		}
		return c.Approvals().Approve(ctx, id, a.Reason)
	})
	return err
}

// Artifacts implements [mcp.Caller].
func (c mcpClient) Artifacts(ctx context.Context, conv schemas.ConversationID, limit int, after schemas.ArtifactID) (
	[]schemas.Artifact, schemas.ArtifactID, error,
) {
	p, err := patiently(ctx, c.patience, func(ctx context.Context) (p artifactsPage, err error) {
		p.list, p.next, err = c.Client.Artifacts().List(ctx, conv, limit, after)
		return p, err
	})
	return p.list, p.next, err
}

type artifactsPage struct {
	list []schemas.Artifact
	next schemas.ArtifactID
}

// Artifact implements [mcp.Caller]. The gateway describes an artifact only in the list of its conversation.
func (c mcpClient) Artifact(ctx context.Context, of schemas.ConversationID, id schemas.ArtifactID, most int64) (
	a schemas.Artifact, content []byte, err error,
) {
	if of != "" {
		if a, err = c.artifactOf(ctx, of, id); err != nil {
			return a, nil, err
		}
		if a.Size > most {
			return a, nil, mcp.ArtifactTooLarge(id, a.Size, most)
		}
	}
	got := &atMost{most: most}
	name, err := patiently(ctx, c.patience, func(ctx context.Context) (string, error) {
		name, _, err := c.Client.Artifacts().Download(ctx, id, got)
		return name, err
	})
	switch {
	case got.over:
		return a, nil, mcp.ArtifactTooLarge(id, 0, most)
	case err != nil:
		return a, nil, err
	case of == "":
		a.ID, a.Name, a.MIMEType = id, name, schemas.MediaType(name, got.Bytes())
	}
	return a, got.Bytes(), nil
}

// artifactOf searches the list of a conversation, which is bounded, for an artifact. Code: not_found.
func (c mcpClient) artifactOf(ctx context.Context, of schemas.ConversationID, id schemas.ArtifactID) (schemas.Artifact, error) {
	const page = 200
	for after := schemas.ArtifactID(""); ; {
		list, next, err := c.Artifacts(ctx, of, page, after)
		if err != nil {
			return schemas.Artifact{}, err
		}
		for _, a := range list {
			if a.ID == id {
				return a, nil
			}
		}
		if after = next; after == "" {
			return schemas.Artifact{}, schemas.Errorf(schemas.NotFound, "there is no such artifact in the conversation")
		}
	}
}

// atMost is a buffer of at most that many bytes. A write beyond them fails and sets over. Code: exhausted.
type atMost struct {
	bytes.Buffer

	most int64
	over bool
}

// Write implements [io.Writer].
func (w *atMost) Write(b []byte) (int, error) {
	if int64(w.Len()+len(b)) > w.most {
		w.over = true
		return 0, schemas.Errorf(schemas.Exhausted, "more than %d bytes came", w.most)
	}
	return w.Buffer.Write(b)
}

// Job implements [mcp.Caller].
func (c mcpClient) Job(ctx context.Context, id schemas.JobID) (schemas.Job, error) {
	return patiently(ctx, c.patience, func(ctx context.Context) (schemas.Job, error) { return c.Client.Jobs().Get(ctx, id) })
}

// StopJob implements [mcp.Caller].
func (c mcpClient) StopJob(ctx context.Context, id schemas.JobID, reason string) error {
	_, err := patiently(ctx, c.patience, func(ctx context.Context) (schemas.Job, error) { return c.Client.Jobs().Stop(ctx, id, reason) })
	return err
}

func mcpState(st client.State) mcp.State {
	return mcp.State{
		ID: st.ID, Conversation: st.Conversation, Status: st.Status, Approval: st.Approval, Accepted: st.Accepted, Result: st.Result,
	}
}

// patiently calls ask with a time limit. Without one the client would retry as long as its context lasts. Code unavailable: the limit was
// reached.
func patiently[T any](ctx context.Context, most time.Duration, ask func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	got, err := ask(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		var none T
		return none, schemas.Errorf(schemas.Unavailable, "Sandjet does not answer: is it still running? Calls that it had accepted are kept")
	}
	return got, err
}
