package schemas

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// JobID names a background job. Models and clients call it statusId.
type JobID string

// JobPrefix begins the id of every job.
const JobPrefix = "job_"

// NewJobID returns a fresh job id.
func NewJobID() JobID { return JobID(NewID(JobPrefix)) }

// Validate reports whether id is a well-formed job id.
func (id JobID) Validate() error { return validatePrefixed("job", JobPrefix, string(id)) }

// JobState is how far a job is.
type JobState string

// The states. A job moves from waiting over launching to running, and to exactly one of the others,
// which are final.
const (
	JobWaiting   JobState = "waiting"   // its call is on the log, nothing was started
	JobLaunching JobState = "launching" // it may have been started
	JobRunning   JobState = "running"
	JobCompleted JobState = "completed"   // it ended with exit code 0
	JobFailed    JobState = "failed"      // it ended with another exit code, or was killed by a signal of its own
	JobStopped   JobState = "stopped"     // its end was requested
	JobExpired   JobState = "expired"     // its lifetime was over
	JobLost      JobState = "lost"        // its sandbox or what watched over it is gone: how it ended is unknown
	JobUnstarted JobState = "not_started" // its call ended without starting it; Reason says why
)

// JobStates lists every state.
func JobStates() []JobState {
	return []JobState{JobWaiting, JobLaunching, JobRunning, JobCompleted, JobFailed, JobStopped, JobExpired, JobLost, JobUnstarted}
}

// Final reports whether the job has settled: the state does not change any more.
func (s JobState) Final() bool {
	return s != JobWaiting && s != JobLaunching && s != JobRunning && s != ""
}

// JobAction is what can be done with a job.
type JobAction string

// The actions. Status is offered always, the others where the sandbox has live job control.
const (
	JobActionStatus JobAction = "status"
	JobActionLogs   JobAction = "logs"
	JobActionStop   JobAction = "stop"
	JobActionStdin  JobAction = "stdin"
	JobActionSignal JobAction = "signal"
)

// JobActions lists every action.
func JobActions() []JobAction {
	return []JobAction{JobActionStatus, JobActionLogs, JobActionStop, JobActionStdin, JobActionSignal}
}

// JobSignals lists the names of the signals that may be sent to a job.
func JobSignals() []string {
	return []string{"HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP"}
}

// JobRef names a started job at its provider. It is plain data that travels in records. Instance
// is a new one with each start and distinguishes starts; empty before the start is known.
type JobRef struct {
	Sandbox  Ref    `json:"sandbox"`
	ID       JobID  `json:"id"`
	Instance string `json:"instance,omitzero"`
}

// Job is the record of a background job, in the bucket jobs under "<account>.<job>".
type Job struct {
	ID           JobID          `json:"id"`
	Account      AccountID      `json:"account"`
	Agent        AgentID        `json:"agent,omitzero"`
	Conversation ConversationID `json:"conversation"`
	Turn         TurnID         `json:"turn,omitzero"`
	Call         CallID         `json:"call"`
	Group        *GroupRef      `json:"group,omitzero"`
	Origin       *Origin        `json:"origin,omitzero"`
	Tool         Tool           `json:"tool"`
	Command      string         `json:"command"` // its first bytes, at most MaxJobCommand
	Provider     string         `json:"provider"`
	Workspace    WorkspaceID    `json:"workspace"`
	Sandbox      SandboxID      `json:"sandbox"`
	State        JobState       `json:"state"`
	// Worker names the lease of the worker that manages the job; another may take it over when
	// the lease has ended.
	Worker string `json:"worker,omitzero"`
	// EndsWithWorker says that the sandbox ends with its worker's process: no other worker can take the job over.
	EndsWithWorker bool `json:"ends_with_worker,omitzero"`
	// DedicatedSandbox says that the sandbox was reserved for this job alone and is released when it settles.
	DedicatedSandbox bool        `json:"dedicated_sandbox,omitzero"`
	Ref              JobRef      `json:"ref,omitzero"`
	Actions          []JobAction `json:"actions,omitzero"` // offered while it runs
	// Places are what the job holds under caps, for those who give them back; the holder is its key.
	Places []JobPlace `json:"places,omitzero"`
	// Outputs says that artifacts are looked for when the job has ended. Nil: none are, or it has settled.
	Outputs *JobOutputs `json:"outputs,omitzero"`
	// TokenHash is the hex SHA-256 of the token that lets the job's supervisor report its end.
	TokenHash string    `json:"token_hash,omitzero"`
	Created   time.Time `json:"created"`
	Launched  time.Time `json:"launched,omitzero"`
	// Deadline is when its lifetime is over: from the launch on that of the job, before that of its call.
	Deadline   time.Time   `json:"deadline"`
	Completion *Completion `json:"completion,omitzero"` // set when settled
	// FollowUp is who brings the result to the conversation: "observed" when async_status has, the
	// id of a follow-up when that does, empty while it is open.
	FollowUp string `json:"follow_up,omitzero"`
}

