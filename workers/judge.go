package workers

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

// jobFacts is all that decides what a worker does about an unsettled job of its provider. It is filled
// in two steps: what record and leases tell, and, when the verdict is probe, what the sandbox tells.
type jobFacts struct {
	state      schemas.JobState
	inHand     bool          // this process is launching it just now
	mine       bool          // this worker looks after it
	ownerAlive bool          // the worker that does has its lease
	settled    bool          // this worker kept its own lease long enough: the absence of another's is proof
	tied       bool          // its sandbox ends with its worker's process
	age        time.Duration // since its launch
	over       time.Duration // since its deadline; below 0: before it
	look       jobLook
}

// jobLook is what a look at a job in its sandbox has found.
type jobLook string

const (
	lookNone  jobLook = ""      // nobody has looked
	lookRuns  jobLook = "runs"  //
	lookEnded jobLook = "ended" // how is known
	lookGone  jobLook = "gone"  // its sandbox is gone, or knows no such job
	lookAway  jobLook = "away"  // its sandbox cannot be reached now
	lookBlind jobLook = "blind" // the provider cannot look
)

// jobVerdict is what to do about an unsettled job.
type jobVerdict string

const (
	jobLeave    jobVerdict = "leave"
	jobProbe    jobVerdict = "probe"     // look at it in its sandbox, then judge again
	jobTakeOver jobVerdict = "take over" // its worker is gone: look after it from now on
	jobRecord   jobVerdict = "record"    // it runs, and its record does not say so
	jobReport   jobVerdict = "report"    // it has ended: tell how
	jobStop     jobVerdict = "stop"      // its lifetime is over
	jobExpire   jobVerdict = "expire"    // likewise, and nobody can tell how it ended
	jobOrphaned jobVerdict = "orphaned"  // lost: its sandbox ended with its worker
	jobGone     jobVerdict = "gone"      // lost: its sandbox is gone
	jobVanished jobVerdict = "vanished"  // lost: it may never have been started
	jobSilent   jobVerdict = "silent"    // lost: its sandbox cannot be reached and its lifetime is over
)

// judgeJob is the whole rule of the job manager. A waiting job belongs to its call. What a living worker
// looks after is its own, so that two never do; when it is gone everybody may, and the log counts the
// first completion only.
func judgeJob(f jobFacts) jobVerdict {
	switch {
	case f.state.Final(), f.state == schemas.JobWaiting, f.inHand:
		return jobLeave
	case !f.mine && (f.ownerAlive || !f.settled):
		return jobLeave
	case f.look == lookNone && !f.mine && !f.tied:
		return jobTakeOver
	}
	switch f.look {
	case lookNone:
		return jobProbe
	case lookEnded:
		return jobReport
	case lookRuns:
		switch {
		case !f.mine: // its sandbox is here although its worker is gone
			return jobTakeOver
		case f.over > overdueGrace:
			return jobStop
		case f.state == schemas.JobLaunching:
			return jobRecord
		}
		return jobLeave
	case lookGone:
		switch {
		case f.tied && !f.mine:
			return jobOrphaned
		case f.state != schemas.JobLaunching:
			return jobGone
		case f.age > launchSettles:
			return jobVanished
		}
		return jobLeave
	case lookAway:
		if f.over > overdueLost {
			return jobSilent
		}
		return jobLeave
	case lookBlind:
		switch {
		case f.tied && !f.mine:
			return jobOrphaned
		case f.over > overdueGrace:
			return jobExpire
		}
	}
	return jobLeave
}

// lostBecause words the verdicts after which nobody will know how a job ended.
func lostBecause(v jobVerdict) (state schemas.JobState, reason string) {
	switch v {
	case jobExpire:
		return schemas.JobExpired, "its lifetime was over and nobody has told how it ended"
	case jobOrphaned:
		return schemas.JobLost, "the worker that kept its sandbox ended"
	case jobVanished:
		return schemas.JobLost, "its worker ended while it was launched, and nothing of it is in its sandbox"
	case jobSilent:
		return schemas.JobLost, "its sandbox could not be reached until long after its lifetime"
	case jobLeave, jobProbe, jobTakeOver, jobRecord, jobReport, jobStop, jobGone:
	}
	return schemas.JobLost, "its sandbox is gone"
}

// completionOf is what a provider's word about a job's end means. Stopped is the reason that was given
// for a stop; empty: none was asked for here.
func completionOf(j schemas.Job, end providers.JobEnd, via schemas.Via, stopped string, now time.Time) schemas.Completion {
	c := schemas.Completion{
		Job: j.ID, Account: j.Account, Via: via, Reason: stopped, Logs: schemas.TailText(string(end.Tail), schemas.MaxJobLogs),
		LogBytes: max(end.LogBytes, int64(len(end.Tail))), LogTruncated: end.LogTruncated, OOMKilled: end.OOMKilled, ChildrenLeft: max(end.ChildrenLeft, 0),
		Finished: end.Finished.UTC(),
	}
	if end.Finished.IsZero() || end.Finished.After(now) {
		c.Finished = now.UTC()
	}
	if end.Lost {
		c.State, c.Reason = schemas.JobLost, end.Reason
		if c.Reason == "" {
			_, c.Reason = lostBecause(jobGone)
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
