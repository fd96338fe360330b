package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

// TestTheClientsUserIsAsked, and what is no clear yes is none.
func TestTheClientsUserIsAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say     sdk.ElicitResult
		decides *bool
		forAll  bool
		ends    string
	}{
		"once": {sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Allow once"}}, new(true), false, "completed"},
		"for all": {sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Allow for this conversation"}},
			new(true), true, "completed"},
		"no":       {sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Deny"}}, new(false), false, "denied"},
		"declined": {sdk.ElicitResult{Action: "decline"}, new(false), false, "denied"},
		"left":     {sdk.ElicitResult{Action: "cancel"}, nil, false, mcp.StatusAwaiting},
	} {
		d := newDesk()
		d.ask = true
		var asked string
		l := dial(t, d, mcp.Options{}, newClient(&sdk.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				asked = r.Params.Message
				return &c.say, nil
			},
		}))
		got := l.begin(t.Context(), bash(nil))
		if c.decides != nil {
			d.until(t, func() bool { return len(d.decided) == 1 })
			if a := d.decided[0]; *a.Approved != *c.decides || (a.Remember != "") != c.forAll {
				t.Errorf("%s: decided %+v", name, a)
			}
			if *c.decides {
				d.finish(d.next(t, 0), schemas.StatusCompleted, "ok")
			}
		}
		a := <-got
		if a.err != nil {
			t.Fatalf("%s: %v", name, a.err)
		}
		if m := record(t, l, a.res); m["status"] != c.ends || !strings.Contains(asked, `"command":"echo"`) {
			t.Errorf("%s: %v; it was asked %q", name, m, asked)
		}
		if len(d.submitted) != 1 {
			t.Errorf("%s: %d calls", name, len(d.submitted))
		}
	}
}

// TestAClientThatCannotAskGetsTheRemedy.
func TestAClientThatCannotAskGetsTheRemedy(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask = true
	l := dial(t, d, mcp.Options{}, newClient(nil))
	res, err := l.CallTool(t.Context(), bash(nil))
	if err != nil {
		t.Fatal(err)
	}
	if m := record(t, l, res); res.IsError || m["status"] != mcp.StatusAwaiting || !strings.Contains(text(res), "approvals approve appr_1") {
		t.Errorf("%v %q", m, text(res))
	}
}

// asking is a client that carries its questions itself.
func asking(t *testing.T, d *desk, o mcp.Options) *line {
	t.Helper()
	return dial(t, d, o, newClient(&sdk.ClientOptions{
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return nil, errors.New("not asked")
		},
	}))
}

// TestStateIsNotForged: what a client carries counts for its own call, for ten minutes, and unchanged.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestStateIsNotForged(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask = true
	now := accepted
	l := asking(t, d, mcp.Options{Now: func() time.Time { return now }})
	res, err := l.CallTool(t.Context(), bash(nil))
	if err != nil || !res.NeedsInput() {
		t.Fatalf("%+v %v", res, err)
	}
	state := res.RequestState
	parts := strings.Split(state, ".")
	body, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err != nil {
		t.Fatal(err)
	}
	yes := sdk.InputResponseMap{"appr_1": &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "Allow once"}}}
	again := func(state string, p *sdk.CallToolParams) error {
		p.RequestState, p.InputResponses = state, yes
		_, err := l.CallTool(t.Context(), p)
		return err
	}
	other := bash(nil)
	other.Arguments = map[string]any{"command": "rm -rf /"}
	forged := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(body), "acct_a", "acct_b", 1)))
	for name, c := range map[string]struct {
		state string
		p     *sdk.CallToolParams
	}{
		"nothing of ours": {"x", bash(nil)},
		"changed":         {forged + "." + parts[1] + "." + parts[2], bash(nil)},
		"another key":     {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte("k")) + "." + parts[2], bash(nil)},
		"another call":    {state, other},
		"too long":        {state + strings.Repeat("A", 5000), bash(nil)},
	} {
		if err := again(c.state, c.p); err == nil || !strings.Contains(err.Error(), "requestState") {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := asking(t, d, mcp.Options{}) // with keys of its own
	p := bash(nil)
	p.RequestState, p.InputResponses = state, yes
	if _, err := elsewhere.CallTool(t.Context(), p); err == nil {
		t.Error("another server's state counts")
	}
	now = now.Add(10 * time.Minute)
	if err := again(state, bash(nil)); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("too old: %v", err)
	}
	if len(d.decided) > 0 {
		t.Fatalf("decided %v", d.decided)
	}
	now = accepted
	got := make(chan error, 1)
	go func() { got <- again(state, bash(nil)) }()
	d.until(t, func() bool { return len(d.decided) == 1 })
	d.finish(d.next(t, 0), schemas.StatusCompleted, "ok")
	if err := <-got; err != nil {
		t.Errorf("as it was given: %v", err)
	}
}

