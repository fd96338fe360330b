package schemas

import "time"

// Status is how a call ended.
type Status string

// The statuses. Every accepted call reaches exactly one of them.
const (
	StatusCompleted   Status = "completed"   // it ran to its end; a command that failed has an exit code ≠ 0 and is completed too
	StatusFailed      Status = "failed"      // it could not be run, or the tool itself failed (no such file, text not found)
	StatusDenied      Status = "denied"      // policy or a person said no
	StatusCancelled   Status = "cancelled"   // its end was requested
	StatusInterrupted Status = "interrupted" // its worker died after the start: outcome unknown, not run again
	StatusExpired     Status = "expired"     // its deadline passed before it was started
)

// Statuses lists every status.
func Statuses() []Status {
	return []Status{StatusCompleted, StatusFailed, StatusDenied, StatusCancelled, StatusInterrupted, StatusExpired}
}

// Result is the one answer to a call.
type Result struct {
	Call         CallID         `json:"call"`
	Conversation ConversationID `json:"conversation"`
	Tool         Tool           `json:"tool"`
	Status       Status         `json:"status"`
	// Text is for the model: exit code, timeout and truncation are always visible in it.
	Text string `json:"text"`
	// Output is there when something was run, and when the bash guard refused a command.
	Output *Output `json:"output,omitzero"`
	// StatusID names the background job that the call left behind.
	StatusID string `json:"status_id,omitzero"`
	// Artifacts are files that the call has made or changed, each announced by [ArtifactCreated] before.
	Artifacts []Artifact `json:"artifacts,omitzero"`
	// SkippedArtifacts are files that the call has made or changed and that are not kept, with the reasons.
	SkippedArtifacts []SkippedArtifact `json:"skipped_artifacts,omitzero"`
	// Notices are sentences about what is not as the call may expect it: files on S3 that were kept beside, left out or not stored yet, and
	// what a sandbox was asked for and does not have. The text has them too.
	Notices  []string  `json:"notices,omitzero"`
	Error    *Error    `json:"error,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished"`
}

// Output is what a run left, as structure. Stdout and Stderr are valid UTF-8 (bytes that were not
// are U+FFFD), each cut in the middle to the sandbox's output limit.
type Output struct {
	OK         bool   `json:"ok"`
	Runtime    string `json:"runtime"`
	ExitCode   int    `json:"exit_code"`
	TimedOut   bool   `json:"timed_out"`
	Truncated  bool   `json:"truncated"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	TotalBytes int64  `json:"total_bytes,omitzero"` // of both streams, before truncation
	// InvalidBytes counts what is U+FFFD in Stdout and Stderr because it was not UTF-8.
	InvalidBytes int64      `json:"invalid_bytes,omitzero"`
	FullOutput   string     `json:"full_output,omitzero"` // workspace path of the whole output, when truncated and kept
	OOMKilled    bool       `json:"oom_killed,omitzero"`
	Isolation    *Isolation `json:"isolation,omitzero"`
	// Denied is there when the command was refused before anything was run. ExitCode is then 126, as shells say
	// of a command that they may not run, and Stderr is the refusal: no reader takes it for an empty answer.
	Denied *Denial `json:"denied,omitzero"`
	// Data is what a file tool found, in the tool's own structure (tools documents them).
	Data any `json:"data,omitzero"`
}

// DeniedExitCode is the exit code of a command that was refused.
const DeniedExitCode = 126

// Denial says who refused a command, and why.
type Denial struct {
	By     string      `json:"by"`     // bash_guard
	Policy GuardPolicy `json:"policy"` // of the sandbox
	Rule   string      `json:"rule"`   // leave, scan, write, absolute, traversal or runtime
}

// Isolation says what a run was kept in: the level and which protections were in force.
type Isolation struct {
	Level    string   `json:"level"`
	Enforced []string `json:"enforced,omitzero"`
	Missing  []string `json:"missing,omitzero"`
}
