package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// report posts the end of a job as its supervisor does.
func (e *edge) report(id schemas.JobID, token, body string) answer {
	e.t.Helper()
	h := http.Header{}
	if token != "" {
		h.Set("X-Job-Token", token)
	}
	return e.do(ask{method: http.MethodPost, path: "/sandbox-jobs/" + string(id) + "/complete", body: body, key: "-", header: h})
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestTheFirstReportOfAnEndCounts(t *testing.T) {
	e := open(t)
	j := e.job()
	const body = `{"status":"completed","response":{"exitCode":3,"logs":"no such file","logBytes":5000,"childrenLeft":1}}`
	a := e.report(j.ID, jobToken, body)
	if a.status != http.StatusAccepted || a.body != `{"status":"accepted","resultId":"`+string(j.ID)+`"}` {
		t.Fatalf("%d %s", a.status, a.body)
	}
	c, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID)
	if err != nil || c.State != schemas.JobFailed || c.ReportedBy != schemas.ReportedByCallback || *c.ExitCode != 3 ||
		c.Logs != "no such file" || c.LogBytes != 5000 || c.ChildrenLeft != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	a = e.report(j.ID, jobToken, `{"status":"completed","response":{"exitCode":0}}`)
	if a.status != http.StatusConflict || a.problem(t).Code != schemas.Conflict || !strings.HasSuffix(a.body, `,"status":"failed"}`) {
		t.Errorf("another end: %d %s", a.status, a.body)
	}
	if again, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID); err != nil || *again.ExitCode != 3 {
		t.Errorf("%+v, %v", again, err)
	}
}

//guarantee:a-jobs-token-is-its-own
func TestReportsThatAreRefused(t *testing.T) {
	e := open(t)
	j := e.job()
	over := e.job(func(j *schemas.Job) { j.Deadline = time.Now().Add(-2 * time.Hour) })
	late := e.job(func(j *schemas.Job) { j.Deadline = time.Now().Add(-30 * time.Minute) })
	bare := e.job(func(j *schemas.Job) { j.TokenHash = "" })
	const good = `{"status":"completed","response":{"exitCode":0}}`
	notFound := map[string]answer{
		"wrong secret":       e.report(j.ID, string(alice)+".wrong", good),
		"another account":    e.report(j.ID, string(bob)+".secret", good),
		"no account":         e.report(j.ID, "secret", good),
		"malformed account":  e.report(j.ID, "a b\t.secret", good),
		"a key":              e.report(j.ID, aliceKey, good),
		"unknown job":        e.report("job_nobodys", jobToken, good),
		"malformed job":      e.report("x", jobToken, good),
		"no token yet":       e.report(bare.ID, jobToken, good),
		"long over":          e.report(over.ID, jobToken, good),
		"wrong and bad JSON": e.report(j.ID, string(alice)+".wrong", `{`),
	}
	for name, a := range notFound {
		if a.status != http.StatusNotFound || a.body != notFound["wrong secret"].body {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	for name, tc := range map[string]struct {
		body   string
		status int
	}{
		"bad JSON":       {`{`, http.StatusBadRequest},
		"unknown status": {`{"status":"done"}`, http.StatusBadRequest},
		"unknown field":  {`{"status":"completed","exit":0}`, http.StatusBadRequest},
		"no reason":      {`{"status":"failed"}`, http.StatusBadRequest},
		"too large": {`{"status":"completed","response":{"logs":"` + strings.Repeat("x", schemas.MaxJobCallback) + `"}}`,
			http.StatusRequestEntityTooLarge},
	} {
		if a := e.report(j.ID, jobToken, tc.body); a.status != tc.status || a.problem(t).Code != schemas.Invalid {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	if a := e.report(j.ID, "", good); a.status != http.StatusBadRequest || a.problem(t).Field != "X-Job-Token" {
		t.Errorf("no token: %d %s", a.status, a.body)
	}
	if _, err := lifecycle.FindCompletion(t.Context(), e.bus, alice, j.ID); schemas.CodeOf(err) != schemas.NotFound {
		t.Errorf("a refused report settled the job: %v", err)
	}
	if a := e.report(late.ID, jobToken, good); a.status != http.StatusAccepted {
		t.Errorf("within the grace: %d %s", a.status, a.body)
	}
}

// Jobs are looked up for any token: for so many at the same time, and others come back later.
//
//guarantee:bounds
func TestJobsAreLookedUpForSoManyTokens(t *testing.T) {
	e := open(t)
	j := e.job()
	const good = `{"status":"completed","response":{"exitCode":0}}`
	end := e.gw.LookUpJobs(gateway.MostJobTokens)
	a := e.report(j.ID, jobToken, good)
	if a.status != http.StatusServiceUnavailable || a.problem(t).Code != schemas.Unavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	end()
	wrong := string(alice) + ".wrong"
	for range gateway.MostJobTokens + 1 {
		if a := e.report(j.ID, wrong, good); a.status != http.StatusNotFound {
			t.Fatalf("a wrong token: %d %s", a.status, a.body)
		}
	}
	if a := e.report(j.ID, jobToken, good); a.status != http.StatusAccepted {
		t.Errorf("%d %s", a.status, a.body)
	}
}
