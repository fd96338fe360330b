package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/admission"
	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/calls"
	"github.com/sandjet/sandjet/gateway/conversations"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func bash(command string) string {
	return fmt.Sprintf(`{"tool":"bash","input":{"command":%q}}`, command)
}

func TestPostCallWaitsForTheResult(t *testing.T) {
	e := open(t)
	e.work()
	a := e.post("/v1/calls?wait=60s", bash("echo hi"))
	res := decode[schemas.Result](t, a)
	if a.status != http.StatusOK || res.Text != "hi" || res.Status != schemas.StatusCompleted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := a.header.Get("Location"); got != "/v1/calls/"+string(res.Call) {
		t.Errorf("Location %q", got)
	}
	if again := e.get("/v1/calls/" + string(res.Call)); again.status != http.StatusOK || again.body != a.body {
		t.Errorf("asked again: %d %s", again.status, again.body)
	}
}

func TestCallStates(t *testing.T) {
	e := open(t)
	a := e.post("/v1/calls", bash("hang"))
	st := decode[calls.State](t, a)
	if a.status != http.StatusAccepted || st.Status != "queued" || st.ID == "" || st.Conversation == "" {
		t.Fatalf("%d %s", a.status, a.body)
	}
	path := "/v1/calls/" + string(st.ID)
	if a := e.get(path + "?wait=10ms"); a.status != http.StatusAccepted || decode[calls.State](t, a).Status != "queued" {
		t.Errorf("with no worker: %d %s", a.status, a.body)
	}
	e.work()
	eventually(t, "the call runs", func() bool {
		a := e.get(path)
		return a.status == http.StatusAccepted && decode[calls.State](t, a).Status == "running"
	})
	if a := e.post(path+"/cancel", `{"reason":"enough"}`); a.status != http.StatusAccepted ||
		decode[calls.State](t, a).Status != "cancelling" {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	if a := e.get(path + "?wait=60s"); a.status != http.StatusOK || decode[schemas.Result](t, a).Status != schemas.StatusCancelled {
		t.Fatalf("after the cancel: %d %s", a.status, a.body)
	}
	if a := e.post(path+"/cancel", ""); a.status != http.StatusConflict || a.problem(t).Code != schemas.Conflict {
		t.Errorf("cancelled after its end: %d %s", a.status, a.body)
	}
}

// TestCancelledBeforeStart: the request to cancel is on the log before any worker has seen the call.
//
//guarantee:cancelling-kills-and-stopping-finishes
func TestCancelledBeforeStart(t *testing.T) {
	e := open(t)
	st := decode[calls.State](t, e.post("/v1/calls", bash("hang")))
	if a := e.post("/v1/calls/"+string(st.ID)+"/cancel", ""); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	n := 0
	for entry, err := range streams.Cancels.Replay(t.Context(), e.bus, string(alice), schemas.Cursor{}) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.Value.Call == st.ID {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d cancellations on the log", n)
	}
}

//guarantee:tenants-are-isolated
func TestForeignCallsAreNotFound(t *testing.T) {
	e := open(t)
	st := decode[calls.State](t, e.post("/v1/calls", bash("echo secret")))
	for _, a := range []ask{
		{method: http.MethodGet, path: "/v1/calls/%s"},
		{method: http.MethodPost, path: "/v1/calls/%s/cancel"},
	} {
		a.key = bobKey
		path := a.path
		a.path = fmt.Sprintf(path, st.ID)
		theirs := e.do(a)
		a.path = fmt.Sprintf(path, "call_nobodys")
		nobodys := e.do(a)
		if theirs.status != http.StatusNotFound || strings.ReplaceAll(theirs.body, string(st.ID), "call_nobodys") != nobodys.body {
			t.Errorf("%s: %d %s; one that never was: %s", a.method, theirs.status, theirs.body, nobodys.body)
		}
	}
	page := decode[conversations.Page](t, e.do(ask{
		method: http.MethodGet, path: "/v1/conversations/" + string(st.Conversation) + "/events", key: bobKey,
	}))
	if len(page.Events) != 0 {
		t.Errorf("somebody else reads %d events", len(page.Events))
	}
}

// TestBadRequests is the list of what is refused, each with its answer.
//
//guarantee:bad-input-is-answered-not-guessed
func TestBadRequests(t *testing.T) {
	e := open(t)
	big := `{"tool":"write","input":{"file_path":"a","content":"` + strings.Repeat("x", 10<<20) + `"}}`
	json := http.Header{"Content-Type": {"application/json"}}
	for name, tc := range map[string]struct {
		ask    ask
		status int
		code   schemas.Code
		field  string
	}{
		"no name of a tool":     {ask{body: `{"tool":"rm -r","input":{}}`}, 400, schemas.Invalid, "tool"},
		"unknown tool alone":    {ask{body: `{"tool":"rm"}`}, 400, schemas.Invalid, "input"},
		"missing tool":          {ask{body: `{"input":{}}`}, 400, schemas.Invalid, "tool"},
		"missing input":         {ask{body: `{"tool":"bash"}`}, 400, schemas.Invalid, "input"},
		"input of another type": {ask{body: `{"tool":"bash","input":"ls"}`}, 400, schemas.Invalid, "input"},
		"wrong type of a field": {ask{body: `{"tool":7,"input":{"command":"x"}}`}, 400, schemas.Invalid, "tool"},
		"unknown field":         {ask{body: `{"tool":"bash","input":{"command":"x"},"tol":1}`}, 400, schemas.Invalid, "tol"},
		"repeated field":        {ask{body: `{"tool":"bash","tool":"bash","input":{"command":"x"}}`}, 400, schemas.Invalid, "tool"},
		"10 MiB of input":       {ask{body: big}, 413, schemas.Invalid, ""},
		"invalid UTF-8":         {ask{body: "{\"tool\":\"bash\",\"input\":{\"command\":\"\xff\"}}"}, 400, schemas.Invalid, ""},
		"not JSON":              {ask{body: `tool=bash`}, 400, schemas.Invalid, ""},
		"cut JSON":              {ask{body: `{"tool":"bash"`}, 400, schemas.Invalid, ""},
		"two objects":           {ask{body: bash("x") + bash("y")}, 400, schemas.Invalid, ""},
		"an array":              {ask{body: `[]`}, 400, schemas.Invalid, ""},
		"empty body":            {ask{header: json}, 400, schemas.Invalid, ""},
		"a form of a browser": {ask{body: "tool=bash", header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}},
			400, schemas.Invalid, ""},
		"other content type": {ask{body: bash("x"), header: http.Header{"Content-Type": {"text/plain"}}}, 415, schemas.Invalid, ""},
		"other charset": {ask{body: bash("x"), header: http.Header{"Content-Type": {"application/json; charset=latin1"}}},
			415, schemas.Invalid, ""},
		"compressed":        {ask{body: bash("x"), header: http.Header{"Content-Encoding": {"gzip"}}}, 415, schemas.Invalid, ""},
		"no key":            {ask{body: bash("x"), key: "-"}, 401, schemas.Denied, ""},
		"unknown key":       {ask{body: bash("x"), key: "sk_nobody"}, 401, schemas.Denied, ""},
		"another account":   {ask{body: `{"tool":"bash","input":{"command":"x"},"account":"acct_bob"}`}, 403, schemas.Denied, "account"},
		"malformed account": {ask{body: `{"tool":"bash","input":{"command":"x"},"account":"bob"}`}, 400, schemas.Invalid, "account"},
		"unknown sandbox":   {ask{body: `{"tool":"bash","input":{"command":"x"},"sandbox":"nope"}`}, 404, schemas.NotFound, "sandbox"},
		"expired deadline": {ask{body: `{"tool":"bash","input":{"command":"x"},"deadline":"2020-01-01T00:00:00Z"}`},
			400, schemas.Invalid, "deadline"},
		"malformed id":        {ask{body: `{"tool":"bash","input":{"command":"x"},"id":"a b"}`}, 400, schemas.Invalid, "id"},
		"malformed wait":      {ask{body: bash("x"), path: "/v1/calls?wait=soon"}, 400, schemas.Invalid, "wait"},
		"unknown parameter":   {ask{body: bash("x"), path: "/v1/calls?wiat=1s"}, 400, schemas.Invalid, "wiat"},
		"malformed call id":   {ask{method: "GET", path: "/v1/calls/a%20b"}, 400, schemas.Invalid, "id"},
		"unknown call":        {ask{method: "GET", path: "/v1/calls/x"}, 404, schemas.NotFound, ""},
		"malformed cursor":    {ask{method: "GET", path: "/v1/conversations/c/events?after=7"}, 400, schemas.Invalid, "after"},
		"limit out of range":  {ask{method: "GET", path: "/v1/conversations/c/events?limit=0"}, 400, schemas.Invalid, "limit"},
		"unknown path":        {ask{method: "GET", path: "/v2/calls"}, 404, schemas.NotFound, ""},
		"wrong method":        {ask{method: "DELETE", path: "/v1/calls"}, 405, schemas.Unsupported, ""},
		"a defect":            {ask{body: bash("x"), key: "sk_panic"}, 500, schemas.Internal, ""},
		"a broken part":       {ask{body: bash("x"), key: "sk_broken"}, 500, schemas.Internal, ""},
		"no tool definitions": {ask{method: "GET", path: "/v1/tools"}, 501, schemas.Unsupported, ""},
		"a plain GET of ws":   {ask{method: "GET", path: "/v1/ws"}, 400, schemas.Invalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.ask.method == "" {
				tc.ask.method = http.MethodPost
			}
			if tc.ask.path == "" {
				tc.ask.path = "/v1/calls"
			}
			a := e.do(tc.ask)
			p := a.problem(t)
			if a.status != tc.status || p.Code != tc.code || p.Field != tc.field || p.Message == "" {
				t.Errorf("%d %s; want %d %s about %q", a.status, a.body, tc.status, tc.code, tc.field)
			}
			if strings.Contains(a.body, "10.0.0.1") || a.header.Get("X-Request-Id") == "" {
				t.Errorf("answered %s with request id %q", a.body, a.header.Get("X-Request-Id"))
			}
		})
	}
}

