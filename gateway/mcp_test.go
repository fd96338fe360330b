package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// mcpTools are two definitions in the protocol's form.
func mcpTools(_ schemas.ToolVisibility, format string, _ schemas.Dialect) (any, error) {
	if format != "mcp" {
		return nil, schemas.Invalidf("format", "is %q", format)
	}
	object := map[string]any{"type": "object"}
	return []any{map[string]any{"name": "bash", "description": "runs", "inputSchema": object},
		map[string]any{"name": "async_status", "description": "asks", "inputSchema": object}}, nil
}

func openMCP(t *testing.T, change ...func(*gateway.Options)) *edge {
	t.Helper()
	return open(t, append([]func(*gateway.Options){func(o *gateway.Options) { o.AgentTools = mcpTools }}, change...)...)
}

// keyed puts a key on requests.
type keyed struct {
	key string
	to  http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.to.RoundTrip(r)
}

// mcpClient is a client of the protocol with a key.
func (e *edge) mcpClient(key, query string, o *sdk.ClientOptions) *sdk.ClientSession {
	e.t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	e.t.Cleanup(transport.CloseIdleConnections)
	s, err := c.Connect(e.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: e.url + "/mcp" + query, HTTPClient: &http.Client{Transport: keyed{key, transport}}, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = s.Close() })
	return s
}

func say(key, text string) *sdk.CallToolParams {
	p := &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{"command": text}}
	if key != "" {
		p.Meta = sdk.Meta{"sandjet/idempotencyKey": key}
	}
	return p
}

func saidOf(t *testing.T, res *sdk.CallToolResult, err error) (text, call string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := res.StructuredContent.(map[string]any)
	text, _ = m["text"].(string)
	call, _ = m["call"].(string)
	return text, call
}

// TestMCPOverHTTP: a call by the protocol is a call like any other. Its mark makes it one call, whichever gateway is asked, and no other
// account sees it.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestMCPOverHTTP(t *testing.T) {
	t.Parallel()
	e := openMCP(t)
	e.work()
	anna, bert := e.mcpClient(aliceKey, "?conversation=c_mcp", nil), e.mcpClient(bobKey, "?conversation=c_mcp", nil)
	res, err := anna.CallTool(t.Context(), say("k", "echo one"))
	text, call := saidOf(t, res, err)
	if text != "one" || call == "" {
		t.Errorf("%q of %q", text, call)
	}
	if a := e.get("/v1/calls/" + call); a.status != http.StatusOK || decode[schemas.Result](t, a).Conversation != "c_mcp" {
		t.Errorf("%d %s", a.status, a.body)
	}
	again, err := anna.CallTool(t.Context(), say("k", "echo one"))
	if _, same := saidOf(t, again, err); same != call {
		t.Errorf("asked again it is %s", same)
	}
	if _, err := anna.CallTool(t.Context(), say("k", "echo two")); err == nil || !strings.Contains(err.Error(), "other content") {
		t.Errorf("another call under the same mark: %v", err)
	}
	theirs, err := bert.CallTool(t.Context(), say("k", "echo one"))
	if _, other := saidOf(t, theirs, err); other == call {
		t.Error("two accounts share a call")
	}
	status := &sdk.CallToolParams{Name: "async_status", Arguments: map[string]any{"statusId": call}}
	if _, err := bert.CallTool(t.Context(), status); err == nil || !strings.Contains(err.Error(), "there is no call") {
		t.Errorf("another's call: %v", err)
	}
	if res, err := anna.CallTool(t.Context(), status); err != nil || res.IsError {
		t.Errorf("%v %v", res, err)
	}
}

