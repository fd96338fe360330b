package crashtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// The revisions of the Model Context Protocol that the clients of the tests speak.
const (
	mcpModern = "2026-07-28"
	mcpOlder  = "2025-11-25"
)

// mcpUser is an MCP client over HTTP that never repeats a request by itself.
type mcpUser struct {
	c        *cluster
	gateway  string // host and port
	revision string
	query    string
	can      map[string]any // its capabilities
}

// errNoAnswer says that a request has ended without an answer.
var errNoAnswer = errors.New("no answer")

// mcpResult has the fields of an MCP result that the tests read.
type mcpResult struct {
	ResultType    string                     `json:"resultType"`
	IsError       bool                       `json:"isError"`
	Record        schemas.Result             `json:"structuredContent"`
	RequestState  string                     `json:"requestState"`
	InputRequests map[string]json.RawMessage `json:"inputRequests"`
	TaskID        string                     `json:"taskId"`
	Status        string                     `json:"status"` // of a task
	Result        *mcpResult                 `json:"result"` // likewise
}

// call sends a tools/call of bash. Requests with the same mark are the same tool use.
func (u mcpUser) call(ctx context.Context, mark, command string, more ...map[string]any) (mcpResult, error) {
	params := map[string]any{
		"name": "bash", "arguments": map[string]any{"command": command},
		"_meta": map[string]any{"sandjet/idempotencyKey": mark},
	}
	for _, m := range more {
		maps.Copy(params, m)
	}
	return u.ask(ctx, "tools/call", "bash", params)
}

// status sends a tools/call of async_status, which waits for the end of a call.
func (u mcpUser) status(ctx context.Context, id string) (mcpResult, error) {
	return u.ask(ctx, "tools/call", "async_status", map[string]any{"name": "async_status", "arguments": map[string]any{"statusId": id}})
}

// task is a tasks/get.
func (u mcpUser) task(ctx context.Context, id string) (mcpResult, error) {
	return u.ask(ctx, "tasks/get", id, map[string]any{"taskId": id})
}

// ask sends one request. Errors of the protocol are errors, and so is a stream that ends before its answer.
func (u mcpUser) ask(ctx context.Context, method, name string, params map[string]any) (r mcpResult, err error) {
	header := http.Header{"Mcp-Protocol-Version": {u.revision}}
	if u.revision == mcpModern {
		header.Set("Mcp-Method", method)
		header.Set("Mcp-Name", name)
		meta, _ := params["_meta"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		can := u.can
		if can == nil {
			can = map[string]any{}
		}
		meta["io.modelcontextprotocol/protocolVersion"] = u.revision
		meta["io.modelcontextprotocol/clientInfo"] = map[string]any{"name": "crashtest", "version": "1"}
		meta["io.modelcontextprotocol/clientCapabilities"] = can
		params["_meta"] = meta
	}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+u.gateway+"/mcp"+u.query, bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	header.Set("Authorization", "Bearer "+u.c.key)
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, errors.Join(errNoAnswer, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		return r, fmt.Errorf("%s is answered %d %s", method, res.StatusCode, b)
	}
	return mcpAnswer(res.Body)
}

// mcpAnswer reads a body up to the answer in it.
func mcpAnswer(body io.Reader) (r mcpResult, err error) {
	events := bufio.NewScanner(body)
	events.Buffer(nil, schemas.MaxRequest)
	for events.Scan() {
		line := strings.TrimPrefix(events.Text(), "data: ")
		var m struct {
			Result json.RawMessage
			Error  *struct {
				Code    int
				Message string
			}
		}
		switch {
		case json.Unmarshal([]byte(line), &m) != nil: // a name or an id of an event
		case m.Error != nil:
			return r, fmt.Errorf("error %d: %s", m.Error.Code, m.Error.Message)
		case m.Result != nil:
			return r, json.Unmarshal(m.Result, &r)
		}
	}
	return r, errors.Join(errNoAnswer, events.Err())
}

// again asks until there is an answer, as for a gateway that starts.
func again(ctx context.Context, ask func() (mcpResult, error)) (mcpResult, error) {
	for {
		r, err := ask()
		if !errors.Is(err, errNoAnswer) || ctx.Err() != nil {
			return r, err
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// patiently asks until there is an answer, which is no error.
func patiently(ctx context.Context, t *testing.T, ask func() (mcpResult, error)) mcpResult {
	t.Helper()
	r, err := again(ctx, ask)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// inFlight is a request that was sent and may not be answered yet.
type inFlight struct {
	ended chan struct{}
	r     mcpResult
	err   error
}

// begin sends a request and does not wait for its answer.
func begin(ask func() (mcpResult, error)) *inFlight {
	f := &inFlight{ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.r, f.err = ask()
	}()
	return f
}

// beginAgain sends a request and repeats it until the call has ended: on a slow machine, the gateway may first answer that the call is
// still queued or running.
func beginAgain(ctx context.Context, ask func() (mcpResult, error)) *inFlight {
	return begin(func() (mcpResult, error) {
		return again(ctx, func() (mcpResult, error) {
			r, err := ask()
			if s := r.Record.Status; err == nil && (s == "queued" || s == "running") {
				err = errNoAnswer
			}
			return r, err
		})
	})
}

// answer waits for the answer.
func (f *inFlight) answer(t *testing.T) mcpResult {
	t.Helper()
	<-f.ended
	if f.err != nil {
		t.Fatal(f.err)
	}
	return f.r
}

// cut waits until a request has ended, and fails if it was answered.
func (f *inFlight) cut(t *testing.T) {
	t.Helper()
	if <-f.ended; !errors.Is(f.err, errNoAnswer) {
		t.Errorf("the request was answered: %+v %v", f.r, f.err)
	}
}
