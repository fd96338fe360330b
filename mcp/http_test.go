package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// modern is a request of the newest revision, with more capabilities.
func modern(method, params, capabilities string) string {
	return request(method, params, capabilities, "")
}

// marked is one with more in its _meta.
func marked(method, params, meta string) string { return request(method, params, "", meta) }

func request(method, params, capabilities, meta string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{%s}%s}}}`,
		method, params, capabilities, meta)
}

// capableOfTasks is in the capabilities of a client that takes a task for an answer.
const capableOfTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`

func modernHeaders(method, name string) http.Header {
	h := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
	if name != "" {
		h.Set("Mcp-Name", name)
	}
	return h
}

type reply struct {
	status int
	header http.Header
	body   string
}

// data is the last message of an answer.
func (r reply) data(t *testing.T) []byte {
	t.Helper()
	last := r.body
	for line := range strings.Lines(r.body) {
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			last = d
		}
	}
	return []byte(last)
}

func post(t *testing.T, s *mcp.Server, scope mcp.Scope, body string, h http.Header) reply {
	t.Helper()
	return postWith(t.Context(), t, s, scope, body, h)
}

func postWith(ctx context.Context, t *testing.T, s *mcp.Server, scope mcp.Scope, body string, h http.Header) reply {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header = h.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := httptest.NewRecorder()
	s.Serve(w, r, scope, []byte(body))
	return reply{w.Code, w.Header(), w.Body.String()}
}

