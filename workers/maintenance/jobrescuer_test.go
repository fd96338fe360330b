package maintenance

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

func TestJudgeOrphan(t *testing.T) {
	t.Parallel()
	const every = 15 * time.Second
	for _, c := range []struct {
		name string
		f    orphanFacts
		want orphanVerdict
	}{
		{"its worker lives", orphanFacts{state: schemas.JobRunning, tied: true, overdue: time.Hour}, orphanLeave},
		{"its worker was missed once", orphanFacts{state: schemas.JobRunning, tied: true, absent: every}, orphanLeave},
		{"its sandbox ended with its worker", orphanFacts{state: schemas.JobRunning, tied: true, absent: 2 * every}, orphanLost},
		{"it was being launched there", orphanFacts{state: schemas.JobLaunching, tied: true, absent: 2 * every}, orphanLost},
		{"another worker can take it over", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: -time.Hour}, orphanLeave},
		{"its time is just over", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: every}, orphanLeave},
		{"its time is over and nobody came", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: 2 * every}, orphanExpired},
		{"it has settled", orphanFacts{state: schemas.JobFailed, tied: true, absent: time.Hour}, orphanLeave},
		{"it waits since a moment", orphanFacts{state: schemas.JobWaiting, age: time.Second, unlooked: time.Second}, orphanLeave},
		{"it waits since a minute", orphanFacts{state: schemas.JobWaiting, age: time.Minute, unlooked: time.Minute}, orphanLook},
		{"it was looked at a while ago", orphanFacts{state: schemas.JobWaiting, age: time.Hour, unlooked: 10 * time.Minute}, orphanLeave},
		{"it was looked at long ago", orphanFacts{state: schemas.JobWaiting, age: time.Hour, unlooked: 15 * time.Minute}, orphanLook},
		{"its call waits", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callOpen}, orphanLeave},
		{"its call has ended", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callResult}, orphanUnstarted},
		{"its call is not there yet", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callUnknown}, orphanLeave},
		{"its call is gone", orphanFacts{state: schemas.JobWaiting, age: 25 * time.Hour, call: callUnknown}, orphanForgotten},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.f.every = every
			if got := judgeOrphan(c.f); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestGroupDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	past, ahead := now.Add(-time.Hour), now.Add(time.Hour)
	for _, c := range []struct {
		name             string
		deadline, latest time.Time
		done, want       bool
	}{
		{"its time is to come", ahead, time.Time{}, false, false},
		{"its time is over and nobody is known to come", past, time.Time{}, false, true},
		{"a member runs on", past, ahead, false, false},
		{"a member should have ended just now", past, now.Add(-time.Second), false, false},
		{"a member should have ended long ago", past, past, false, true},
		{"it is done", past, time.Time{}, true, false},
	} {
		if got := groupDue(schemas.Group{Deadline: c.deadline, Done: c.done}, c.latest, now, 15*time.Second); got != c.want {
			t.Errorf("%s: due %v, want %v", c.name, got, c.want)
		}
	}
}

// sweepUp runs a settler and a job rescuer.
