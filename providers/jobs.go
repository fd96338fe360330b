package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// JobStarter is the capability to run a command that outlives the call that started it.
//
// A [Reserver] without it gets it from package supervisor, which starts and controls jobs by runs in the persistent sandbox.
type JobStarter interface {
	// StartJob starts cmd as the job id in the persistent sandbox cmd.Sandbox and returns when it runs. cmd.Timeout is the job's lifetime:
	// at its end SIGTERM is sent, and after cmd.Grace SIGKILL to all processes that it started. cmd.Output is not used: stdout and stderr
	// are written to the job's log together, in order of arrival. cmd.Stdin is written first; after that, standard input stays open if the
	// provider is a [JobController].
	//
	// If the id was started in this sandbox before, it is not started again: StartJob returns the first Ref. Codes: as of Run; after
	// interrupted it is unknown whether the job runs.
	StartJob(ctx context.Context, id schemas.JobID, cmd Command, o JobOptions) (schemas.JobRef, error)
}

// JobOptions are the receivers of a job's end. Both fields are optional.
type JobOptions struct {
	// Notify is called once when the job has ended, if the provider itself detects that: from another goroutine, possibly before StartJob
	// returns. It may block; only Close waits for it.
	Notify func(JobEnd)
	// Callback is the address to which the job's supervisor reports the end from inside the sandbox.
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
	// JobLogs reads at most limit bytes of the job's output, from the byte offset on, which counts from the job's first byte. Offset -1
	// means the last limit bytes. Output that is no longer stored is skipped: Offset in the result is where its data begins. It also works
	// after the job has ended, as long as the sandbox exists.
	JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (JobLogs, error)
	// StopJob ends the job: SIGTERM to its process group, and after grace SIGKILL to all processes that it started. It returns when none
	// of them is left, and at once if the job has ended.
	StopJob(ctx context.Context, ref schemas.JobRef, grace time.Duration) error
	// SignalJob sends a signal, one of schemas.JobSignals, to the job's process group. Code conflict: the job has ended.
	SignalJob(ctx context.Context, ref schemas.JobRef, signal string) error
	// WriteJob writes to the job's standard input and returns when all is written; if eof is set, it then closes the input. Codes:
	// conflict (the job has ended, or its input is closed), timeout (the job reads too slowly; written bytes were accepted).
	WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, eof bool) (written int, err error)
}

// JobEnd is how a job ended.
type JobEnd struct {
	ExitCode     int    // 128+n if killed by signal n
	Stopped      bool   // ended by StopJob
	TimedOut     bool   // its lifetime was over
	OOMKilled    bool   //
	Lost         bool   // its sandbox or supervisor ended first; ExitCode is not set
	Reason       string // if Lost: the reason, for people
	Replaced     bool   // if Lost: its sandbox was ended to be replaced by another
	ChildrenLeft int    // how many processes it left behind, which were killed
	LogBytes     int64  // size of its output
	LogTruncated bool   // some of the output was not stored
	Tail         []byte // end of its output, at most schemas.MaxJobLogs bytes
	Finished     time.Time
}

// JobStatus is the current state of a job.
type JobStatus struct {
	Running  bool
	End      JobEnd // set if Running is false
	Instance string // identifies the start of the job that was found
	LogBytes int64
}

// JobLogs is a piece of a job's output.
type JobLogs struct {
	Data   []byte
	Offset int64 // of the first byte of Data
	Size   int64 // of the output so far
	Ended  bool  // the job has ended, so there is no output after Size
}

// JobActionsOf returns the actions that p supports for jobs.
func JobActionsOf(p Provider) []schemas.JobAction {
	if _, ok := As[JobController](p); ok {
		return schemas.JobActions()
	}
	return []schemas.JobAction{schemas.JobActionStatus}
}