// TestWhatIsWrongWithARequest over HTTP is said by a status and a code of the protocol.
func TestWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	s := mcp.New(mcp.Options{})
	defer s.Close()
	list := modern("tools/list", "", "")
	for name, c := range map[string]struct {
		body   string
		header http.Header
		status int
		says   string
	}{
		"as it should be":   {list, modernHeaders("tools/list", ""), 200, `"bash"`},
		"discovery":         {modern("server/discover", "", ""), modernHeaders("server/discover", ""), 200, `2025-11-25`},
		"no version header": {list, http.Header{"Mcp-Method": {"tools/list"}}, 400, "-32020"},
		"no method header":  {list, http.Header{"Mcp-Protocol-Version": {"2026-07-28"}}, 400, "-32020"},
		"another method":    {list, modernHeaders("tools/call", ""), 400, "-32020"},
		"another name":      {modern("tools/call", `"name":"bash"`, ""), modernHeaders("tools/call", "read"), 400, "-32020"},
		"a version to come": {strings.ReplaceAll(list, "2026-07-28", "2099-01-01"),
			http.Header{"Mcp-Protocol-Version": {"2099-01-01"}, "Mcp-Method": {"tools/list"}}, 400, "-32022"},
		"an unknown old one":               {list, http.Header{"Mcp-Protocol-Version": {"2020-01-01"}}, 400, "version"},
		"an unknown method":                {modern("tools/fly", "", ""), modernHeaders("tools/fly", ""), 404, "-32601"},
		"no JSON":                          {"{", modernHeaders("tools/list", ""), 400, "malformed"},
		"nothing":                          {"", modernHeaders("tools/list", ""), 400, ""},
		"another task's name":              {modern("tasks/get", `"taskId":"mcp_1"`, capableOfTasks), modernHeaders("tasks/get", "mcp_2"), 400, `"id":7,"error":{"code":-32020`},
		"no task's name":                   {modern("tasks/get", `"taskId":1`, capableOfTasks), modernHeaders("tasks/get", "mcp_2"), 400, "-32020"},
		"no tasks declared":                {modern("tasks/get", `"taskId":"mcp_1"`, ""), modernHeaders("tasks/get", "mcp_1"), 400, `-32021`},
		"what it must declare":             {modern("tasks/cancel", `"taskId":"mcp_1"`, ""), modernHeaders("tasks/cancel", "mcp_1"), 400, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`},
		"prompts, which there are none of": {modern("prompts/list", "", ""), modernHeaders("prompts/list", ""), 404, "-32601"},
		"no capabilities":                  {strings.Replace(list, `"io.modelcontextprotocol/clientCapabilities":{}`, `"x":1`, 1), modernHeaders("tools/list", ""), 400, "-32602"},
		"an old-style request":             {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, 200, `"bash"`},
	} {
		got := post(t, s, scopeOf(newDesk()), c.body, c.header)
		if got.status != c.status || !strings.Contains(got.body, c.says) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestARequestThatWaitsTakesAPlace, whatever else is in it.
func TestARequestThatWaitsTakesAPlace(t *testing.T) {
	t.Parallel()
	for body, waits := range map[string]bool{
		`{"method":"tools/call"}`:                                   true,
		`{"method":"tools/call","params":{"taskId":5}}`:             true,
		`{"method":"tools/call","params":{"requestId":{}},"id":[]}`: true,
		`{"method":"tasks/get","params":{"taskId":"mcp_1"}}`:        false,
	} {
		if mcp.Waits([]byte(body)) != waits {
			t.Errorf("%s waits: %v", body, !waits)
		}
	}
}

// TestAnOlderClientCancelsByItsSession: the name that it got at its start says whose request is meant.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestAnOlderClientCancelsByItsSession(t *testing.T) {
	t.Parallel()
	s := mcp.New(mcp.Options{})
	defer s.Close()
	d := newDesk()
	begin := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	got := post(t, s, scopeOf(d), begin, http.Header{})
	session := got.header.Get("Mcp-Session-Id")
	if session == "" || session == post(t, s, scopeOf(d), begin, http.Header{}).header.Get("Mcp-Session-Id") {
		t.Fatalf("sessions are not told apart: %q", session)
	}
	old := func(at string) http.Header {
		return http.Header{"Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Session-Id": {at}}
	}
	ended := make(chan reply, 1)
	go func() {
		ended <- post(t, s, scopeOf(d), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"bash","arguments":{"command":"x"}}}`, old(session))
	}()
	id := d.next(t, 0)
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
	other := mcp.Scope{Account: "acct_b", Caller: d}
	for _, at := range []struct {
		scope   mcp.Scope
		session string
	}{{scopeOf(d), "another"}, {other, session}, {scopeOf(d), ""}} {
		if got := post(t, s, at.scope, cancel, old(at.session)); got.status != http.StatusAccepted {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	select {
	case got := <-ended:
		t.Fatalf("somebody else's notice has ended the request: %s", got.body)
	default:
	}
	post(t, s, scopeOf(d), cancel, old(session))
	<-ended
	d.until(t, func() bool { return slices.Contains(d.cancelled, id) })
}

// TestAnOlderClientThatLosesItsStreamCancelsNothing.
func TestAnOlderClientThatLosesItsStreamCancelsNothing(t *testing.T) {
	t.Parallel()
	s := mcp.New(mcp.Options{})
	defer s.Close()
	d := newDesk()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		postWith(ctx, t, s, scopeOf(d), `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"bash","arguments":{"command":"x"}}}`,
			http.Header{"Mcp-Protocol-Version": {"2025-11-25"}})
		close(ended)
	}()
	id := d.next(t, 0)
	leave()
	d.finish(id, schemas.StatusCompleted, "ok")
	<-ended
	s.Close()
	if len(d.cancelled) > 0 {
		t.Error("it was cancelled")
	}
}

// FuzzServe: whatever comes is answered, and nothing is done twice for one request.
func FuzzServe(f *testing.F) {
	f.Add(modern("tools/call", `"name":"bash","arguments":{"command":"x"}`, ""), "2026-07-28", "tools/call")
	f.Add(modern("tasks/get", `"taskId":"mcp_1"`, capableOfTasks), "2026-07-28", "tasks/get")
	f.Add(modern("resources/read", `"uri":"sandjet://default/a"`, ""), "2026-07-28", "resources/read")
	f.Add(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "2025-03-26", "")
	f.Add(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, "2025-11-25", "")
	f.Fuzz(func(t *testing.T, body, version, method string) {
		if mcp.Waits([]byte(body)) && strings.Contains(body, "subscriptions") {
			return // it listens until its client leaves
		}
		d := newDesk()
		d.refuse = schemas.Errorf(schemas.Denied, "no")
		s := mcp.New(mcp.Options{})
		defer s.Close()
		h := http.Header{}
		h.Set("Mcp-Protocol-Version", version)
		h.Set("Mcp-Method", method)
		got := post(t, s, scopeOf(d), body, h)
		if got.status < 200 || got.status > 599 {
			t.Errorf("status %d", got.status)
		}
		if ct := got.header.Get("Content-Type"); ct == "application/json" && !json.Valid([]byte(got.body)) {
			t.Errorf("no JSON: %q", got.body)
		}
	})
}
