package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Where the protocol's resource metadata is, by RFC 9728: the path of the resource follows.
const (
	pathMCP         = "/mcp"
	pathMCPMetadata = "/.well-known/oauth-protected-resource"
)

// Headers that browsers may send to pathMCP and read from it.
const (
	mcpAccepted = "Mcp-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id"
	mcpExposed  = "Mcp-Session-Id, WWW-Authenticate"
)

// postMCP answers one message of the Model Context Protocol.
func (g *Gateway) postMCP(w http.ResponseWriter, r *http.Request) error {
	if !web.AllowedOrigin(r, g.Origins) {
		return schemas.Errorf(schemas.Denied, "origin not allowed: the operator can allow it with --origins")
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="sandjet", resource_metadata="`+baseURL(r)+pathMCPMetadata+pathMCP+`"`)
	return g.authenticated(g.serveMCP)(w, r)
}

func (g *Gateway) serveMCP(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	w.Header().Del("WWW-Authenticate")
	scope, err := g.mcpScope(r, a)
	if err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	if mcp.Waits(body) {
		place, err := g.takeWait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
		web.HoldOf(r.Context()).Release()
	}
	g.mcp.Serve(&pushed{w, http.NewResponseController(w), g.edge.Stall}, r, scope, body)
	return nil
}

// mcpScope is what the address of the endpoint says: which agent asks, where its files are and where its events go.
func (g *Gateway) mcpScope(r *http.Request, a schemas.AccountID) (mcp.Scope, error) {
	q, err := web.ParseQuery(r.URL.RawQuery, "agent", "workspace", "conversation")
	if err != nil {
		return mcp.Scope{}, err
	}
	text := func(name string) string { return strings.ToValidUTF8(q.Values.Get(name), "\uFFFD") }
	s := mcp.Scope{
		Account: a, Workspace: text("workspace"), Conversation: schemas.ConversationID(text("conversation")),
		Caller: mcpCaller{g, a, web.HoldOf(r.Context())},
	}
	if s.Conversation != "" {
		if err := s.Conversation.Validate(); err != nil {
			return s, err
		}
	}
	s.Agent, err = g.agentNamed(r.Context(), a, text("agent"))
	return s, err
}

// agentNamed finds an agent by its id or name; empty is none.
func (g *Gateway) agentNamed(ctx context.Context, a schemas.AccountID, name string) (schemas.AgentID, error) {
	if name == "" || g.Accounts == nil {
		return schemas.AgentID(name), nil
	}
	list, err := g.Accounts.Documents.List(ctx, a, schemas.Agents)
	if err != nil {
		return "", err
	}
	for _, d := range list {
		var named struct {
			Name string `json:"name"`
		}
		if d.ID == name || json.Unmarshal(d.JSON, &named) == nil && named.Name == name {
			return schemas.AgentID(d.ID), nil
		}
	}
	return "", &schemas.Error{Code: schemas.NotFound, Field: "agent", Message: "there is no agent " + schemas.Quotable(name)}
}

// mcpMetadata is the document about the endpoint as a protected resource. Its keys are made by Sandjet: no server issues tokens for it.
type mcpMetadata struct {
	Resource string   `json:"resource"`
	Name     string   `json:"resource_name"`
	Methods  []string `json:"bearer_methods_supported"`
}

func (g *Gateway) getMCPMetadata(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	w.Header().Set("Access-Control-Allow-Origin", "*") // it is for everybody, and the same for all
	web.WriteJSON(w, http.StatusOK, mcpMetadata{baseURL(r) + pathMCP, "Sandjet", []string{"header"}})
	return nil
}

// baseURL is how the client of a request reaches the gateway.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	host := strings.Map(func(c rune) rune { // it stands between quotes
		if c <= ' ' || c == '"' || c == '\\' || c > '~' {
			return -1
		}
		return c
	}, r.Host)
	return scheme + "://" + host
}

// pushed is a writer whose every write reaches the client, or ends with it.
type pushed struct {
	http.ResponseWriter

	rc    *http.ResponseController
	stall time.Duration
}

func (p *pushed) Write(b []byte) (int, error) {
	if err := web.Push(p.ResponseWriter, p.rc, b, p.stall); err != nil {
		return 0, err
	}
	return len(b), nil
}

// FlushError does nothing: it is done.
func (p *pushed) FlushError() error { return nil }

// mcpCaller carries out the calls of an account that come in by the protocol.
type mcpCaller struct {
	g       *Gateway
	account schemas.AccountID
	hold    *web.Hold // of the request that is answered
}

// Tools implements [mcp.Caller].
func (c mcpCaller) Tools(ctx context.Context, agent schemas.AgentID) ([]mcp.Tool, error) {
	if c.g.AgentTools == nil {
		return nil, schemas.Errorf(schemas.Unsupported, "this gateway shows no tool definitions")
	}
	visible := everything()
	if agent != "" && c.g.Accounts != nil {
		var err error
		if visible, err = c.g.Accounts.Documents.ToolVisibility(ctx, c.account, agent); err != nil {
			return nil, err
		}
	}
	list, err := c.g.AgentTools(visible, "mcp", "")
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
func (c mcpCaller) Submit(ctx context.Context, r schemas.Request) (mcp.State, error) {
	body, err := schemas.EncodeJSON(r)
	if err != nil {
		return mcp.State{}, schemas.Invalidf("input", "is not JSON")
	}
	if r, err = schemas.DecodeRequest(body); err != nil { // as strictly as what comes in by itself
		return mcp.State{}, err
	}
	g := c.g
	admitter := admission.Admitter{Bus: g.Bus, Records: g.Records, Kind: admission.API, Log: g.Log, Serving: g.Serving}
	got, err := admitter.Admit(ctx, c.account, r)
	if err != nil {
		return mcp.State{}, err
	}
	g.metrics.accepted(admission.API, got.Existing)
	if got.Existing {
		return c.state(ctx, got.Call, 0)
	}
	status := mcp.StatusQueued
	if got.Awaiting {
		status = mcp.StatusAwaiting
	}
	return stateForMCP(got.Call, status), nil
}

func stateForMCP(c schemas.Call, status string) mcp.State {
	s := mcp.State{ID: c.ID, Conversation: c.Conversation, Status: status, Accepted: c.Accepted}
	if status == mcp.StatusAwaiting {
		s.Approval = c.Approval
	}
	return s
}

// Wait implements [mcp.Caller].
func (c mcpCaller) Wait(ctx context.Context, id schemas.CallID, wait time.Duration) (mcp.State, error) {
	call, err := c.g.lookUp(ctx, c.account, id)
	if err != nil {
		return mcp.State{}, err
	}
	return c.state(ctx, call, wait)
}

func (c mcpCaller) state(ctx context.Context, call schemas.Call, wait time.Duration) (mcp.State, error) {
	status, err := c.g.queued(ctx, call)
	if err != nil {
		return mcp.State{}, err
	}
	if status == stateAwaiting {
		return stateForMCP(call, status), nil
	}
	var state streams.CallState
	if wait > 0 {
		got, err := c.g.untilEnd(ctx, call, wait)
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
		if state, err = streams.ReadCallState(ctx, c.g.Bus, call); err != nil {
			return mcp.State{}, err
		}
		if err := c.g.kept(ctx, &state); err != nil {
			return mcp.State{}, err
		}
	}
	if len(state.Started) > 0 {
		status = mcp.StatusRunning
	}
	s := stateForMCP(call, status)
	if s.Result = state.Result; s.Result == nil {
		return s, nil
	}
	if err := c.hold.Answer(mcpCopies * sizeForMCP(*s.Result)); err != nil {
		s.Status, s.Result, s.Withheld = mcp.StatusRunning, nil, schemas.Public(err)
		return s, nil
	}
	s.Status = string(s.Result.Status)
	return s, nil
}

// mcpCopies is how many times a result is in memory while its client does not read it: as JSON, and as the event that it is sent in.
const mcpCopies = 2

// sizeForMCP is about how many bytes the answer with a result has: its text twice, as content and as a member of the record. What JSON
// adds to it is counted while it is written.
func sizeForMCP(r schemas.Result) int64 {
	n := 2 * len(r.Text)
	if r.Output != nil {
		n += len(r.Output.Stdout) + len(r.Output.Stderr)
	}
	return int64(n)
}

// Cancel implements [mcp.Caller].
func (c mcpCaller) Cancel(ctx context.Context, id schemas.CallID, reason string) error {
	call, err := c.g.lookUp(ctx, c.account, id)
	if err != nil {
		return err
	}
	return c.g.cancel(ctx, call, admission.API, reason)
}

// Output implements [mcp.Caller].
func (c mcpCaller) Output(ctx context.Context, conv schemas.ConversationID, id schemas.CallID, each func(text string)) error {
	for item, err := range streams.Follow(ctx, c.g.Bus, c.account, conv, schemas.Tail) {
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
func (c mcpCaller) Approval(ctx context.Context, id schemas.ApprovalID) (schemas.Approval, error) {
	return c.g.approvals.Whole(ctx, c.account, id)
}

// Decide implements [mcp.Caller].
func (c mcpCaller) Decide(ctx context.Context, id schemas.ApprovalID, answer schemas.ApprovalAnswer) error {
	_, err := c.g.approvals.Decide(ctx, c.account, id, admission.DecisionOf(answer, admission.API))
	return err
}

// Artifacts implements [mcp.Caller].
func (c mcpCaller) Artifacts(ctx context.Context, conv schemas.ConversationID, limit int, after schemas.ArtifactID) (
	list []schemas.Artifact, next schemas.ArtifactID, err error,
) {
	list, more, err := streams.ListArtifacts(ctx, c.g.Bus, c.account, conv, after, limit)
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
	return list, next, c.hold.Answer(mcpCopies * size)
}

// Artifact implements [mcp.Caller].
func (c mcpCaller) Artifact(ctx context.Context, of schemas.ConversationID, id schemas.ArtifactID, most int64) (
	schemas.Artifact, []byte, error,
) {
	k, err := streams.FindArtifact(ctx, c.g.Bus, c.account, id)
	switch {
	case err != nil:
		return k.Artifact, nil, err
	case of != "" && k.Artifact.Conversation != of:
		return k.Artifact, nil, schemas.Errorf(schemas.NotFound, "there is no such artifact in the conversation")
	case k.Artifact.Size > most:
		return k.Artifact, nil, mcp.ArtifactTooLarge(id, k.Artifact.Size, most)
	}
	if err := c.hold.Answer(mcpCopies * int64(base64.StdEncoding.EncodedLen(int(k.Artifact.Size)))); err != nil {
		return k.Artifact, nil, err
	}
	content := make([]byte, 0, k.Artifact.Size)
	for _, name := range k.Chunks {
		chunk, err := streams.ReadArtifactChunk(ctx, c.g.Bus, c.account, name)
		if err != nil {
			return k.Artifact, nil, err
		}
		content = append(content, chunk...)
	}
	return k.Artifact, content, nil
}

// Job implements [mcp.Caller].
func (c mcpCaller) Job(ctx context.Context, id schemas.JobID) (schemas.Job, error) {
	p, err := lifecycle.FindJob(ctx, c.g.Bus, c.account, id)
	return p.Value.Public(), err
}

// StopJob implements [mcp.Caller].
func (c mcpCaller) StopJob(ctx context.Context, id schemas.JobID, reason string) error {
	_, err := c.g.jobs.Stop(ctx, c.account, id, reason)
	return err
}