// TestMCPIsKeptFromOthers: pages of other origins, keys that are none, and tokens for some of an account.
func TestMCPIsKeptFromOthers(t *testing.T) {
	t.Parallel()
	e := openMCP(t, func(o *gateway.Options) { o.Origins = []string{"https://ok.example"} })
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	h := func(pairs ...string) http.Header {
		h := http.Header{"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2025-11-25"}}
		for i := 0; i+1 < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, c := range map[string]struct {
		a      ask
		status int
	}{
		"with a key":        {ask{key: aliceKey, header: h()}, 200},
		"an allowed page":   {ask{key: aliceKey, header: h("Origin", "https://ok.example")}, 200},
		"another page":      {ask{key: aliceKey, header: h("Origin", "https://evil.example")}, 403},
		"no key":            {ask{key: "-", header: h()}, 401},
		"a wrong key":       {ask{key: "sk_x", header: h()}, 401},
		"an attach token":   {ask{key: "sjat_x", header: h()}, 403},
		"an unknown query":  {ask{path: "/mcp?x=1", key: aliceKey, header: h()}, 400},
		"a bad name":        {ask{path: "/mcp?conversation=%20", key: aliceKey, header: h()}, 400},
		"compressed":        {ask{key: aliceKey, header: h("Content-Encoding", "gzip")}, 415},
		"another type":      {ask{key: aliceKey, header: h("Content-Type", "text/plain")}, 415},
		"no event streams":  {ask{key: aliceKey, header: h("Accept", "application/json")}, 400},
		"too large":         {ask{key: aliceKey, header: h(), body: `{"x":"` + strings.Repeat("x", schemas.MaxRequest) + `"}`}, 413},
		"an unknown era":    {ask{key: aliceKey, header: h("Mcp-Protocol-Version", "1999-01-01")}, 400},
		"GET, as old ones":  {ask{method: http.MethodGet, key: aliceKey, header: h()}, 405},
		"DELETE, likewise":  {ask{method: http.MethodDelete, key: aliceKey, header: h()}, 405},
		"another's wishes":  {ask{path: "/mcp?agent=agent_1", key: aliceKey, header: h()}, 200},
		"metadata":          {ask{method: http.MethodGet, path: "/.well-known/oauth-protected-resource/mcp", key: "-"}, 200},
		"metadata of hosts": {ask{method: http.MethodGet, path: "/.well-known/oauth-protected-resource", key: "-"}, 200},
	} {
		if c.a.method == "" {
			c.a.method = http.MethodPost
		}
		if c.a.path == "" {
			c.a.path = "/mcp"
		}
		if c.a.body == "" && c.a.method == http.MethodPost {
			c.a.body = list
		}
		got := e.do(c.a)
		if got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if got.status == http.StatusUnauthorized && !strings.Contains(got.header.Get("WWW-Authenticate"),
			`resource_metadata="`+e.url+`/.well-known/oauth-protected-resource/mcp"`) {
			t.Errorf("%s: %s", name, got.header.Get("WWW-Authenticate"))
		}
		if strings.HasPrefix(name, "metadata") && decode[map[string]any](t, got)["resource"] != e.url+"/mcp" {
			t.Errorf("%s: %s", name, got.body)
		}
	}
}

// TestMCPTasksAreOnTheLog: another gateway on the same log answers for a task, and cancels it.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestMCPTasksAreOnTheLog(t *testing.T) {
	t.Parallel()
	e := openMCP(t, func(o *gateway.Options) { o.MCPWait = time.Millisecond })
	e.work()
	const tasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	created := e.modern("tools/call", `"name":"bash","arguments":{"command":"hang"}`, "bash", tasks)
	var task struct{ TaskID, Status, ResultType string }
	if err := json.Unmarshal(created, &task); err != nil || task.Status != "working" || task.ResultType != "task" {
		t.Fatalf("%s %v", created, err)
	}
	other := &edge{t: t, bus: e.bus, client: e.client}
	other.gw = gateway.New(gateway.Options{Bus: e.bus, Records: book{}, AgentTools: mcpTools})
	t.Cleanup(other.gw.Drain)
	srv := httptest.NewServer(other.gw)
	t.Cleanup(srv.Close)
	other.url = srv.URL
	look := func() string {
		var got struct{ Status string }
		raw := other.modern("tasks/get", fmt.Sprintf(`"taskId":%q`, task.TaskID), task.TaskID, tasks)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return got.Status
	}
	if got := look(); got != "working" {
		t.Errorf("it is %s", got)
	}
	other.modern("tasks/cancel", fmt.Sprintf(`"taskId":%q`, task.TaskID), task.TaskID, tasks)
	testwait.Eventually(t, "the task is cancelled", func() bool { return look() == "cancelled" })
}

