package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/gateway/sandboxapi"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/records"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// sessions serves /v1/sandbox for the provider local, with two sessions for each account.
func sessions(store *records.Store) gateway.Sandboxes {
	return gateway.Sandboxes{
		Store: store.Sessions, MaxSessions: 2, Wait: time.Millisecond,
		Spec: schemas.SandboxSpec{Name: "sessions-local", Config: schemas.SandboxConfig{
			Provider: "local", PermissionMode: schemas.PermissionBypass, Persistent: true, Guard: schemas.GuardOff,
		}},
	}
}

func openSessions(t *testing.T) *kept {
	t.Helper()
	k := openKept(t, func(o *gateway.Options) { o.Sandboxes = sessions(o.Records.(*records.Store)) })
	k.workAs("local")
	return k
}

// session finds a session of an account.
func (k *kept) session(h holder, id string) schemas.SandboxSession {
	k.t.Helper()
	l, err := k.store.Sessions.Get(k.t.Context(), schemas.AccountID(h.id))
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range l.Sessions {
		if s.ID == id {
			return s
		}
	}
	k.t.Fatalf("%s has no session %s: %+v", h.id, id, l)
	return schemas.SandboxSession{}
}

// unused has a session be unused for a long time.
func (k *kept) unused(h holder, id string) {
	k.t.Helper()
	_, err := k.store.Sessions.Change(k.t.Context(), schemas.AccountID(h.id), func(l *schemas.SandboxSessions) error {
		for i := range l.Sessions {
			if l.Sessions[i].ID == id {
				l.Sessions[i].Used = l.Sessions[i].Used.Add(-time.Hour)
			}
		}
		return nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

const echo = `{"session_id":"s","command":"echo hello"}`

//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestSandboxRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	long := strings.Repeat("x", schemas.MaxPath+1)
	for body, want := range map[string]struct {
		path, field string
		status      int
	}{
		`{"command":"true"}`:                                                  {"bash", "session_id", 400},
		`{"session_id":"a/b","command":"true"}`:                               {"bash", "session_id", 400},
		`{"session_id":"` + strings.Repeat("s", 65) + `","command":"true"}`:   {"bash", "session_id", 400},
		`{"session_id":"s"}`:                                                  {"bash", "command", 400},
		`{"session_id":"s","command":"a\u0000b"}`:                             {"bash", "command", 400},
		`{"session_id":"s","command":"true","cwd":"../x"}`:                    {"bash", "cwd", 400},
		`{"session_id":"s","command":"true","timeout_ms":0}`:                  {"bash", "timeout_ms", 400},
		`{"session_id":"s","command":"true","timeout_ms":600001}`:             {"bash", "timeout_ms", 400},
		`{"session_id":"s","command":"true","env":{"A B":"x"}}`:               {"bash", "env", 400},
		`{"session_id":"s","command":"true","env":{"A":"\u0000"}}`:            {"bash", "env.A", 400},
		`{"session_id":"s","command":"true","surprise":1}`:                    {"bash", "surprise", 400},
		`{"session_id":"s","command":"true","tenant_id":"acct_other"}`:        {"bash", "tenant_id", 403},
		`{"session_id":"s","code":"1","language":"cobol"}`:                    {"execute", "language", 400},
		`{"session_id":"s","code":"1","language":"bash","result":true}`:       {"execute", "result", 400},
		`{"session_id":"s","code":"` + strings.Repeat("x", 512<<10+1) + `"}`:  {"execute", "code", 400},
		`{"session_id":"s","path":"/etc/passwd"}`:                             {"read", "path", 400},
		`{"session_id":"s","path":"/workspace/../etc"}`:                       {"read", "path", 400},
		`{"session_id":"s","path":"` + long + `"}`:                            {"read", "path", 400},
		`{"session_id":"s","path":"a","offset":0}`:                            {"read", "offset", 400},
		`{"session_id":"s","path":"a","limit":0}`:                             {"read", "limit", 400},
		`{"session_id":"s","path":"."}`:                                       {"read_binary", "path", 400},
		`{"session_id":"s","path":"a\u0000"}`:                                 {"read_binary", "path", 400},
		`{"session_id":"s","path":"a"}`:                                       {"write", "content", 400},
		`{"session_id":"s","path":"a","content":"x","content_base64":"eA=="}`: {"write", "content_base64", 400},
		`{"session_id":"s","path":"a","content_base64":"eA"}`:                 {"write", "content_base64", 400},
		`{"session_id":"s","path":"a/","content":""}`:                         {"write", "path", 400},
		`{"session_id":"s","path":"a","content":"x","if_match":"x"}`:          {"write", "if_match", 400},
		`{"session_id":"s","pattern":""}`:                                     {"grep", "pattern", 400},
		`{"session_id":"s","pattern":"x","path":"a/../../b"}`:                 {"grep", "path", 400},
		`{"session_id":"s","pattern":"x","mode":"fuzzy"}`:                     {"grep", "mode", 400},
		`{"session_id":"s","pattern":"x","max_count":0}`:                      {"grep", "max_count", 400},
		`{"session_id":"s","pattern":"x","glob":"../*"}`:                      {"grep", "glob", 400},
		`{"session_id":"s","pattern":"../*"}`:                                 {"glob", "pattern", 400},
		`{"session_id":"s","pattern":"/etc/*"}`:                               {"glob", "pattern", 400},
		`{"session_id":"s","path":"a/../.."}`:                                 {"ls", "path", 400},
		`{"session_id":"s","path":"/etc"}`:                                    {"ls", "path", 400},
		`{"session_id":"s","limit":0}`:                                        {"ls", "limit", 400},
		`{"files":[]}`:                                                        {"sessions/me/s/copy", "files", 400},
		`{"files":[` + strings.Repeat(`{"path":"a","content_base64":""},`, 100) + `{"path":"a","content_base64":""}]}`: {"sessions/me/s/copy", "files", 400},
		`{"files":[{"path":"a","content_base64":""}]}`:                                                                 {"sessions/acct_other/s/copy", "session", 404},
	} {
		a := k.as(k.anna, http.MethodPost, "/v1/sandbox/"+want.path, body)
		if p := a.problem(t); a.status != want.status || p.Field != want.field {
			t.Errorf("%s %.100s: %d %s", want.path, body, a.status, a.body)
		}
	}
	for header, want := range map[string]int{"a\tb": 400, strings.Repeat("k", 256): 400, strings.Repeat("k", 255): 200} {
		if a := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo, "Idempotency-Key", header); a.status != want {
			t.Errorf("%.20q: %d %s", header, a.status, a.body)
		}
	}
	if a := k.do(ask{method: http.MethodPost, path: "/v1/sandbox/bash", body: echo, key: adminKey}); a.problem(t).Field != "tenant_id" {
		t.Errorf("the administrator names nobody: %d %s", a.status, a.body)
	}
	if a := k.do(ask{method: http.MethodPost, path: "/v1/sandbox/bash", body: `{"tenant_id":"acct_never",` + echo[1:], key: adminKey}); a.status != 404 {
		t.Errorf("the administrator names an account that is not there: %d %s", a.status, a.body)
	}
}

//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestSandboxRequestsAreCalls(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	first := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo, "Idempotency-Key", "k")
	got := decode[sandboxapi.Envelope](t, first)
	if first.status != http.StatusOK || got.Stdout != "hello" || !got.OK || got.SessionID != "s" || got.Artifacts == nil {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if again := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo, "Idempotency-Key", "k"); again.body != first.body {
		t.Errorf("the same key: %d %s", again.status, again.body)
	}
	other := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", strings.Replace(echo, "hello", "other", 1), "Idempotency-Key", "k")
	if p := other.problem(t); other.status != http.StatusConflict || p.Field != "Idempotency-Key" {
		t.Errorf("the same key for something else: %d %s", other.status, other.body)
	}
	elsewhere := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", strings.Replace(echo, `"s"`, `"t"`, 1), "Idempotency-Key", "k")
	if e := decode[sandboxapi.Envelope](t, elsewhere); elsewhere.status != http.StatusOK || e.ExecutionID == got.ExecutionID {
		t.Errorf("the same key in another session: %d %s", elsewhere.status, elsewhere.body)
	}
	if a := k.as(k.anna, http.MethodGet, first.header.Get("Location"), ""); a.status != http.StatusOK {
		t.Errorf("the call: %d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/conversations/sandbox:s/events", ""); !strings.Contains(a.body, string(got.ExecutionID)) {
		t.Errorf("the conversation: %d %s", a.status, a.body)
	}
}

// TestSessionsAreLimited: the limit holds whatever is asked at the same time, idle sessions make room, busy ones do not.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestSessionsAreLimited(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	use := func(id string) answer {
		return k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", `{"session_id":"`+id+`","command":"echo x"}`)
	}
	answers := make(chan answer, 20)
	for n := range cap(answers) {
		go func() { answers <- use("s" + string(rune('a'+n))) }()
	}
	served := 0
	for range cap(answers) {
		a := <-answers
		switch a.status {
		case http.StatusOK:
			served++
		case http.StatusTooManyRequests:
			full := decode[sandboxapi.TooManySessions](t, a)
			if full.Error.Code != "max_sessions" || full.Error.Limit != 2 || full.Error.Active != 2 || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %v %s", a.status, a.header, a.body)
			}
		default:
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	l, err := k.store.Sessions.Get(t.Context(), schemas.AccountID(k.anna.id))
	if err != nil || served != 2 || len(l.Sessions) != 2 {
		t.Fatalf("%d were served: %+v, %v", served, l, err)
	}
	busy, idle := l.Sessions[0], l.Sessions[1]
	// Something runs in one, and the other's instance has ended by itself.
	box := schemas.Instance{
		Account: schemas.AccountID(k.anna.id), Sandbox: busy.Sandbox, Workspace: busy.Workspace, Provider: "local",
		State: schemas.InstanceReady, Ref: schemas.Ref{ID: "box", Epoch: "1"}, Made: time.Now(), Used: time.Now(),
	}
	if _, err := lifecycle.OpenInstances(k.bus).Put(t.Context(), box.Key(), box); err != nil {
		t.Fatal(err)
	}
	k.openJob(func(j *schemas.Job) {
		j.Account, j.Sandbox, j.Workspace, j.Provider = box.Account, box.Sandbox, box.Workspace, box.Provider
	})
	k.unused(k.anna, busy.ID)
	if a := use("another"); a.status != http.StatusTooManyRequests {
		t.Errorf("one is busy, the other in use: %d %s", a.status, a.body)
	}
	k.unused(k.anna, idle.ID)
	if a := use("another"); a.status != http.StatusOK {
		t.Errorf("one is idle: %d %s", a.status, a.body)
	}
	if s := k.session(k.anna, idle.ID); s.Active || s.Workspace != idle.Workspace {
		t.Errorf("it keeps its files: %+v", s)
	}
	if s := k.session(k.anna, busy.ID); !s.Active {
		t.Errorf("it is busy: %+v", s)
	}
}

