package jobs

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestRanToItsEnd(t *testing.T) {
	t.Parallel()
	with := func(s schemas.JobState, code schemas.Code) schemas.Job {
		return schemas.Job{State: s, Completion: &schemas.Completion{State: s, Code: code}}
	}
	for name, c := range map[string]struct {
		job  schemas.Job
		want bool
	}{
		"it runs":              {schemas.Job{State: schemas.JobRunning}, true},
		"it failed":            {with(schemas.JobFailed, ""), true},
		"it failed with a box": {with(schemas.JobFailed, schemas.Interrupted), false},
		"it is lost":           {with(schemas.JobLost, ""), false},
		"it was never started": {with(schemas.JobUnstarted, ""), false},
	} {
		if got := ranToItsEnd(c.job); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestLifetimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, want time.Duration }{
		{0, schemas.DefaultJobLifetime},
		{time.Minute, time.Minute},
		{100 * 24 * time.Hour, schemas.MaxJobLifetime},
	} {
		if got := lifetime(schemas.Sandbox{JobLifetime: schemas.Duration(c.asked)}); got != c.want {
			t.Errorf("asked for %s: %s, want %s", c.asked, got, c.want)
		}
	}
}
