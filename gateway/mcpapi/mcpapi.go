// Package mcpapi serves the Model Context Protocol: it answers package mcp's questions from the accounts' calls, jobs and artifacts.
package mcpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sandjet/sandjet/gateway/approvals"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/jobs"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// Paths of the endpoint and of its resource metadata, by RFC 9728: the path of the resource follows.
const (
	Path         = "/mcp"
	PathMetadata = "/.well-known/oauth-protected-resource"
)

// Headers that browsers may send to Path and read from it.
const (
	AcceptedHeaders = "Mcp-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id"
	ExposedHeaders  = "Mcp-Session-Id, WWW-Authenticate"
)

// Agents reads agents.
type Agents interface {
	List(ctx context.Context, a schemas.AccountID, c schemas.Collection) ([]schemas.Document, error)
	// ToolVisibility returns which tools a model may see for an agent. Code: not_found.
	ToolVisibility(ctx context.Context, a schemas.AccountID, id schemas.AgentID) (schemas.ToolVisibility, error)
}

// Options are the settings of an [Endpoint].
type Options struct {
	Bus       *streams.Bus
	Calls     *calls.Calls
	Jobs      *jobs.Jobs
	Approvals approvals.Approvals
	Server    *mcp.Server
	// Agents may be nil: a name of an agent is then its id.
	Agents Agents
	// Tools returns the definitions of an agent's tools, in a format and a dialect. Nil: none are shown.
	Tools func(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error)
	// Wait takes a slot for a request that waits. Codes: exhausted, unavailable.
	Wait func(w http.ResponseWriter, a schemas.AccountID) (*quota.Place, error)
	// Authenticated asks for an account's key first.
	Authenticated func(func(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error) web.Handler
	// Origins are the browser origins that may use the endpoint, beside the gateway's own.
	Origins []string
	// Stall is how long one write to a client may block.
	Stall time.Duration
}

// Endpoint has the HTTP handlers of the protocol. It is safe for concurrent use.
type Endpoint struct{ o Options }

// New returns the handlers.
func New(o Options) *Endpoint { return &Endpoint{o} }

// Post handles one message of the Model Context Protocol.
func (h *Endpoint) Post(w http.ResponseWriter, r *http.Request) error {
	if !web.AllowedOrigin(r, h.o.Origins) {
		return schemas.Errorf(schemas.Denied, "origin not allowed: the operator can allow it with --origins")
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="sandjet", resource_metadata="`+baseURL(r)+PathMetadata+Path+`"`)
	return h.o.Authenticated(h.serve)(w, r)
}

func (h *Endpoint) serve(w http.ResponseWriter, r *http.Request, a schemas.AccountID) error {
	w.Header().Del("WWW-Authenticate")
	scope, err := h.scope(r, a)
	if err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r)
	if err != nil {
		return err
	}
	if mcp.Waits(body) {
		place, err := h.o.Wait(w, a)
		if err != nil {
			return err
		}
		defer place.Release()
		web.HoldOf(r.Context()).Release()
	}
	h.o.Server.Serve(&pushed{w, http.NewResponseController(w), h.o.Stall}, r, scope, body)
	return nil
}

// scope parses the query of the endpoint's URL: the agent, the workspace and the conversation of the calls.
func (h *Endpoint) scope(r *http.Request, a schemas.AccountID) (mcp.Scope, error) {
	q, err := web.ParseQuery(r.URL.RawQuery, "agent", "workspace", "conversation")
	if err != nil {
		return mcp.Scope{}, err
	}
	text := func(name string) string { return strings.ToValidUTF8(q.Values.Get(name), "\uFFFD") }
	s := mcp.Scope{
		Account: a, Workspace: text("workspace"), Conversation: schemas.ConversationID(text("conversation")),
		Caller: caller{h.o, a, web.HoldOf(r.Context())},
	}
	if s.Conversation != "" {
		if err := s.Conversation.Validate(); err != nil {
			return s, err
		}
	}
	s.Agent, err = h.agentNamed(r.Context(), a, text("agent"))
	return s, err
}

// agentNamed returns the id of the agent with an id or name; empty for the empty name. Code: not_found.
func (h *Endpoint) agentNamed(ctx context.Context, a schemas.AccountID, name string) (schemas.AgentID, error) {
	if name == "" || h.o.Agents == nil {
		return schemas.AgentID(name), nil
	}
	list, err := h.o.Agents.List(ctx, a, schemas.Agents)
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

// metadata is the OAuth metadata of the endpoint as a protected resource. It names no authorization server: API keys are made by Sandjet.
type metadata struct {
	Resource string   `json:"resource"`
	Name     string   `json:"resource_name"`
	Methods  []string `json:"bearer_methods_supported"`
}

// GetMetadata serves the OAuth metadata of the endpoint.
func (*Endpoint) GetMetadata(w http.ResponseWriter, r *http.Request) error {
	if _, err := web.ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	w.Header().Set("Access-Control-Allow-Origin", "*") // it is for everybody, and the same for all
	web.WriteJSON(w, http.StatusOK, metadata{baseURL(r) + Path, "Sandjet", []string{"header"}})
	return nil
}

// baseURL returns the URL at which the client of a request reaches the gateway.
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

// pushed is a response writer that flushes each write. A write fails if the client does not read it within the stall.
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

// FlushError does nothing, since each write is flushed.
func (p *pushed) FlushError() error { return nil }
