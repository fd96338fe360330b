package calls

import (
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestStatusOf(t *testing.T) {
	t.Parallel()
	call := schemas.Call{ID: "call_1", Account: "acct_1", Conversation: "c_1", Tool: schemas.ToolBash}
	result := func(s schemas.Status, text string) *schemas.Result {
		return &schemas.Result{Call: call.ID, Status: s, Text: text}
	}
	job := func(s schemas.JobState, reason string) *schemas.Job {
		j := &schemas.Job{ID: "job_1", State: s}
		if s.Final() {
			j.Completion = &schemas.Completion{Job: j.ID, State: s, Reason: reason, Logs: "out", Finished: time.Now()}
		}
		return j
	}
	started := result(schemas.StatusCompleted, "started")
	for name, c := range map[string]struct {
		result *schemas.Result
		job    *schemas.Job
		status string
		err    string
	}{
		"no result yet":          {nil, nil, runProcessing, ""},
		"it ran":                 {result(schemas.StatusCompleted, "hi"), nil, runCompleted, ""},
		"it failed":              {result(schemas.StatusFailed, "no such file"), nil, runFailed, "no such file"},
		"it was denied":          {result(schemas.StatusDenied, "no"), nil, runFailed, "no"},
		"its outcome is unknown": {result(schemas.StatusInterrupted, "gone"), nil, runFailed, "gone"},
		"its job runs":           {started, job(schemas.JobRunning, ""), runProcessing, ""},
		"its job may run":        {result(schemas.StatusInterrupted, "gone"), job(schemas.JobLaunching, ""), runProcessing, ""},
		"its job ended well":     {started, job(schemas.JobCompleted, ""), runCompleted, ""},
		"its job failed":         {started, job(schemas.JobFailed, ""), runFailed, "the job is failed"},
		"its job is lost":        {started, job(schemas.JobLost, "the box is gone"), runFailed, "the job is lost: the box is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := statusOf(call, c.result, c.job)
			if s.Status != c.status || s.Error != c.err || s.EventID != "call_1" || s.Conversation != "c_1" {
				t.Errorf("%+v, want %s and %q", s, c.status, c.err)
			}
			if over := s.Status == runCompleted || s.Status == runFailed; over != (s.Response != nil) {
				t.Errorf("response %+v", s.Response)
			}
			if r, ok := s.Response.(schemas.JobResult); c.job != nil && c.job.State.Final() && (!ok || !strings.Contains(r.Logs, "out")) {
				t.Errorf("response %+v, want how the job ended", s.Response)
			}
		})
	}
}
