package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	jsonschema "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

type answer struct {
	res *sdk.CallToolResult
	err error
}

// begin calls a tool beside the test.
func (l *line) begin(ctx context.Context, p *sdk.CallToolParams) chan answer {
	got := make(chan answer, 1)
	go func() {
		res, err := l.CallTool(ctx, p)
		got <- answer{res, err}
	}()
	return got
}

func text(res *sdk.CallToolResult) string {
	if res == nil || len(res.Content) == 0 {
		return ""
	}
	c, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		return ""
	}
	return c.Text
}

// record is the structured content of an answer, which has to fit the schema that the tool states.
func record(t *testing.T, l *line, res *sdk.CallToolResult) map[string]any {
	t.Helper()
	list, err := l.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///out", list.Tools[0].OutputSchema); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("mem:///out")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(res.StructuredContent); err != nil {
		t.Errorf("the structured content does not fit the schema: %v", err)
	}
	m, ok := res.StructuredContent.(map[string]any)
	if !ok {
		t.Fatalf("structured content is %T", res.StructuredContent)
	}
	return m
}

// TestEachStatusIsAnAnswer: a result is an error of the tool's where the call was not carried out to its end.
func TestEachStatusIsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, status := range schemas.Statuses() {
		d := newDesk()
		l := dial(t, d, mcp.Options{}, newClient(nil))
		got := l.begin(t.Context(), bash(nil))
		d.finish(d.next(t, 0), status, "so it ended")
		a := <-got
		if a.err != nil {
			t.Fatalf("%s: %v", status, a.err)
		}
		if want := status != schemas.StatusCompleted; a.res.IsError != want || text(a.res) != "so it ended" {
			t.Errorf("%s: isError %t, want %t; %q", status, a.res.IsError, want, text(a.res))
		}
		if m := record(t, l, a.res); m["status"] != string(status) || m["call"] != string(d.submitted[0].ID) {
			t.Errorf("%s: %v", status, m)
		}
	}
}

// TestTheRecordIsTheResult holds the schema of answers to the result's own fields.
func TestTheRecordIsTheResult(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := dial(t, d, mcp.Options{}, newClient(nil))
	list, err := l.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(list.Tools[0].OutputSchema)
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	result := reflect.TypeFor[schemas.Result]()
	for field := range result.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if schema.Properties[name] == nil {
			t.Errorf("the schema of answers lacks %s of a result", name)
		}
		delete(schema.Properties, name)
	}
	if len(schema.Properties) > 0 {
		t.Errorf("the schema of answers has more than a result: %v", schema.Properties)
	}
}

// TestAMarkIsACall: with a mark it is the same call for each client that asks again, without one another each time.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestAMarkIsACall(t *testing.T) {
	t.Parallel()
	marks := []map[string]any{
		{mcp.MetaIdempotencyKey: "k"}, {mcp.MetaIdempotencyKey: "k"}, {mcp.MetaIdempotencyKey: "k2"},
		{"claudecode/toolUseId": "k"}, {"claudecode/toolUseId": "k"}, {"claudecode/toolUseId": 7}, nil, nil,
	}
	d := newDesk()
	for n, m := range marks {
		l := dial(t, d, mcp.Options{}, newClient(nil)) // each by a process of its own
		got := l.begin(t.Context(), bash(m))
		d.finish(d.next(t, n), schemas.StatusCompleted, "ok")
		if a := <-got; a.err != nil {
			t.Fatalf("%v: %v", m, a.err)
		}
	}
	ids := make([]schemas.CallID, 0, len(d.submitted))
	for _, r := range d.submitted {
		if r.Conversation != "c_1" || !strings.HasPrefix(string(r.ID), mcp.CallPrefix) {
			t.Errorf("call %s on %s", r.ID, r.Conversation)
		}
		ids = append(ids, r.ID)
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(ids)))
	if ids[0] != ids[1] || ids[3] != ids[4] || len(distinct) != len(ids)-2 {
		t.Errorf("the calls are %v", ids)
	}
	base := mcp.Scope{Account: "acct_a"}
	others := []mcp.Scope{{Account: "acct_b"}, {Account: "acct_a", Agent: "g"},
		{Account: "acct_a", Workspace: "w"}, {Account: "acct_a", Conversation: "c"}}
	for _, o := range others {
		if mcp.CallIDOf(base, "k") == mcp.CallIDOf(o, "k") {
			t.Errorf("%+v has the call of another", o)
		}
	}
}

// TestALongStartContinues: the answer names the call, async_status waits for its result, and stop ends it.
func TestALongStartContinues(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := dial(t, d, mcp.Options{Wait: time.Millisecond}, newClient(nil))
	res, err := l.CallTool(t.Context(), bash(nil))
	if err != nil {
		t.Fatal(err)
	}
	id := string(d.submitted[0].ID)
	if m := record(t, l, res); res.IsError || m["status"] != mcp.StatusRunning || m["status_id"] != id || !strings.Contains(text(res), id) {
		t.Errorf("%v %q", m, text(res))
	}
	status := func(args map[string]any) (*sdk.CallToolResult, error) {
		return l.CallTool(t.Context(), &sdk.CallToolParams{Name: "async_status", Arguments: args})
	}
	if res, err = status(map[string]any{"statusId": id}); err != nil || record(t, l, res)["status"] != mcp.StatusRunning {
		t.Errorf("%v %v", res, err)
	}
	if res, err = status(map[string]any{"statusId": id, "action": "logs"}); err != nil || !res.IsError {
		t.Errorf("logs of a call: %v %v", res, err)
	}
	if _, err = status(map[string]any{"statusId": mcp.CallPrefix + "other"}); err == nil {
		t.Error("there is a call that never was")
	}
	if res, err = status(map[string]any{"statusId": id, "action": "stop"}); err != nil || record(t, l, res)["status"] != "cancelled" {
		t.Errorf("%v %v", res, err)
	}
	if len(d.submitted) != 1 {
		t.Errorf("asking made calls: %v", d.submitted)
	}
}