// TestWhatSessionsReport has what a dashboard of such a service reads, and artifacts by the names of its clients.
func TestWhatSessionsReport(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	a := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", `{"session_id":"s","command":"echo outputs/plot.png"}`)
	var got struct {
		Execution string           `json:"execution_id"`
		Artifacts []map[string]any `json:"artifacts"`
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got.Artifacts) != 1 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	id, _ := got.Artifacts[0]["artifact_id"].(string)
	for field, want := range map[string]any{
		"call_id": got.Execution, "path": "outputs/plot.png", "name": "plot.png", "mime_type": "image/png", "size": 1.0, "sha256": "hash",
		"kind": "plot", "url": "/v1/artifacts/" + id,
	} {
		if v := got.Artifacts[0][field]; v != want || id == "" {
			t.Errorf("%s of the artifact is %v, want %v", field, v, want)
		}
	}
	for _, id := range []string{"t", "u"} { // the second has no place
		k.as(k.anna, http.MethodPost, "/v1/sandbox/execute", `{"session_id":"`+id+`","code":"x"}`)
	}
	k.unused(k.anna, "s")
	k.as(k.anna, http.MethodPost, "/v1/sandbox/read", `{"session_id":"u","path":"a"}`)
	metrics := k.do(ask{method: http.MethodGet, path: "/metrics", key: adminKey}).body
	for _, want := range []string{
		"sandbox_sessions_active 2", `sandbox_executions_total{backend="local",outcome="ok",tool="bash"} 1`,
		`sandbox_executions_total{backend="local",outcome="ok",tool="execute"} 1`, "sandbox_execution_seconds_count 3",
		"sandbox_cold_start_seconds_count 3", `sandbox_evictions_total{reason="idle"} 1`, "sandbox_artifacts_total 1",
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("the metrics have no %s", want)
		}
	}
	if t.Failed() {
		for line := range strings.Lines(metrics) {
			if strings.HasPrefix(line, "sandbox_") && !strings.Contains(line, "_bucket") {
				t.Log(line)
			}
		}
	}
}