//guarantee:the-same-id-is-the-same-call
func TestSameIDIsTheSameCall(t *testing.T) {
	e := open(t)
	const first = `{"id":"mine","tool":"bash","input":{"command":"echo a"}}`
	st := decode[calls.State](t, e.post("/v1/calls", first))
	again := decode[calls.State](t, e.post("/v1/calls", `{ "input": {"command": "echo a"}, "tool": "bash", "id": "mine" }`))
	if again != st {
		t.Errorf("a repeat is another call: %+v, then %+v", st, again)
	}
	for name, other := range map[string]string{
		"other command":      `{"id":"mine","tool":"bash","input":{"command":"echo b"}}`,
		"other conversation": `{"id":"mine","tool":"bash","input":{"command":"echo a"},"conversation":"c_2"}`,
	} {
		if a := e.post("/v1/calls", other); a.status != http.StatusConflict || a.problem(t).Field != "id" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	theirs := e.do(ask{method: http.MethodPost, path: "/v1/calls", body: first, key: bobKey})
	if got := decode[calls.State](t, theirs); theirs.status != http.StatusAccepted || got.Conversation == st.Conversation {
		t.Errorf("ids of accounts meet: %d %s", theirs.status, theirs.body)
	}
	page := decode[conversations.Page](t, e.get("/v1/conversations/"+string(st.Conversation)+"/events"))
	if len(page.Events) != 1 || page.Events[0].Event.Type != schemas.CallAccepted {
		t.Errorf("the conversation has %+v", page.Events)
	}
	e.work()
	if a := e.post("/v1/calls?wait=60s", first); a.status != http.StatusOK || decode[schemas.Result](t, a).Text != "a" {
		t.Errorf("the repeat's wait: %d %s", a.status, a.body)
	}
}

// TestRepeatAfterItsDeadline: a client that got no answer may repeat the request when its own
// deadline has passed, and gets the call that is there.
func TestRepeatAfterItsDeadline(t *testing.T) {
	var late atomic.Bool
	e := open(t, func(o *gateway.Options) { o.Records = clockBook{late: &late} })
	body := fmt.Sprintf(`{"id":"mine","tool":"bash","input":{"command":"echo a"},"deadline":%q}`,
		time.Now().Add(time.Hour).Format(time.RFC3339Nano))
	first := e.post("/v1/calls", body)
	if first.status != http.StatusAccepted {
		t.Fatalf("%d %s", first.status, first.body)
	}
	late.Store(true)
	if other := e.post("/v1/calls", strings.Replace(body, "mine", "other", 1)); other.status != http.StatusBadRequest ||
		other.problem(t).Field != "deadline" {
		t.Errorf("a new call: %d %s", other.status, other.body)
	}
	if again := e.post("/v1/calls", body); again.status != http.StatusAccepted || again.body != first.body {
		t.Errorf("%d %s, want %s", again.status, again.body, first.body)
	}
}

// clockBook is a book for which every deadline has passed once it is late.
type clockBook struct {
	book

	late *atomic.Bool
}

func (c clockBook) Resolve(ctx context.Context, a schemas.AccountID, r schemas.Request) (schemas.Call, error) {
	if c.late.Load() && !r.Deadline.IsZero() {
		return schemas.Call{}, schemas.Invalidf("deadline", "has passed")
	}
	return c.book.Resolve(ctx, a, r)
}

// TestRepeatCompletesACrashedAdmission: the process died after it stored the call and before it published call.accepted. The repeat
// publishes it.
//
//guarantee:the-same-id-is-the-same-call
func TestRepeatCompletesACrashedAdmission(t *testing.T) {
	e := open(t)
	req, err := schemas.DecodeRequest([]byte(`{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"echo a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	call, err := book{}.Resolve(t.Context(), alice, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := streams.Calls.Publish(t.Context(), e.bus, call); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := admission.Admit(t.Context(), e.bus, book{}, alice, req)
		if err != nil || !got.Existing || got.Call.ID != "mine" {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	page := decode[conversations.Page](t, e.get("/v1/conversations/c_1/events"))
	if len(page.Events) != 1 || page.Events[0].Event.Type != schemas.CallAccepted {
		t.Errorf("the conversation has %+v", page.Events)
	}
}

//guarantee:the-same-id-is-the-same-call
func TestOneOfManyEqualRequestsIsTheCall(t *testing.T) {
	e := open(t)
	const clients = 20
	states := make([]calls.State, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			states[i] = decode[calls.State](t, e.post("/v1/calls", `{"id":"mine","tool":"bash","input":{"command":"echo a"}}`))
		})
	}
	wg.Wait()
	for _, s := range states {
		if s != states[0] {
			t.Errorf("%+v and %+v", s, states[0])
		}
	}
}

func TestLargeInputsAreNotInTheEvent(t *testing.T) {
	for size, in := range map[int]bool{1000: true, 100_000: false} {
		c := schemas.Call{ID: "x", Account: alice, Conversation: "c", Tool: schemas.ToolBash,
			Input: []byte(`{"command":"` + strings.Repeat("x", size) + `"}`)}
		if got := strings.Contains(string(schemas.AcceptedEvent(c).Data), "xxxx"); got != in {
			t.Errorf("%d bytes: input in the event: %v", size, got)
		}
	}
}

func TestHealthAndMetrics(t *testing.T) {
	e := open(t)
	e.post("/v1/calls", bash("x"))
	for path, want := range map[string]string{
		"/healthz": `"version":"1.0.0"`, "/readyz": "ready", "/openapi.json": `"openapi"`,
		"/metrics": `sandjet_calls_accepted_total{door="api",repeat="false"} 1`,
	} {
		a := e.do(ask{method: http.MethodGet, path: path, key: "-"})
		if a.status != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d %.300s", path, a.status, a.body)
		}
	}
	eventually(t, "the queue's age is measured", func() bool {
		a := e.do(ask{method: http.MethodGet, path: "/metrics", key: "-"})
		return strings.Contains(a.body, `sandjet_queue_age_seconds{provider="fake"}`) &&
			strings.Contains(a.body, `sandjet_http_requests_total{route="POST /v1/calls",status="202"} 1`)
	})
	e.gw.Drain()
	if a := e.do(ask{method: http.MethodGet, path: "/readyz", key: "-"}); a.status != http.StatusServiceUnavailable {
		t.Errorf("a draining gateway is ready: %d", a.status)
	}
}

func TestDrainEndsWaits(t *testing.T) {
	e := open(t)
	done := make(chan answer, 1)
	go func() { done <- e.post("/v1/calls?wait=60s", bash("hang")) }()
	eventually(t, "a request waits", func() bool {
		return strings.Contains(e.do(ask{method: http.MethodGet, path: "/metrics", key: "-"}).body, "sandjet_waiting_requests 1")
	})
	e.gw.Drain()
	select {
	case a := <-done:
		if a.status != http.StatusAccepted {
			t.Errorf("%d %s", a.status, a.body)
		}
	case <-time.After(within):
		t.Fatal("the wait outlived the drain")
	}
}

func TestOtherOrigins(t *testing.T) {
	e := open(t, func(o *gateway.Options) { o.Origins = []string{"https://app.example"} })
	preflight := func(origin string) answer {
		return e.do(ask{method: http.MethodOptions, path: "/v1/calls", key: "-", header: http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {"POST"},
		}})
	}
	if a := preflight("https://app.example"); a.status != http.StatusNoContent ||
		a.header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Errorf("allowed origin: %d %v", a.status, a.header)
	}
	if a := preflight("https://evil.example"); a.status == http.StatusNoContent || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("other origin: %d %v", a.status, a.header)
	}
}
