package jobs

import (
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// launchSettles is how long after a launch the absence of the job in its sandbox means nothing: what
	// starts it may still be on its way.
	launchSettles = time.Minute
	// overdueGrace is what a job's own end by its lifetime gets before the job manager stops it.
	overdueGrace = 30 * time.Second
	// overdueLost is how long after its deadline a job whose sandbox cannot be reached counts as lost.
	overdueLost = 10 * time.Minute
)

// facts is everything that decides what a worker does about an unsettled job of its provider. It is filled in two steps: from record and
// leases, and, if the verdict is probe, from the sandbox.
type facts struct {
	state         schemas.JobState
	launchingHere bool          // this process is launching it just now
	mine          bool          // this worker manages it
	ownerAlive    bool          // the worker that does may live
	tied          bool          // its sandbox ends with its worker's process
	age           time.Duration // since its launch
	over          time.Duration // since its deadline; below 0: before it
	probe         probeResult
}

// probeResult is the state of a job in its sandbox.
type probeResult string

const (
	notProbed        probeResult = ""            // the sandbox was not asked yet
	probeRuns        probeResult = "runs"        //
	probeEnded       probeResult = "ended"       // with its exit status
	probeGone        probeResult = "gone"        // its sandbox is gone, or knows no such job
	probeUnreachable probeResult = "unreachable" // its sandbox cannot be reached now
	probeUnsupported probeResult = "unsupported" // the provider cannot say
)

// verdict is what to do about an unsettled job.
type verdict string

const (
	toLeave    verdict = "leave"
	toProbe    verdict = "probe"     // ask its sandbox, then judge again
	toTakeOver verdict = "take over" // its worker is gone: manage it from now on
	toRecord   verdict = "record"    // it runs, and its record does not say so
	toReport   verdict = "report"    // it has ended: report how
	toStop     verdict = "stop"      // its lifetime is over
	toExpire   verdict = "expire"    // likewise, and its exit status cannot be had
	isOrphaned verdict = "orphaned"  // lost: its sandbox ended with its worker
	isGone     verdict = "gone"      // lost: its sandbox is gone
	isVanished verdict = "vanished"  // lost: it may never have been started
	isSilent   verdict = "silent"    // lost: its sandbox cannot be reached and its lifetime is over
)

// judge is the whole rule of the job manager. A waiting job belongs to its call. A job belongs to the worker that
// manages it as long as that worker lives, so two never do; once it is gone any worker may take over, and only the
// first completion on the log counts.
func judge(f facts) verdict {
	switch {
	case f.state.Final(), f.state == schemas.JobWaiting, f.launchingHere:
		return toLeave
	case !f.mine && f.ownerAlive:
		return toLeave
	case f.probe == notProbed && !f.mine && !f.tied:
		return toTakeOver
	}
	switch f.probe {
	case notProbed:
		return toProbe
	case probeEnded:
		return toReport
	case probeRuns:
		switch {
		case !f.mine: // its sandbox is here although its worker is gone
			return toTakeOver
		case f.over > overdueGrace:
			return toStop
		case f.state == schemas.JobLaunching:
			return toRecord
		}
		return toLeave
	case probeGone:
		switch {
		case f.tied && !f.mine:
			return isOrphaned
		case f.state != schemas.JobLaunching:
			return isGone
		case f.age > launchSettles:
			return isVanished
		}
		return toLeave
	case probeUnreachable:
		if f.over > overdueLost {
			return isSilent
		}
		return toLeave
	case probeUnsupported:
		switch {
		case f.tied && !f.mine:
			return isOrphaned
		case f.over > overdueGrace:
			return toExpire
		}
	}
	return toLeave
}

// lostBecause returns the state and reason for verdicts after which the exit status of a job stays unknown.
func lostBecause(v verdict) (state schemas.JobState, reason string) {
	switch v {
	case toExpire:
		return schemas.JobExpired, "its lifetime was over and its end was not reported"
	case isOrphaned:
		return schemas.JobLost, "the worker that kept its sandbox ended"
	case isVanished:
		return schemas.JobLost, "its worker ended while it was launched, and nothing of it is in its sandbox"
	case isSilent:
		return schemas.JobLost, "its sandbox could not be reached until long after its lifetime"
	case toLeave, toProbe, toTakeOver, toRecord, toReport, toStop, isGone:
	}
	return schemas.JobLost, "its sandbox is gone"
}

// completionOf returns the completion for what a provider reports of a job's end. stopped is the reason of a requested stop; empty: none
// was requested here.
func completionOf(j schemas.Job, end providers.JobEnd, via schemas.ReportedBy, stopped string, now time.Time) schemas.Completion {
	c := schemas.Completion{
		Job: j.ID, Account: j.Account, ReportedBy: via, Reason: stopped, Logs: schemas.TailText(string(end.Tail), schemas.MaxJobLogs),
		LogBytes: max(end.LogBytes, int64(len(end.Tail))), LogTruncated: end.LogTruncated,
		LogInvalidBytes: schemas.InvalidBytes(end.Tail), OOMKilled: end.OOMKilled,
		ChildrenLeft: max(end.ChildrenLeft, 0),
		Finished:     end.Finished.UTC(),
	}
	if end.Finished.IsZero() || end.Finished.After(now) {
		c.Finished = now.UTC()
	}
	if end.Lost {
		c.State, c.Reason = schemas.JobLost, end.Reason
		if c.Reason == "" {
			_, c.Reason = lostBecause(isGone)
		}
		return c
	}
	c.ExitCode = &end.ExitCode
	overdue := !j.Deadline.IsZero() && now.After(j.Deadline)
	switch {
	case end.TimedOut, end.Stopped && stopped == "" && overdue:
		c.State, c.Reason = schemas.JobExpired, "its lifetime was over"
	case end.Stopped:
		c.State = schemas.JobStopped
	case end.ExitCode == 0:
		c.State, c.Reason = schemas.JobCompleted, ""
	default:
		c.State, c.Reason = schemas.JobFailed, ""
	}
	return c
}