// TestAnAgentWithoutJobsHasAsyncStatus too: its calls can still be long.
func TestAnAgentWithoutJobsHasAsyncStatus(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.tools = []mcp.Tool{{Name: "read", InputSchema: json.RawMessage(`{"type":"object"}`)}}
	l := dial(t, d, mcp.Options{}, newClient(nil))
	list, err := l.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	if !slices.Equal(names, []string{"async_status", "read"}) {
		t.Errorf("tools are %v", names)
	}
}

// TestRefusals: what is wrong with the arguments is for the model, everything else an error of the protocol with a code.
func TestRefusals(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := dial(t, d, mcp.Options{}, newClient(nil))
	if res, err := l.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{"cmd": 1}}); err != nil ||
		!res.IsError || !strings.Contains(text(res), "input.cmd") {
		t.Errorf("wrong arguments: %v %v", res, err)
	}
	refusals := map[string]struct {
		params *sdk.CallToolParams
		with   error
		code   int64
		says   string
	}{
		"unknown tool": {&sdk.CallToolParams{Name: "rm", Arguments: map[string]any{}}, nil, jsonrpc.CodeInvalidParams, "rm"},
		"bad mark":     {bash(map[string]any{mcp.MetaIdempotencyKey: ""}), nil, jsonrpc.CodeInvalidParams, mcp.MetaIdempotencyKey},
		"long mark": {bash(map[string]any{mcp.MetaIdempotencyKey: strings.Repeat("x", mcp.MaxKey+1)}), nil, jsonrpc.CodeInvalidParams,
			mcp.MetaIdempotencyKey},
		"no such place": {bash(nil), &schemas.Error{Code: schemas.NotFound, Field: "workspace", Message: "there is none"},
			jsonrpc.CodeInvalidParams, "there is none"},
		"no worker": {bash(nil), &schemas.Error{Code: schemas.Unavailable, Field: "sandbox", Message: "no worker"},
			jsonrpc.CodeInternalError, "no worker"},
		"a secret": {bash(nil), errors.New("dial 10.0.0.1: secret"), jsonrpc.CodeInternalError, "internal"},
	}
	for name, c := range refusals {
		d.mu.Lock()
		d.refuse = c.with
		d.mu.Unlock()
		_, err := l.CallTool(t.Context(), c.params)
		e, ok := errors.AsType[*jsonrpc.Error](err)
		if !ok || e.Code != c.code || !strings.Contains(e.Message, c.says) || strings.Contains(e.Message+string(e.Data), "10.0.0.1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestACancelledRequestCancelsItsCall: on a pair of streams at once, whatever its mark; a client that goes away cancels nothing.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestACancelledRequestCancelsItsCall(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := dial(t, d, mcp.Options{}, newClient(nil))
	ctx, cancel := context.WithCancel(t.Context())
	got := l.begin(ctx, bash(map[string]any{mcp.MetaIdempotencyKey: "k"}))
	id := d.next(t, 0)
	cancel()
	<-got
	d.until(t, func() bool { return slices.Contains(d.cancelled, id) })

	gone := l.begin(t.Context(), bash(nil))
	other := d.next(t, 1)
	l.hangUp()
	<-gone
	if err := <-l.ended; err != nil {
		t.Error(err)
	}
	l.ended <- nil
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.cancelled, other) {
		t.Error("a client that has gone away has cancelled its call")
	}
}

// TestAServerThatEndsAnswers what it knows.
func TestAServerThatEndsAnswers(t *testing.T) {
	t.Parallel()
	d := newDesk()
	l := dial(t, d, mcp.Options{Wait: time.Hour}, newClient(nil))
	got := l.begin(t.Context(), bash(nil))
	d.next(t, 0)
	l.server.Drain()
	if a := <-got; a.err != nil || !strings.Contains(text(a.res), "Still running") {
		t.Errorf("%v %v", a.res, a.err)
	}
}

// TestProgressIsTheLastLine, once a second at most, to who asked for it.
func TestProgressIsTheLastLine(t *testing.T) {
	t.Parallel()
	d := newDesk()
	seen := make(chan *sdk.ProgressNotificationParams, 10)
	l := dial(t, d, mcp.Options{}, newClient(&sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { seen <- r.Params },
	}))
	p := bash(nil)
	p.SetProgressToken("p1")
	got := l.begin(t.Context(), p)
	id := d.next(t, 0)
	d.output <- "first\nsecond\r\n"
	one := <-seen
	d.output <- "third\n"
	d.output <- strings.Repeat("x", 1000)
	two := <-seen
	d.finish(id, schemas.StatusCompleted, "ok")
	<-got
	if one.Message != "second" || one.ProgressToken != "p1" || two.Progress <= one.Progress || len(two.Message) > 300 ||
		!strings.HasPrefix(two.Message, "xxx") {
		t.Errorf("progress is %+v, then %+v", one, two)
	}
}
