package lifecycle_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func completion(state schemas.JobState) schemas.Completion {
	exit := 3
	return schemas.Completion{Job: "job_1", Account: "acct_1", State: state, ReportedBy: schemas.ReportedByProbe,
		ExitCode: &exit, Finished: time.Now().UTC()}
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestTheFirstCompletionCounts(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		first := completion(schemas.JobFailed)
		if _, err := lifecycle.Complete(t.Context(), b, first); err != nil {
			t.Fatal(err)
		}
		if _, err := lifecycle.Complete(t.Context(), b, first); err != nil {
			t.Errorf("the same completion again: %v, want it to be taken for a repeat", err)
		}
		have, err := lifecycle.Complete(t.Context(), b, completion(schemas.JobLost))
		if !errors.Is(err, schemas.ErrConflict) || have.State != schemas.JobFailed {
			t.Errorf("a second completion: %v, %v; want a conflict with the first", have.State, err)
		}
	})
}

func TestEnsureJobTakesAllFromTheCall(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		c := schemas.Call{ID: "c1", Account: "acct_1", Conversation: "c_1", Tool: schemas.ToolBash,
			Input: []byte(`{"command":"true","background":true}`), Job: "job_1"}
		p, err := lifecycle.EnsureJob(t.Context(), b, c)
		if err != nil || p.Value.State != schemas.JobWaiting || p.Value.Command != "true" {
			t.Fatalf("got %+v, %v", p.Value, err)
		}
		if again, err := lifecycle.EnsureJob(t.Context(), b, c); err != nil || again.Revision != p.Revision {
			t.Errorf("made again: %v, revision %d, want %d", err, again.Revision, p.Revision)
		}
		c = schemas.Call{ID: "c2", Account: "acct_1", Conversation: "c_1", Tool: schemas.ToolBash, Provider: "local", Workspace: "ws_1", Sandbox: "sb_1", Job: "job_2", Deadline: time.Now().Add(time.Hour),
			Input: []byte(`{"command":"true # ` + strings.Repeat("x", schemas.MaxApprovalInput) + `","background":true}`)}
		if err := streams.Calls.Publish(t.Context(), b, c); err != nil {
			t.Fatal(err)
		}
		if p, err := lifecycle.EnsureJob(t.Context(), b, c.WithoutInput()); err != nil || !strings.HasPrefix(p.Value.Command, "true # ") {
			t.Errorf("of a call without its input: %.50q, %v", p.Value.Command, err)
		}
		if _, err := lifecycle.FindJob(t.Context(), b, "acct_2", "job_1"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("another account finds it: %v", err)
		}
		if rev, err := lifecycle.OpenJobs(b).UpdateFor(t.Context(), p.Key, p.Value, p.Revision, time.Minute); err != nil || rev == 0 {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := lifecycle.FindJob(t.Context(), b, "acct_1", "job_1"); !errors.Is(err, schemas.ErrNotFound) {
			t.Errorf("after its time: %v, want not found", err)
		}
	})
}