// taskAnswer is what a client of tasks reads.
type taskAnswer struct {
	sdk.ResultBase

	ResultType    string                     `json:"resultType"`
	TaskID        string                     `json:"taskId"`
	Status        string                     `json:"status"`
	TTLMs         int64                      `json:"ttlMs"`
	Result        *sdk.CallToolResult        `json:"result"`
	InputRequests map[string]json.RawMessage `json:"inputRequests"`
}

type taskAsk struct {
	sdk.ParamsBase

	TaskID         string         `json:"taskId"`
	InputResponses map[string]any `json:"inputResponses,omitempty"`
}

// tasking is a client that knows tasks.
func tasking(t *testing.T, d *desk, o mcp.Options) *line {
	t.Helper()
	capabilities := &sdk.ClientCapabilities{Elicitation: &sdk.ElicitationCapabilities{Form: &sdk.FormElicitationCapabilities{}}}
	capabilities.AddExtension("io.modelcontextprotocol/tasks", nil)
	client := newClient(&sdk.ClientOptions{Capabilities: capabilities, MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true}})
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if err := sdk.AddSendingCustomMethod[*taskAsk, *taskAnswer](client, method); err != nil {
			t.Fatal(err)
		}
	}
	return dial(t, d, o, client)
}

func (l *line) task(t *testing.T, method string, ask taskAsk) *taskAnswer {
	t.Helper()
	got, err := sdk.CallCustomMethod[*taskAsk, *taskAnswer](t.Context(), l.ClientSession, method, &ask)
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	if got.ResultType != "complete" {
		t.Errorf("%s: result type %q", method, got.ResultType)
	}
	return got
}

// TestLongCallsAreTasks: of who knows tasks. The task is the call, so that another server answers for it as well.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestLongCallsAreTasks(t *testing.T) {
	t.Parallel()
	for _, end := range []schemas.Status{schemas.StatusCompleted, schemas.StatusInterrupted, schemas.StatusCancelled} {
		d := newDesk()
		l := tasking(t, d, mcp.Options{Wait: time.Millisecond})
		res, err := l.CallTool(t.Context(), bash(nil))
		if err != nil || len(res.Content) > 0 {
			t.Fatalf("%+v %v", res, err)
		}
		id := string(d.submitted[0].ID)
		other := tasking(t, d, mcp.Options{}) // another process
		if got := other.task(t, "tasks/get", taskAsk{TaskID: id}); got.Status != "working" || got.TaskID != id || got.TTLMs <= 0 {
			t.Errorf("%+v", got)
		}
		if end == schemas.StatusCancelled {
			other.task(t, "tasks/cancel", taskAsk{TaskID: id})
			other.task(t, "tasks/cancel", taskAsk{TaskID: id})
		} else {
			d.finish(schemas.CallID(id), end, "so it ended")
		}
		got := l.task(t, "tasks/get", taskAsk{TaskID: id})
		switch end {
		case schemas.StatusCancelled:
			if got.Status != "cancelled" || got.Result != nil {
				t.Errorf("%s: %+v", end, got)
			}
		default:
			if got.Status != "completed" || got.Result == nil || got.Result.IsError != (end != schemas.StatusCompleted) ||
				text(got.Result) != "so it ended" {
				t.Errorf("%s: %+v", end, got)
			}
		}
		never := &taskAsk{TaskID: "mcp_x"}
		if _, err := sdk.CallCustomMethod[*taskAsk, *taskAnswer](t.Context(), l.ClientSession, "tasks/get", never); err == nil {
			t.Error("there is a task that never was")
		}
	}
}

// TestTheCreatedTask is read as it is written: the SDK's client knows no tasks.
func TestTheCreatedTask(t *testing.T) {
	t.Parallel()
	d := newDesk()
	got := post(t, mcp.New(mcp.Options{Wait: time.Millisecond}), scopeOf(d), modern("tools/call", `"name":"bash","arguments":{"command":"x"}`,
		`"extensions":{"io.modelcontextprotocol/tasks":{}}`), modernHeaders("tools/call", "bash"))
	var m struct {
		Result struct{ ResultType, TaskId, Status, CreatedAt string }
	}
	if err := json.Unmarshal(got.data(t), &m); err != nil {
		t.Fatal(err)
	}
	if r := m.Result; r.ResultType != "task" || r.TaskId != string(d.submitted[0].ID) ||
		r.Status != "working" || r.CreatedAt != "2026-08-01T12:00:00Z" {
		t.Errorf("%+v", r)
	}
}