// JobPlace is a place under a cap with its fencing token.
type JobPlace struct {
	Key   string `json:"key"`
	Token uint64 `json:"token"`
}

// Public is the record as its account may see it: without what only roles of Sandjet need.
func (j Job) Public() Job {
	j.TokenHash, j.Places, j.Outputs = "", nil, nil
	return j
}

// Observed is the [Job.FollowUp] of a job whose result was read before it was handed on.
const Observed = "observed"

// Key is the job's place in its bucket.
func (j Job) Key() string { return JobKey(j.Account, j.ID) }

// JobKey is the place of a job in its bucket.
func JobKey(a AccountID, id JobID) string { return string(a) + "." + string(id) }

// Completion reports how a job ended. The first that reaches the log counts, whichever process saw the end.
type Completion struct {
	Job     JobID     `json:"job"`
	Account AccountID `json:"account"`
	State   JobState  `json:"state"` // a final one
	// ReportedBy is who saw the end.
	ReportedBy ReportedBy `json:"reported_by"`
	ExitCode   *int       `json:"exit_code,omitzero"` // 128+n when killed by signal n; absent when unknown
	// Code says of a failed job that it did not end by itself: interrupted, its sandbox was made again. Reason has the sentence.
	Code   Code   `json:"code,omitzero"`
	Reason string `json:"reason,omitzero"` // why it is stopped, expired, lost or not started, or has failed with a code
	// Logs is the end of what it printed, at most MaxJobLogs bytes of valid UTF-8; LogBytes counts all.
	Logs         string `json:"logs,omitzero"`
	LogBytes     int64  `json:"log_bytes"`
	LogTruncated bool   `json:"log_truncated,omitzero"` // more was printed than is kept
	// LogInvalidBytes counts what is U+FFFD in Logs because it was not UTF-8, before Logs was cut any shorter.
	LogInvalidBytes int64     `json:"log_invalid_bytes,omitzero"`
	OOMKilled       bool      `json:"oom_killed,omitzero"`
	ChildrenLeft    int       `json:"children_left,omitzero"` // processes that it left behind and that were ended
	Finished        time.Time `json:"finished"`
	JobArtifacts              // found when the job settles
}

// ReportedBy says which part reported the end of a job.
type ReportedBy string

// The ways.
const (
	ReportedByCallback ReportedBy = "callback" // the job's supervisor reported it with its token
	ReportedByProvider ReportedBy = "provider" // the provider reported to its worker
	ReportedByProbe    ReportedBy = "probe"    // a worker or a JobRescuer looked
	ReportedByCall     ReportedBy = "call"     // its call ended without starting it
)

// EventID is stable: a job has one completion.
func (c Completion) EventID() string { return JobKey(c.Account, c.Job) + ".completion" }

// GroupRef says that the results of several background calls of a turn come back together.
type GroupRef struct {
	ID   string `json:"id" jsonschema:"minLength=1,maxLength=128,pattern=^[A-Za-z0-9_.:-]+$"`
	Size int    `json:"size" jsonschema:"minimum=1,maximum=100" jsonschema_description:"How many calls the group has. It is fixed by the first."`
}