//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestSessionsOfTwoTenants(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	for _, h := range []holder{k.anna, k.bert} {
		if a := k.as(h, http.MethodPost, "/v1/sandbox/bash", echo); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	if a, b := k.session(k.anna, "s"), k.session(k.bert, "s"); a.Workspace == b.Workspace || a.Sandbox == b.Sandbox {
		t.Errorf("they share %+v, %+v", a, b)
	}
	for _, c := range []struct{ method, path, body string }{
		{http.MethodDelete, "/v1/sandbox/sessions/%/s", ""},
		{http.MethodPost, "/v1/sandbox/sessions/%/s/copy", `{"files":[{"path":"a","content_base64":""}]}`},
	} {
		hers := k.as(k.bert, c.method, strings.Replace(c.path, "%", k.anna.id, 1), c.body)
		none := k.as(k.bert, c.method, strings.Replace(c.path, "%", "acct_never", 1), c.body)
		if hers.status != http.StatusNotFound || hers.body != none.body {
			t.Errorf("%s: hers is %d %s, what never was %d %s", c.path, hers.status, hers.body, none.status, none.body)
		}
	}
	a := k.as(k.bert, http.MethodGet, "/v1/sandbox/sessions", "")
	if strings.Contains(a.body, k.anna.id) || !strings.Contains(a.body, k.bert.id) {
		t.Errorf("his list: %d %s", a.status, a.body)
	}
	all := sandboxapi.SessionList{}
	for after := ""; ; after = "&after=" + all.Next {
		page := decode[sandboxapi.SessionList](t, k.do(ask{method: http.MethodGet, path: "/v1/sandbox/sessions?limit=1" + after, key: adminKey}))
		all.Sessions, all.Next = append(all.Sessions, page.Sessions...), page.Next
		if page.Next == "" {
			break
		}
	}
	if len(all.Sessions) != 2 || all.Sessions[0].TenantID == all.Sessions[1].TenantID {
		t.Errorf("the administrator's list: %+v", all)
	}
	if a := k.do(ask{method: http.MethodDelete, path: "/v1/accounts/" + k.anna.id, key: adminKey}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if l, err := k.store.Sessions.Get(t.Context(), schemas.AccountID(k.anna.id)); err != nil || len(l.Sessions) != 0 {
		t.Errorf("the sessions of an account that is gone: %+v, %v", l, err)
	}
}

