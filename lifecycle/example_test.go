package lifecycle_test

import (
	"fmt"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// The first answer to an approval counts, and none counts after its time.
func ExampleJudge() {
	asked := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	open := schemas.Approval{ID: "appr_1", State: schemas.ApprovalPending, Requested: asked, Expires: asked.Add(time.Hour)}
	yes := lifecycle.Decision{State: schemas.ApprovalApproved, By: "api"}
	no := lifecycle.Decision{State: schemas.ApprovalDenied, By: "api"}

	answered, err := lifecycle.Judge(open, yes, asked.Add(time.Minute))
	fmt.Println(answered.State, err)
	_, err = lifecycle.Judge(answered, no, asked.Add(2*time.Minute))
	fmt.Println(schemas.CodeOf(err), err)
	late, err := lifecycle.Judge(open, yes, asked.Add(2*time.Hour))
	fmt.Println(late.State, late.DecidedBy, err)
	// Output:
	// approved <nil>
	// conflict the approval is approved already, since 2030-01-01T12:01:00Z
	// expired deadline <nil>
}

// Launch is the proof that a job may have been started: it happens once, and only to a job that waits.
func ExampleLaunch() {
	j := schemas.Job{ID: "job_1", State: schemas.JobWaiting}
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println(lifecycle.Launch(&j, "worker_1", now, time.Hour), j.State, j.Deadline.Format(time.TimeOnly))
	fmt.Println(lifecycle.Launch(&j, "worker_2", now, time.Hour), j.Worker)
	// Output:
	// true launching 13:00:00
	// false worker_1
}

// What a model reads of a call that ended without running.
func ExampleExpiredResult() {
	call := schemas.Call{ID: "call_1", Tool: schemas.ToolBash}
	for _, r := range []schemas.Result{
		lifecycle.ExpiredResult(call),
		lifecycle.CancelledResult(call, "the user closed the tab"),
	} {
		fmt.Println(r.Status+":", r.Text)
	}
	// Output:
	// expired: Expired: the deadline of this call passed before it could be started. It was not run.
	// cancelled: Cancelled before it was started. Reason: the user closed the tab
}
