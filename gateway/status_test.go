package gateway_test

import (
	"net/http"
	"testing"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// polled is the answer to a poll.
type polled struct {
	EventID      string `json:"eventId"`
	Conversation string `json:"conversationKey"`
	Status       string `json:"status"`
	Response     struct {
		Text string         `json:"text"`
		Logs string         `json:"logs"`
		Job  schemas.JobID  `json:"job"`
		Exit *int           `json:"exit_code"`
		Call schemas.CallID `json:"call"`
	} `json:"response"`
	Error string `json:"error"`
}

func TestARunIsPolled(t *testing.T) {
	e := open(t)
	poll := func(key, id, query string) (int, polled) {
		t.Helper()
		a := e.do(ask{method: http.MethodGet, path: "/v1/calls/" + id + "/status" + query, key: key})
		return a.status, decode[polled](t, a)
	}
	if status, p := poll("", "mine", ""); status != http.StatusNotFound || p.Status != "not_found" || p.EventID != "mine" {
		t.Errorf("before it was asked for: %d %+v", status, p)
	}
	const request = `{"id":"mine","conversation":"c_1","tool":"bash","input":{"command":"echo hello"}}`
	if a := e.do(ask{method: http.MethodPost, path: "/v1/calls", body: request}); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if status, p := poll("", "mine", ""); status != http.StatusOK || p.Status != "processing" || p.Conversation != "c_1" {
		t.Errorf("in the queue: %d %+v", status, p)
	}
	if status, p := poll(bobKey, "mine", ""); status != http.StatusNotFound || p.Status != "not_found" {
		t.Errorf("somebody else: %d %+v", status, p)
	}
	if status, p := poll("", "mine", "?agentId=agent_1"); status != http.StatusNotFound || p.Status != "not_found" {
		t.Errorf("as another agent's: %d %+v", status, p)
	}
	e.work()
	if a := e.do(ask{method: http.MethodGet, path: "/v1/calls/mine?wait=60s"}); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if status, p := poll("", "mine", ""); status != http.StatusOK || p.Status != "completed" || p.Response.Text != "hello" {
		t.Errorf("at the end: %d %+v", status, p)
	}
	if a := e.do(ask{method: http.MethodGet, path: "/v1/calls/mine/status?x=1"}); a.status != http.StatusBadRequest {
		t.Errorf("an unknown parameter: %d %s", a.status, a.body)
	}
}

func TestAnAccountReportsTheEndOfWork(t *testing.T) {
	e := open(t)
	j := e.job()
	path := "/v1/jobs/" + string(j.ID) + "/complete"
	const body = `{"status":"failed","error":"no disk"}`
	for name, a := range map[string]ask{
		"somebody else": {method: http.MethodPost, path: path, body: body, key: bobKey},
		"no such job":   {method: http.MethodPost, path: "/v1/jobs/job_none/complete", body: body},
	} {
		if got := e.do(a); got.status != http.StatusNotFound || got.problem(t).Code != schemas.NotFound {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if a := e.do(ask{method: http.MethodPost, path: path, body: `{"status":"failed"}`}); a.status != http.StatusBadRequest ||
		a.problem(t).Field != "error" {
		t.Errorf("without an error: %d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodPost, path: path, body: body, key: "-"}); a.status != http.StatusUnauthorized {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	if a := e.do(ask{method: http.MethodPost, path: path, body: body}); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	c, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID)
	if err != nil || c.State != schemas.JobFailed || c.Reason != "no disk" {
		t.Errorf("%+v, %v", c, err)
	}
	if a := e.do(ask{method: http.MethodPost, path: path, body: `{"status":"completed"}`}); a.status != http.StatusConflict {
		t.Errorf("another end: %d %s", a.status, a.body)
	}
}
