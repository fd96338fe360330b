package lifecycle_test

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

func TestAJobIsLaunchedByOneWorker(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		state  schemas.JobState
		worker string
		launch bool // may w_1 launch it
		run    bool // may w_1 say that it runs
	}{
		"waits":                                 {schemas.JobWaiting, "", true, false},
		"waits, and another worker was named":   {schemas.JobWaiting, "w_2", false, false},
		"waits, and this worker was named":      {schemas.JobWaiting, "w_1", false, false},
		"is being launched by this worker":      {schemas.JobLaunching, "w_1", true, true},
		"is being launched by another":          {schemas.JobLaunching, "w_2", false, false},
		"runs":                                  {schemas.JobRunning, "w_1", false, false},
		"was never started, its call has ended": {schemas.JobUnstarted, "", false, false},
		"is lost":                               {schemas.JobLost, "w_1", false, false},
	} {
		j := schemas.Job{State: c.state, Worker: c.worker}
		if got := lifecycle.Launch(&j, "w_1", now, time.Hour); got != c.launch {
			t.Errorf("%s: launch %t, want %t", name, got, c.launch)
		}
		if c.launch && (j.State != schemas.JobLaunching || j.Worker != "w_1" || !j.Deadline.Equal(now.Add(time.Hour))) {
			t.Errorf("%s: launched as %+v", name, j)
		}
		j = schemas.Job{State: c.state, Worker: c.worker}
		if got := lifecycle.Launched(&j, "w_1", schemas.JobRef{ID: "job_1"}); got != c.run {
			t.Errorf("%s: runs %t, want %t", name, got, c.run)
		}
		if !c.run && (j.State != c.state || j.Worker != c.worker) {
			t.Errorf("%s: changed to %+v though it may not be", name, j)
		}
	}
}
