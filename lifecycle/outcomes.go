package lifecycle

import (
	"slices"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// The words for the model of results that are not a tool's own.
const (
	TextInterrupted = "Interrupted: the worker that ran this call died after it had started. What it did until then is unknown " +
		"and it was not run again. Look at the workspace before you repeat it."
	TextStopped = "Interrupted: the worker was shut down while this call ran, and the call was killed. What it had done " +
		"until then is done. It was not run again: look at the workspace before you repeat it."
	TextKilled  = "Cancelled while it ran. It was killed; what it had done until then is done."
	TextUnended = "Cancelled while it ran. Its provider cannot end it: it may go on until its time limit. What it had done until then, and " +
		"may still do, is not known: look at the workspace before you go on."
	TextNotified = "You will be notified when it ends: do not poll." // for jobs, which continue after their call

	textForgotten = "Interrupted: nothing is known any more of what became of this call. It may have been run, and was not run again. " +
		"Look at the workspace before you repeat it."
	textExpired     = "Expired: the deadline of this call passed before it could be started. It was not run."
	textNotStarted  = "Cancelled before it was started."
	textNotLaunched = "Interrupted: the worker that ran this call died before it launched the background job. Nothing was started."
)

// Result returns the result of a call with its status and text; the caller adds the rest.
func Result(c schemas.Call, s schemas.Status, text string) schemas.Result {
	return schemas.Result{Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: s, Text: text}
}

// FailedResult returns the result of a call that could not be run, with the public part of the error only.
func FailedResult(c schemas.Call, err error) schemas.Result {
	e := schemas.Public(err)
	r := Result(c, schemas.StatusFailed, "Error: "+e.Message)
	if e.Field != "" {
		r.Text = "Error: " + e.Field + ": " + e.Message
	}
	r.Error = e
	return r
}

// InterruptedResult returns the result of a call that was started and whose outcome is unknown.
func InterruptedResult(c schemas.Call, text string) schemas.Result {
	r := Result(c, schemas.StatusInterrupted, text)
	r.Error = &schemas.Error{Code: schemas.Interrupted, Message: "it was started and its outcome is unknown"}
	return r
}

// ForgottenResult returns the result of a call for which the log no longer shows whether it was started.
func ForgottenResult(c schemas.Call) schemas.Result {
	r := InterruptedResult(c, textForgotten)
	r.Error.Message = "it is no longer known whether it was started: its outcome is unknown"
	return r
}

// CancelledResult returns the result of a call that was cancelled before it was started.
func CancelledResult(c schemas.Call, reason string) schemas.Result {
	return Result(c, schemas.StatusCancelled, Because(textNotStarted, reason))
}

// ExpiredResult returns the result of a call that was not started before its deadline.
func ExpiredResult(c schemas.Call) schemas.Result {
	r := Result(c, schemas.StatusExpired, textExpired)
	r.Error = &schemas.Error{Code: schemas.Timeout, Message: "its deadline (" + c.Deadline.UTC().Format(time.RFC3339) +
		") passed before it was started"}
	return r
}

// LaunchedResult returns the result of a background call whose job runs.
func LaunchedResult(c schemas.Call, j schemas.Job) schemas.Result {
	text := "Background job " + string(j.ID) + " started."
	if slices.Contains(j.Actions, schemas.JobActionLogs) {
		text += " async_status with this statusId shows what it prints."
	}
	r := Result(c, schemas.StatusCompleted, text+" "+TextNotified)
	r.StatusID = string(j.ID)
	return r
}

// MayRunResult returns the result of a background call whose job may run.
func MayRunResult(c schemas.Call) schemas.Result {
	r := InterruptedResult(c, "Interrupted: the connection to the sandbox was lost while background job "+string(c.Job)+
		" was started. It may run. Do not start it again. "+TextNotified)
	r.StatusID = string(c.Job)
	return r
}

// NotLaunchedResult returns the result of a background call whose job will not be launched, because its worker was considered dead before
// that.
func NotLaunchedResult(c schemas.Call) schemas.Result { return InterruptedResult(c, textNotLaunched) }

// RefusedResult returns the result of a call that was not approved.
func RefusedResult(a schemas.Approval) schemas.Result {
	r := Result(a.Call, "", "")
	switch a.State {
	case schemas.ApprovalCancelled:
		r.Status, r.Text = schemas.StatusCancelled, Because("Cancelled before it was approved. It was not run.", a.Reason)
	case schemas.ApprovalExpired:
		r.Status, r.Text = schemas.StatusExpired, "Expired: nobody approved this call in time. It was not run."
		r.Error = &schemas.Error{Code: schemas.Timeout, Message: "nobody approved it until " + a.Expires.UTC().Format(time.RFC3339)}
	case schemas.ApprovalDenied, schemas.ApprovalPending, schemas.ApprovalApproved: // the last two are not refused
		why := "denied by a person"
		if a.Reason != "" {
			why += ": " + a.Reason
		}
		r.Status, r.Text = schemas.StatusDenied, why
		r.Error = &schemas.Error{Code: schemas.Denied, Message: why}
	}
	return r
}

// InputLostResult returns the result of a call that was approved, but whose input is no longer on the log: the decision was not carried
// out for longer than calls are kept.
func InputLostResult(c schemas.Call) schemas.Result {
	const why = "it was approved, but could not be handed on before its input aged out: call again"
	return FailedResult(c, schemas.Errorf(schemas.Unavailable, why))
}

// Because adds the given reason to a text, if there is one.
func Because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + " Reason: " + reason
}

// JobStart says what is known about the start of a job.
type JobStart string

// The values of JobStart.
const (
	NeverStarted   JobStart = "never"
	MayHaveStarted JobStart = "may run"
	HasStarted     JobStart = "runs" // or did
)

// StartOf returns what the record of a job says about its start.
func StartOf(j schemas.Job) JobStart {
	switch j.State {
	case schemas.JobWaiting, schemas.JobUnstarted:
		return NeverStarted
	case schemas.JobLaunching:
		return MayHaveStarted
	case schemas.JobRunning, schemas.JobCompleted, schemas.JobFailed, schemas.JobStopped, schemas.JobExpired, schemas.JobLost:
	}
	return HasStarted
}
