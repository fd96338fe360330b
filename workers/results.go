package workers

import (
	"errors"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/guard"
)

// The words for the model of results that are not a tool's own.
const (
	textInterrupted = "Interrupted: the worker that ran this call died after it had started. What it did until then is unknown " +
		"and it was not run again. Look at the workspace before you repeat it."
	textStopped = "Interrupted: the worker was shut down while this call ran, and the call was killed. What it had done " +
		"until then is done. It was not run again: look at the workspace before you repeat it."
	textExpired    = "Expired: the deadline of this call passed before it could be started. It was not run."
	textUnstarted  = "Cancelled before it was started."
	textUnlaunched = "Interrupted: the worker that ran this call died before it launched the background job. Nothing was started."
	textNotified   = "You will be notified when it ends: do not poll."
	textCancelled  = "Cancelled while it ran. It was killed; what it had done until then is done."
)

// resultOf begins the result of a call.
func resultOf(c schemas.Call, s schemas.Status, text string) schemas.Result {
	return schemas.Result{Call: c.ID, Conversation: c.Conversation, Tool: c.Tool, Status: s, Text: text}
}

// failedResult tells of a call that could not be run. The error's public side is all that leaves
// the process.
func failedResult(c schemas.Call, err error) schemas.Result {
	e := schemas.Public(err)
	r := resultOf(c, schemas.Failed, "Error: "+e.Message)
	if e.Field != "" {
		r.Text = "Error: " + e.Field + ": " + e.Message
	}
	r.Error = e
	return r
}

// unpreparedResult tells of a call that was not started for a reason which trying again will not mend.
func unpreparedResult(c schemas.Call, err error) schemas.Result {
	r := failedResult(c, err)
	if r.Error.Code == schemas.Denied {
		r.Status, r.Text = schemas.DeniedBy, r.Error.Message
	}
	if refusal, ok := errors.AsType[*guard.RefusalError](err); ok {
		r.Output = &schemas.Output{
			Runtime: "none", ExitCode: schemas.DeniedExitCode, Stderr: refusal.Text + "\n",
			Denied: &schemas.Denial{By: "bash_guard", Policy: refusal.Policy, Rule: string(refusal.Rule)},
		}
	}
	return r
}

// interruptedResult tells of a start without a known end.
func interruptedResult(c schemas.Call, text string) schemas.Result {
	r := resultOf(c, schemas.Broken, text)
	r.Error = &schemas.Error{Code: schemas.Interrupted, Message: "it was started and its outcome is unknown"}
	return r
}

// unrunResult is the result of a call that a verdict ended before its start.
func unrunResult(c schemas.Call, v verdict, reason string) schemas.Result {
	switch v {
	case toInterrupt:
		return interruptedResult(c, textInterrupted)
	case toCancel:
		return resultOf(c, schemas.Cancelled, because(textUnstarted, reason))
	case toGiveUp:
		return failedResult(c, schemas.Errorf(schemas.Internal, "", "every one of the %d workers that ran this call stopped before its end", maxStarts))
	default:
		r := resultOf(c, schemas.Expired, textExpired)
		r.Error = &schemas.Error{Code: schemas.Timeout, Message: "its deadline (" + c.Deadline.UTC().Format(time.RFC3339) + ") passed before it was started"}
		return r
	}
}

// endedResult is the result of a run that was ended from outside, with what it had printed.
func endedResult(c schemas.Call, s schemas.Status, text string, partial *schemas.Result) schemas.Result {
	r := resultOf(c, s, text)
	if s == schemas.Broken {
		r = interruptedResult(c, text)
	}
	return withPartial(r, partial)
}

// withPartial adds what had been printed, where that is known, to the result of a run that was not carried out to its end.
func withPartial(r schemas.Result, partial *schemas.Result) schemas.Result {
	if partial == nil {
		return r
	}
	r.Output, r.Artifacts = partial.Output, partial.Artifacts
	if printed := strings.TrimSpace(partial.Text); printed != "" {
		r.Text += "\n\n" + printed
	}
	return r
}

func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + " Reason: " + reason
}