// TestASessionIsDestroyedWhole, also by a second try when the first broke off. Meanwhile no request enters the session.
//
//guarantee:a-request-to-a-session-is-run-once-by-its-key
func TestASessionIsDestroyedWhole(t *testing.T) {
	t.Parallel()
	k := openSessions(t)
	if a := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	was := k.session(k.anna, "s")
	_, err := k.store.Sessions.Change(t.Context(), schemas.AccountID(k.anna.id), func(l *schemas.SandboxSessions) error {
		l.Sessions[0].Ending = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo); a.status != http.StatusConflict {
		t.Errorf("it is being destroyed: %d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodDelete, "/v1/sandbox/sessions/me/s", ""); a.status != http.StatusOK || a.body != `{"deleted":true}` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodDelete, "/v1/sandbox/sessions/me/s", ""); a.status != http.StatusNotFound {
		t.Errorf("again: %d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodGet, "/v1/accounts/me/workspaces/"+string(was.Workspace), ""); a.status != http.StatusNotFound {
		t.Errorf("its workspace: %d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodPost, "/v1/sandbox/bash", echo); a.status != http.StatusOK {
		t.Errorf("a new one of its id: %d %s", a.status, a.body)
	}
	again := k.session(k.anna, "s")
	if again.Workspace == was.Workspace {
		t.Error("it has the files of the one before")
	}
	if a := k.as(k.anna, http.MethodDelete, "/v1/accounts/me/workspaces/"+string(again.Workspace), ""); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := k.as(k.anna, http.MethodDelete, "/v1/sandbox/sessions/me/s", ""); a.status != http.StatusOK {
		t.Errorf("its workspace is removed already: %d %s", a.status, a.body)
	}
}

// workAs answers the calls of a provider as a worker does whose commands print what follows echo.
func (e *edge) workAs(provider string) {
	e.t.Helper()
	e.background(func(ctx context.Context) error {
		o := streams.ConsumeOptions{Name: "w-" + provider, Filter: provider, Slots: 16}
		return streams.Calls.Consume(ctx, e.bus, o, func(_ context.Context, d streams.Delivery[schemas.Call]) error {
			c, in := d.Value, schemas.BashInput{}
			if err := json.Unmarshal(c.Input, &in); err != nil {
				return err
			}
			now := time.Now().UTC()
			text := strings.TrimPrefix(in.Command, "echo ")
			var left []schemas.Artifact
			if strings.HasSuffix(text, ".png") {
				left = append(left, schemas.NewArtifact(c, text, 1, "hash", []byte("x"), now))
			}
			e.publish(schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, d.Attempt), now,
				schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "w", Attempt: d.Attempt}))
			e.publish(schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), now, schemas.Result{
				Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: schemas.StatusCompleted, Text: text,
				Started: now, Finished: now, Output: &schemas.Output{OK: true, Runtime: "bash", Stdout: text}, Artifacts: left,
			}))
			return nil
		})
	})
}