// TestMCPArtifacts: a client lists and reads what calls of its conversation have left, in both revisions, and never what another account's
// have, nor what was removed.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestMCPArtifacts(t *testing.T) {
	t.Parallel()
	e := openMCP(t)
	e.work()
	call := func(a schemas.AccountID, conversation schemas.ConversationID) schemas.Call {
		return schemas.Call{Account: a, Conversation: conversation, ID: "call_1"}
	}
	long := bytes.Repeat([]byte("é\n"), streams.ArtifactChunk/2) // three chunks, with a border in the middle of a letter
	made := []schemas.Artifact{leave(t, e.bus, call(alice, "c_left"), "outputs/long.txt", long)}
	for n := range mcp.PageOfArtifacts {
		made = append(made, leave(t, e.bus, call(alice, "c_left"), fmt.Sprintf("outputs/%d.bin", n), []byte{0, byte(n)}))
	}
	large := leave(t, e.bus, call(alice, "c_large"), "outputs/large", make([]byte, mcp.MaxResource+1))
	theirs := leave(t, e.bus, call(bob, "c_left"), "outputs/theirs", []byte("theirs"))
	uri := func(a schemas.Artifact) string { return "sandjet://artifacts/" + string(a.ID) }

	anna := e.mcpClient(aliceKey, "?conversation=c_left", nil)
	var got []string
	for p := new(sdk.ListResourcesParams); ; {
		page, err := anna.ListResources(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Resources {
			got = append(got, r.URI)
		}
		if p.Cursor = page.NextCursor; p.Cursor == "" {
			break
		}
	}
	want := make([]string, len(made))
	for i, a := range made {
		want[i] = uri(a)
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
	for i, content := range map[int][]byte{0: long, 1: {0, 0}, len(made) - 1: {0, byte(len(made) - 2)}} {
		read, err := anna.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri(made[i])})
		if err != nil || !bytes.Equal(append([]byte(read.Contents[0].Text), read.Contents[0].Blob...), content) {
			t.Errorf("%s: %+v %v", made[i].Name, read, err)
		}
	}
	newest := e.modern("resources/read", fmt.Sprintf(`"uri":%q`, uri(made[1])), uri(made[1]), "")
	if !strings.Contains(string(newest), `"blob":"AAA="`) {
		t.Errorf("the newest revision: %s", newest)
	}
	if err := streams.DeleteArtifact(t.Context(), e.bus, alice, made[1]); err != nil {
		t.Fatal(err)
	}
	if newest := e.modern("resources/list", `"cursor":""`, "", ""); !strings.Contains(string(newest), `"resources":[]`) {
		t.Errorf("without a conversation: %s", newest)
	}
	for name, c := range map[string]struct {
		of   schemas.Artifact
		says string
	}{
		"another account's": {theirs, "not found"}, "removed": {made[1], "not found"},
		"too large": {large, "GET /v1/artifacts/" + string(large.ID)},
	} {
		read, err := anna.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri(c.of)})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v %v", name, read, err)
		}
	}
	bert := e.mcpClient(bobKey, "?conversation=c_left", nil)
	if page, err := bert.ListResources(t.Context(), nil); err != nil || len(page.Resources) != 1 || page.Resources[0].URI != uri(theirs) {
		t.Errorf("another account lists %+v %v", page, err)
	}
	if page, err := bert.ListResources(t.Context(), &sdk.ListResourcesParams{Cursor: string(made[0].ID)}); err == nil {
		t.Errorf("by another account's cursor: %+v", page)
	}
}

// TestMCPAClosedStreamCancels the call, as the newest revision wants it.
func TestMCPAClosedStreamCancels(t *testing.T) {
	t.Parallel()
	e := openMCP(t)
	e.work()
	anna := e.mcpClient(aliceKey, "?conversation=c_gone", nil)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := anna.CallTool(ctx, say("", "hang"))
		ended <- err
	}()
	started := func(typ schemas.EventType) func() bool {
		return func() bool {
			p, err := streams.Page(t.Context(), e.bus, alice, "c_gone", schemas.Cursor{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range p.Events {
				if ev.Value.Type == typ {
					return true
				}
			}
			return false
		}
	}
	testwait.Eventually(t, "the call has started", started(schemas.CallStarted))
	leave()
	if err := <-ended; err == nil {
		t.Error("it was answered")
	}
	testwait.Eventually(t, "the call has ended", started(schemas.CallFinished))
}

// TestMCPApprovals: the client's user allows a call, and the record says so.
func TestMCPApprovals(t *testing.T) {
	t.Parallel()
	e := openMCP(t, func(o *gateway.Options) { o.Records = asking{} })
	e.work()
	anna := e.mcpClient(aliceKey, "", &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Allow once"}}, nil
		},
	})
	res, err := anna.CallTool(t.Context(), say("", "echo allowed"))
	text, call := saidOf(t, res, err)
	if text != "allowed" {
		t.Errorf("%q", text)
	}
	found, err := e.bus.Calls().Find(t.Context(), alice, schemas.CallID(call))
	if err != nil {
		t.Fatal(err)
	}
	p, err := lifecycle.FindApproval(t.Context(), e.bus, alice, found.Approval)
	if err != nil || p.Value.State != schemas.ApprovalApproved {
		t.Errorf("%+v %v", p.Value, err)
	}
}

// asking is records by which a person has to allow each call.
type asking struct{ book }

func (a asking) Resolve(ctx context.Context, acct schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	c, err := a.book.Resolve(ctx, acct, r)
	c.Approval = schemas.NewApprovalID()
	return c, err
}

// modern asks by the newest revision and returns the result.
func (e *edge) modern(method, params, name, capabilities string) json.RawMessage {
	e.t.Helper()
	got := e.do(ask{method: http.MethodPost, path: "/mcp", header: http.Header{
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {name},
	}, body: fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{%s}}}}`, method, params, capabilities)})
	body := got.body
	if _, data, ok := strings.Cut(body, "data: "); ok {
		body = data
	}
	var m struct{ Result, Error json.RawMessage }
	if err := json.NewDecoder(io.LimitReader(bytes.NewReader([]byte(body)), 1<<20)).Decode(&m); err != nil || m.Result == nil {
		e.t.Fatalf("%s: %d %s", method, got.status, got.body)
	}
	return m.Result
}