// Group is the record of a group, in the bucket groups.
type Group struct {
	ID           string         `json:"id"`
	Account      AccountID      `json:"account"`
	Conversation ConversationID `json:"conversation"`
	Agent        AgentID        `json:"agent,omitzero"`
	Turn         TurnID         `json:"turn,omitzero"`
	Origin       *Origin        `json:"origin,omitzero"`
	Size         int            `json:"size"`
	Settled      []JobID        `json:"settled"` // in the order of their ends
	// Missing counts members that had not settled when the deadline passed. It is written before the
	// follow-up is made: from then on no member is waited for, and one that comes later has a follow-up of its own.
	Missing  int       `json:"missing,omitzero"`
	Done     bool      `json:"done,omitzero"` // the follow-up is on the log, or there was none to make
	Created  time.Time `json:"created"`
	Deadline time.Time `json:"deadline"` // when it continues with what has settled
}

// FollowUpID names a follow-up. It is made from the job or the group, so that making it again gives
// the same.
type FollowUpID string

// FollowUp carries what an agent is to continue with: the results of settled jobs, to the agent whose turn continues or to where the
// conversation lives, or what a person wrote in a chat.
type FollowUp struct {
	ID           FollowUpID     `json:"id"`
	Account      AccountID      `json:"account"`
	Conversation ConversationID `json:"conversation"`
	Agent        AgentID        `json:"agent,omitzero"`
	Turn         TurnID         `json:"turn,omitzero"` // the turn that continues
	Group        string         `json:"group,omitzero"`
	Origin       *Origin        `json:"origin,omitzero"`
	Results      []JobResult    `json:"results"`
	// Message is what the turn begins with, where a person wrote in a chat. There are no results then.
	Message *ChatMessage `json:"message,omitzero"`
	// Missing counts members of the group that had not settled when its deadline passed.
	Missing int `json:"missing,omitzero"`
	// Text is for the model: one paragraph for each result, or what a person wrote.
	Text string `json:"text"`
	// Mode says what becomes of it while a turn runs; empty: steer.
	Mode    TurnMode  `json:"mode,omitzero" jsonschema:"enum=steer,enum=followup,enum=collect,enum=reject,enum=interrupt,enum=stop,enum=stop_now"`
	Created time.Time `json:"created"`
}

// EventID is stable: a follow-up is handed on once.
func (f FollowUp) EventID() string { return string(f.Account) + "." + string(f.ID) }

// JobResult is what is published about a settled job. It is the data of [JobFinished].
type JobResult struct {
	Job          JobID      `json:"job"`
	Call         CallID     `json:"call"`
	Tool         Tool       `json:"tool"`
	Command      string     `json:"command"`
	State        JobState   `json:"state"`
	ExitCode     *int       `json:"exit_code,omitzero"`
	Code         Code       `json:"code,omitzero"`
	Reason       string     `json:"reason,omitzero"`
	ReportedBy   ReportedBy `json:"reported_by"`
	Logs         string     `json:"logs,omitzero"`
	LogBytes     int64      `json:"log_bytes"`
	LogTruncated bool       `json:"log_truncated,omitzero"`
	// LogInvalidBytes counts the bytes that Logs shows as U+FFFD because they were not UTF-8.
	LogInvalidBytes int64     `json:"log_invalid_bytes,omitzero"`
	OOMKilled       bool      `json:"oom_killed,omitzero"`
	ChildrenLeft    int       `json:"children_left,omitzero"`
	Launched        time.Time `json:"launched,omitzero"`
	Finished        time.Time `json:"finished"`
	DurationMS      int64     `json:"duration_ms"`
	JobArtifacts
}

// JobResultOf is what is published about a job that ended with c.
func JobResultOf(j Job, c Completion) JobResult {
	r := JobResult{
		Job: j.ID, Call: j.Call, Tool: j.Tool, Command: j.Command,
		State: c.State, ExitCode: c.ExitCode, Code: c.Code, Reason: c.Reason, ReportedBy: c.ReportedBy,
		Logs: c.Logs, LogBytes: c.LogBytes, LogTruncated: c.LogTruncated, LogInvalidBytes: c.LogInvalidBytes,
		OOMKilled: c.OOMKilled, ChildrenLeft: c.ChildrenLeft,
		Launched: j.Launched, Finished: c.Finished, JobArtifacts: c.JobArtifacts,
	}
	if !j.Launched.IsZero() && c.Finished.After(j.Launched) {
		r.DurationMS = c.Finished.Sub(j.Launched).Milliseconds()
	}
	return r
}

