package jobs

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const testAccount schemas.AccountID = "acct_1"

func TestJudgeJob(t *testing.T) {
	t.Parallel()
	mine := func(f facts) facts { f.mine, f.ownerAlive = true, true; return f }
	running, launching := facts{state: schemas.JobRunning, over: -time.Hour}, facts{state: schemas.JobLaunching, over: -time.Hour}
	with := func(f facts, change func(*facts)) facts { change(&f); return f }
	seen := func(f facts, r probeResult) facts { f.probe = r; return f }
	tied := func(f facts) facts { f.tied = true; return f }
	late := func(f facts, by time.Duration) facts { f.over = by; return f }
	for _, c := range []struct {
		name  string
		facts facts
		want  verdict
	}{
		{"a waiting job belongs to its call", facts{state: schemas.JobWaiting}, toLeave},
		{"one that has settled is over", mine(facts{state: schemas.JobFailed}), toLeave},
		{"one that is just being launched here", mine(with(launching, func(f *facts) { f.launchingHere = true })), toLeave},

		{"another's, which lives", with(running, func(f *facts) { f.ownerAlive = true }), toLeave},
		{"another's, which is gone", running, toTakeOver},
		{"another's, which is gone in the launch", launching, toTakeOver},
		{"another's, tied to it: its end may be known here", tied(running), toProbe},
		{"likewise, known", seen(tied(running), probeEnded), toReport},
		{"likewise, and it runs after all", seen(tied(running), probeRuns), toTakeOver},
		{"likewise, unknown", seen(tied(running), probeGone), isOrphaned},
		{"likewise, by a provider that cannot say", seen(tied(running), probeUnsupported), isOrphaned},
		{"likewise, while the provider is unreachable", seen(tied(running), probeUnreachable), toLeave},

		{"mine is probed", mine(running), toProbe},
		{"mine runs", seen(mine(running), probeRuns), toLeave},
		{"mine was launched and runs", seen(mine(launching), probeRuns), toRecord},
		{"mine has ended", seen(mine(running), probeEnded), toReport},
		{"mine is gone", seen(mine(running), probeGone), isGone},
		{"mine is gone although its sandbox is tied to me", seen(tied(mine(running)), probeGone), isGone},
		{"mine may not be there yet", seen(mine(launching), probeGone), toLeave},
		{"mine never came", seen(with(mine(launching), func(f *facts) { f.age = 2 * launchSettles }), probeGone), isVanished},
		{"mine cannot be reached", seen(mine(running), probeUnreachable), toLeave},
		{"mine runs a little beyond its lifetime", seen(late(mine(running), time.Second), probeRuns), toLeave},
		{"mine runs far beyond its lifetime", seen(late(mine(running), time.Minute), probeRuns), toStop},
		{"mine cannot be reached beyond its lifetime", seen(late(mine(running), time.Minute), probeUnreachable), toLeave},
		{"mine cannot be reached long beyond its lifetime", seen(late(mine(running), time.Hour), probeUnreachable), isSilent},
		{"the state of mine cannot be had", seen(mine(running), probeUnsupported), toLeave},
		{"the state of mine cannot be had beyond its lifetime", seen(late(mine(running), time.Minute), probeUnsupported), toExpire},
	} {
		if got := judge(c.facts); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Whatever the facts, a job with a living worker of its own is left to it, and every job ends at last.
func TestJudgeJobAlwaysEnds(t *testing.T) {
	t.Parallel()
	for _, state := range []schemas.JobState{schemas.JobLaunching, schemas.JobRunning} {
		for _, probe := range []probeResult{probeRuns, probeEnded, probeGone, probeUnreachable, probeUnsupported} {
			for _, tied := range []bool{false, true} {
				f := facts{state: state, mine: true, ownerAlive: true, tied: tied, age: time.Hour, over: time.Hour, probe: probe}
				if v := judge(f); v == toLeave {
					t.Errorf("%+v is left alone for ever", f)
				}
				f.mine = false
				if v := judge(f); v != toLeave {
					t.Errorf("%+v: %s, want it left to its worker", f, v)
				}
			}
		}
	}
}

func TestCompletionOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := schemas.Job{ID: "job_1", Account: testAccount, Deadline: now.Add(time.Hour)}
	after := before
	after.Deadline = now.Add(-time.Hour)
	for _, c := range []struct {
		name    string
		job     schemas.Job
		end     providers.JobEnd
		stopped string
		state   schemas.JobState
		code    int // -1: unknown
		reason  string
	}{
		{"it ended well", before, providers.JobEnd{}, "", schemas.JobCompleted, 0, ""},
		{"it ended well before a stop came", before, providers.JobEnd{}, "enough", schemas.JobCompleted, 0, ""},
		{"it failed", before, providers.JobEnd{ExitCode: 3}, "", schemas.JobFailed, 3, ""},
		{"it was killed by a signal", before, providers.JobEnd{ExitCode: 137, OOMKilled: true}, "", schemas.JobFailed, 137, ""},
		{"it was stopped", before, providers.JobEnd{ExitCode: 143, Stopped: true}, "enough", schemas.JobStopped, 143, "enough"},
		{"it was stopped elsewhere", before, providers.JobEnd{ExitCode: 143, Stopped: true}, "", schemas.JobStopped, 143, ""},
		{"its lifetime was over", after, providers.JobEnd{ExitCode: 143, TimedOut: true}, "", schemas.JobExpired, 143, "its lifetime was over"},
		{"it was stopped because of that", after, providers.JobEnd{ExitCode: 143, Stopped: true}, "", schemas.JobExpired,
			143, "its lifetime was over"},
		{"it is lost", before, providers.JobEnd{Lost: true, Reason: "the box died"}, "enough", schemas.JobLost, -1, "the box died"},
		{"it is lost without a word", before, providers.JobEnd{Lost: true}, "", schemas.JobLost, -1, "its sandbox is gone"},
	} {
		c.end.Tail, c.end.ChildrenLeft = []byte("a\xff\n"), 2
		got := completionOf(c.job, c.end, schemas.ReportedByProbe, c.stopped, now)
		code := -1
		if got.ExitCode != nil {
			code = *got.ExitCode
		}
		if got.State != c.state || code != c.code || got.Reason != c.reason {
			t.Errorf("%s: %s %d %q, want %s %d %q", c.name, got.State, code, got.Reason, c.state, c.code, c.reason)
		}
		if err := got.Validate(); err != nil || got.Logs != "a\uFFFD\n" || got.LogBytes != 3 || got.LogInvalidBytes != 1 ||
			!got.Finished.Equal(now) ||
			got.OOMKilled != c.end.OOMKilled {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
}
