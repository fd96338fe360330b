package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// JobStarter is the capability to run a command that outlives the call that started it.
//
// A provider without it that is a [Reserver] gets it from package supervisor, which starts and
// controls jobs by runs in the kept box.
type JobStarter interface {
	// StartJob starts cmd as the job id in the kept box cmd.Sandbox and returns when it runs.
	// cmd.Timeout is its lifetime: at its end TERM, cmd.Grace, KILL to all that it started. cmd.Output
	// is not used: what it prints, stdout and stderr together as they come, goes to its log. cmd.Stdin is
	// written first; standard input stays open then where the provider has [JobController].
	//
	// Starting an id that was started in this box is no second start: it returns the first's Ref. Codes: as of Run; with interrupted it is
	// unknown whether the job runs.
	StartJob(ctx context.Context, id schemas.JobID, cmd Command, o JobOptions) (schemas.JobRef, error)
}

// JobOptions says where the end of a job is reported. Both fields are optional.
type JobOptions struct {
	// Notify is called once when the job has ended, by a provider that learns of it itself: from another goroutine, possibly before StartJob
	// returns. It may block; nothing waits for it but Close.
	Notify func(JobEnd)
	// Callback is how the job's supervisor reports the end from inside the box.
	Callback *Callback
}

// Callback is the URL to which a job's supervisor reports the job's end, and the token to authenticate it. The token is in neither the
// environment nor the arguments of any process of the box.
type Callback struct {
	URL   string // POST <gateway>/sandbox-jobs/<job>/complete
	Token string // header x-job-token
}

// JobController is the capability to manage running jobs. All methods must be safe for concurrent use. Codes: not_found (the box is gone,
// or no such job was started in it), unavailable (the box cannot be reached now).
type JobController interface {
	// JobStatus reports whether the job runs and, if not, how it ended.
	JobStatus(ctx context.Context, ref schemas.JobRef) (JobStatus, error)
	// JobLogs reads what the job printed: at most limit bytes from a byte offset on, which counts from
	// the job's first byte. Offset -1 means the last limit bytes. What is no longer kept is skipped: the
	// answer's Offset says where its data begins. It works after the end for as long as the box is there.
	JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (JobLogs, error)
	// StopJob ends the job: TERM to its whole group, grace, KILL to all that it started. It returns when
	// nothing of it is left, and at once for one that has ended.
	StopJob(ctx context.Context, ref schemas.JobRef, grace time.Duration) error
	// SignalJob sends a signal, one of schemas.JobSignals, to the job's process group. Code conflict:
	// it has ended.
	SignalJob(ctx context.Context, ref schemas.JobRef, signal string) error
	// WriteJob writes to the job's standard input and returns when all is written; eof closes it then.
	// Codes: conflict (it has ended, or its input is closed), timeout (it reads too slowly: Written bytes
	// have been taken).
	WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, eof bool) (written int, err error)
}

// JobEnd is how a job ended.
type JobEnd struct {
	ExitCode     int    // 128+n when killed by signal n
	Stopped      bool   // by StopJob
	TimedOut     bool   // by its lifetime
	OOMKilled    bool   //
	Lost         bool   // its box or its supervisor ended first: ExitCode means nothing
	Reason       string // of Lost, for people
	Replaced     bool   // of Lost: its box was ended so that another one could take its place
	ChildrenLeft int    // processes that it left behind and that were ended
	LogBytes     int64  // what it printed
	LogTruncated bool   // more than is kept
	Tail         []byte // the end of what it printed, at most schemas.MaxJobLogs bytes
	Finished     time.Time
}

// JobStatus is the current state of a job.
type JobStatus struct {
	Running  bool
	End      JobEnd // when it does not run
	Instance string // of the start that was found
	LogBytes int64
}

// JobLogs is a piece of a job's output.
type JobLogs struct {
	Data   []byte
	Offset int64 // of the first byte of Data
	Size   int64 // of all that was printed so far
	Ended  bool  // the job has ended: after Size there is no more
}

// JobActionsOf returns the actions that p supports for jobs.
func JobActionsOf(p Provider) []schemas.JobAction {
	if _, ok := As[JobController](p); ok {
		return schemas.JobActions()
	}
	return []schemas.JobAction{schemas.JobActionStatus}
}