// JobStartedData is the data of [JobStarted].
type JobStartedData struct {
	Job      JobID       `json:"job"`
	Call     CallID      `json:"call"`
	Tool     Tool        `json:"tool"`
	Command  string      `json:"command"`
	Provider string      `json:"provider"`
	Actions  []JobAction `json:"actions"`
	Deadline time.Time   `json:"deadline"`
}

// AsyncStatusInput is the input of async_status.
type AsyncStatusInput struct {
	StatusID JobID     `json:"statusId" jsonschema:"minLength=1,maxLength=128" jsonschema_description:"The statusId that the background call returned."` //nolint:tagliatelle // as models know it
	Action   JobAction `json:"action,omitzero" jsonschema:"enum=status,enum=logs,enum=stop,enum=stdin,enum=signal" jsonschema_description:"Default: status."`
	Offset   int64     `json:"offset,omitzero" jsonschema:"minimum=0" jsonschema_description:"With logs: the byte to read from, as the last answer gave it."`
	Data     string    `json:"data,omitzero" jsonschema:"maxLength=65536" jsonschema_description:"With stdin: the text to write."`
	EOF      bool      `json:"eof,omitzero" jsonschema_description:"With stdin: close it after the text."`
	Signal   string    `json:"signal,omitzero" jsonschema_description:"With signal: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT or STOP."`
}

func (in AsyncStatusInput) validate() error {
	if err := in.StatusID.Validate(); err != nil {
		return under("statusId", err)
	}
	if in.Action != "" && !slices.Contains(JobActions(), in.Action) {
		return Invalidf("action", "%q is unknown: use status, logs, stop, stdin or signal", Quotable(string(in.Action)))
	}
	switch {
	case in.Offset < 0:
		return Invalidf("offset", "%d is negative", in.Offset)
	case in.Offset > 0 && in.Action != JobActionLogs:
		return Invalidf("offset", "belongs to the action logs")
	case (in.Data != "" || in.EOF) && in.Action != JobActionStdin:
		return Invalidf("data", "belongs to the action stdin")
	case in.Action == JobActionStdin && in.Data == "" && !in.EOF:
		return Invalidf("data", "is missing: give text to write, or eof to close")
	case len(in.Data) > MaxJobStdin:
		return Invalidf("data", "is %d bytes long: the limit is %d", len(in.Data), MaxJobStdin)
	case in.Signal != "" && in.Action != JobActionSignal:
		return Invalidf("signal", "belongs to the action signal")
	case in.Action == JobActionSignal && !slices.Contains(JobSignals(), in.Signal):
		return Invalidf("signal", "%q is unknown: use one of %s", Quotable(in.Signal), strings.Join(JobSignals(), ", "))
	}
	return nil
}

func under(field string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: e.Code, Field: field, Message: e.Message}
	}
	return err
}

// Validate reports what is wrong with a group's name or size.
func (g GroupRef) Validate() error {
	if err := validateToken("group.id", g.ID, MaxCallID, "_.:-"); err != nil {
		return err
	}
	if g.Size < 1 || g.Size > MaxGroup {
		return Invalidf("group.size", "%d is out of range: 1 to %d", g.Size, MaxGroup)
	}
	return nil
}

// Validate reports whether c is what a settler relies on.
func (c Completion) Validate() error {
	if err := c.Job.Validate(); err != nil {
		return err
	}
	if err := c.Account.Validate(); err != nil {
		return err
	}
	if !c.State.Final() || !slices.Contains(JobStates(), c.State) {
		return Invalidf("state", "%q is not how a job ends", Quotable(string(c.State)))
	}
	return nil
}

// JobCallback is the body with which a job's supervisor, or a service that did the work, reports an
// end: {"status":"completed","response":{"exitCode":0,"logs":"…"}} or with "failed" and an error.
type JobCallback struct {
	Status   string           `json:"status" jsonschema:"enum=completed,enum=failed"`
	Response *JobCallbackBody `json:"response,omitzero"`
	Error    string           `json:"error,omitzero"`
}