// TestATaskAsksItsUser by tasks/get, and the first answer counts.
func TestATaskAsksItsUser(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask = true
	l := tasking(t, d, mcp.Options{})
	if res, err := l.CallTool(t.Context(), bash(nil)); err != nil || !res.NeedsInput() {
		t.Fatalf("%+v %v", res, err)
	}
	id := string(d.submitted[0].ID)
	got := l.task(t, "tasks/get", taskAsk{TaskID: id})
	if got.Status != "input_required" || len(got.InputRequests) != 1 || got.InputRequests["appr_1"] == nil {
		t.Errorf("%+v", got)
	}
	l.task(t, "tasks/update", taskAsk{TaskID: id, InputResponses: map[string]any{"other": map[string]any{"action": "accept"}}})
	if len(d.decided) > 0 {
		t.Errorf("an answer to nothing has decided %v", d.decided)
	}
	for range 2 {
		l.task(t, "tasks/update", taskAsk{TaskID: id, InputResponses: map[string]any{
			"appr_1": map[string]any{"action": "accept", "content": map[string]any{"decision": "Allow once"}}}})
	}
	if len(d.decided) != 1 || !*d.decided[0].Approved {
		t.Errorf("decided %v", d.decided)
	}
	if got := l.task(t, "tasks/get", taskAsk{TaskID: id}); got.Status != "working" {
		t.Errorf("%+v", got)
	}
}

// TestAJobIsATask by its status id.
func TestAJobIsATask(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.jobs["job_1"] = schemas.Job{ID: "job_1", State: schemas.JobRunning, Created: accepted, Deadline: accepted.Add(time.Hour)}
	d.jobs["job_2"] = schemas.Job{ID: "job_2", State: schemas.JobCompleted, Created: accepted, Deadline: accepted,
		Completion: &schemas.Completion{State: schemas.JobCompleted, Logs: "built\n", Finished: accepted}}
	l := tasking(t, d, mcp.Options{})
	if got := l.task(t, "tasks/get", taskAsk{TaskID: "job_1"}); got.Status != "working" {
		t.Errorf("%+v", got)
	}
	l.task(t, "tasks/update", taskAsk{TaskID: "job_1"})
	l.task(t, "tasks/cancel", taskAsk{TaskID: "job_1"})
	if got := l.task(t, "tasks/get", taskAsk{TaskID: "job_1"}); got.Status != "cancelled" {
		t.Errorf("%+v", got)
	}
	if got := l.task(t, "tasks/get", taskAsk{TaskID: "job_2"}); got.Status != "completed" || got.Result.IsError ||
		!strings.Contains(text(got.Result), "built") {
		t.Errorf("%+v", got)
	}
}

// TestAClosedStreamCancelsAfterAGrace of calls that may be asked for again. A client that comes back meanwhile keeps them.
//
//guarantee:a-tool-use-by-mcp-is-one-call
func TestAClosedStreamCancelsAfterAGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		meta            string
		back            bool
		after, atLatest time.Duration
	}{
		{"without a mark", "", false, 0, time.Second},
		{"with a mark", `,"sandjet/idempotencyKey":"k"`, false, 10 * time.Second, 11 * time.Second},
		{"who comes back", `,"sandjet/idempotencyKey":"k"`, true, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDesk()
				s := mcp.New(mcp.Options{})
				defer s.Close()
				began := time.Now()
				body := marked("tools/call", `"name":"bash","arguments":{"command":"x"}`, c.meta)
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					postWith(ctx, t, s, scopeOf(d), body, modernHeaders("tools/call", "bash"))
					close(ended)
				}()
				id := d.next(t, 0)
				leave()
				<-ended
				if c.back {
					time.Sleep(5 * time.Second)
					go func() { time.Sleep(12 * time.Second); d.finish(id, schemas.StatusCompleted, "kept") }()
					if got := post(t, s, scopeOf(d), body, modernHeaders("tools/call", "bash")); !strings.Contains(got.body, "kept") {
						t.Errorf("who came back got %s", got.body)
					}
				} else {
					d.until(t, func() bool { return len(d.cancelled) == 1 })
					if took := time.Since(began); took < c.after || took > c.atLatest {
						t.Errorf("cancelled after %s", took)
					}
				}
				s.Close()
				if c.back && len(d.cancelled) > 0 {
					t.Error("cancelled though somebody waited for it")
				}
			})
		})
	}
}
