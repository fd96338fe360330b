package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/schemas"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerName    = "Mcp-Name"
	stateless     = "2026-07-28" // the first revision without sessions
)

// Waits reports whether a request over HTTP may wait for long, so that it should take a slot among the waiting requests.
func Waits(body []byte) bool {
	switch peek(body).Method {
	case "tools/call", "resources/read", "subscriptions/listen":
		return true
	}
	return false
}

// Serve answers one request over HTTP, whose body has been read. The caller must have authenticated the client, checked the origin and
// applied its limits. A session id only lets a client of an older revision cancel its requests; nothing is stored for it while no request
// is in flight.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, scope Scope, body []byte) {
	said := peek(body)
	c := &session{Server: s, scope: scope}
	if r.Header.Get(headerVersion) < stateless {
		switch at := r.Header.Get(headerSession); said.Method {
		case "initialize":
			w.Header().Set(headerSession, schemas.NewID("mcps_"))
		case "tools/call":
			ctx, landed := s.fly(context.Background(), flight{scope.Account, at, string(said.ID)})
			defer landed()
			c.request = ctx
		case "notifications/cancelled":
			s.ground(flight{scope.Account, at, string(said.Params.RequestID)})
		}
	} else if name := r.Header.Get(headerName); strings.HasPrefix(said.Method, "tasks/") && name != "" && name != said.task() {
		refuseName(w, said.ID)
		return
	}
	srv := c.protocol()
	r.Body = io.NopCloser(bytes.NewReader(body))
	sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: s.Log, PropagateRequestCancellation: true, MaxRequestBodyBytes: int64(len(body)) + 1,
		DisableLocalhostProtection: true, // it is for servers that ask for no key
	}).ServeHTTP(w, r)
}

// refuseName writes the error for a request whose header names another task than its body, in the form that the SDK uses for the methods
// that it knows.
func refuseName(w http.ResponseWriter, id json.RawMessage) {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	body, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, &jsonrpc.Error{Code: sdk.CodeHeaderMismatch, Message: "the header Mcp-Name does not name the task of the request"}})
	if err != nil {
		body = nil // the status says it
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(body)
}

// message is the part of a request that is read before the SDK decodes it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"` //nolint:tagliatelle // the protocol's
		TaskID    json.RawMessage `json:"taskId"`    //nolint:tagliatelle // the protocol's
	} `json:"params"`
}

// task returns the task that a request names; empty if that is not a string, which the SDK then rejects.
func (m message) task() (id string) {
	if json.Unmarshal(m.Params.TaskID, &id) != nil {
		return ""
	}
	return id
}

// peek decodes the known members of a message. For a batch of older revisions it returns the zero message.
func peek(body []byte) (m message) {
	if json.Unmarshal(body, &m) != nil {
		return message{}
	}
	return m
}