// JobCallbackBody is the response in a [JobCallback].
type JobCallbackBody struct {
	ExitCode     *int   `json:"exitCode,omitzero"`     //nolint:tagliatelle // callbacks are in camel case
	Logs         string `json:"logs,omitzero"`         // the last 32 KiB
	LogBytes     int64  `json:"logBytes,omitzero"`     //nolint:tagliatelle // callbacks are in camel case
	ChildrenLeft int    `json:"childrenLeft,omitzero"` //nolint:tagliatelle // callbacks are in camel case
	Stopped      bool   `json:"stopped,omitzero"`      // the end was requested
	TimedOut     bool   `json:"timedOut,omitzero"`     //nolint:tagliatelle // callbacks are in camel case
}

// DecodeJobCallback reads the body of a callback strictly.
func DecodeJobCallback(b []byte) (JobCallback, error) {
	var c JobCallback
	if err := DecodeStrict(b, MaxJobCallback, &c); err != nil {
		return JobCallback{}, err
	}
	switch {
	case c.Status != "completed" && c.Status != "failed":
		return JobCallback{}, Invalidf("status", "%q is unknown: use completed or failed", Quotable(c.Status))
	case c.Status == "failed" && c.Error == "" && (c.Response == nil || c.Response.ExitCode == nil):
		return JobCallback{}, Invalidf("error", "is missing: a failed job needs an error text or an exit code")
	case c.Response != nil && (c.Response.LogBytes < 0 || c.Response.ChildrenLeft < 0):
		return JobCallback{}, Invalidf("response", "has a negative count")
	}
	return c, nil
}

// Completion is what the callback says of a job's end.
func (c JobCallback) Completion(j Job, now time.Time) Completion {
	d := Completion{
		Job: j.ID, Account: j.Account, State: JobCompleted, ReportedBy: ReportedByCallback,
		Reason: CutText(c.Error, MaxJobReason, MaxJobReasonJSON), Finished: now.UTC(),
	}
	if c.Status == "failed" {
		d.State = JobFailed
	}
	if r := c.Response; r != nil {
		d.ExitCode, d.ChildrenLeft = r.ExitCode, r.ChildrenLeft
		d.Logs, d.LogBytes = TailText(r.Logs, MaxJobLogs), max(r.LogBytes, int64(len(r.Logs)))
		switch {
		case r.Stopped:
			d.State = JobStopped
		case r.TimedOut:
			d.State = JobExpired
		case r.ExitCode != nil && *r.ExitCode != 0:
			d.State = JobFailed
		}
	}
	return d
}

// HeadText returns the first bytes of s, at most limit, as valid UTF-8 that ends with a whole character.
func HeadText(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}

// TailText returns the last bytes of s, at most limit, as valid UTF-8 that begins with a whole character.
func TailText(s string, limit int) string {
	if len(s) > limit {
		s = s[len(s)-limit:]
		for len(s) > 0 && s[0]&0xC0 == 0x80 {
			s = s[1:]
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	for len(s) > limit { // replacing may have made it longer
		_, s, _ = strings.Cut(s, "\uFFFD")
	}
	return s
}

// DecodeCompletion reads a completion from the log. Unknown fields are skipped.
func DecodeCompletion(b []byte) (Completion, error) {
	var c Completion
	if err := json.Unmarshal(b, &c); err != nil {
		return Completion{}, jsonError(err)
	}
	if err := c.Validate(); err != nil {
		return Completion{}, err
	}
	return c, nil
}

// JobCommand asks the worker that manages a job for something.
type JobCommand struct {
	Account AccountID `json:"account"`
	Job     JobID     `json:"job"`
	Action  JobAction `json:"action"`
	Offset  int64     `json:"offset,omitzero"` // of logs; -1: the last Limit bytes
	Limit   int       `json:"limit,omitzero"`  // of logs: bytes; 0: MaxJobLogPage
	Data    []byte    `json:"data,omitzero"`   // of stdin
	EOF     bool      `json:"eof,omitzero"`    // of stdin
	Signal  string    `json:"signal,omitzero"`
	Reason  string    `json:"reason,omitzero"` // of stop
}

// JobReply is the answer to a [JobCommand].
type JobReply struct {
	Running bool   `json:"running"`
	Data    []byte `json:"data,omitzero"`    // of logs
	Offset  int64  `json:"offset,omitzero"`  // of the first byte of Data
	Size    int64  `json:"size,omitzero"`    // of all that was printed so far
	Ended   bool   `json:"ended,omitzero"`   // after Size there is no more
	Written int    `json:"written,omitzero"` // of stdin
}
