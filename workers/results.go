package workers

import (
	"errors"
	"strings"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/guard"
)

// unpreparedResult is the result of a call that was not started for a reason that another try does not change.
func unpreparedResult(c schemas.Call, err error) schemas.Result {
	r := lifecycle.FailedResult(c, err)
	if r.Error.Code == schemas.Denied {
		r.Status, r.Text = schemas.StatusDenied, r.Error.Message
	}
	if refusal, ok := errors.AsType[*guard.RefusalError](err); ok {
		r.Output = &schemas.Output{
			Runtime: "none", ExitCode: schemas.DeniedExitCode, Stderr: refusal.Text + "\n",
			Denied: &schemas.Denial{By: "bash_guard", Policy: refusal.Policy, Rule: string(refusal.Rule)},
		}
	}
	return r
}

// unrunResult is the result of a call that a verdict ended before its start.
func unrunResult(c schemas.Call, v verdict, reason string) schemas.Result {
	switch v {
	case toInterrupt:
		return lifecycle.InterruptedResult(c, lifecycle.TextInterrupted)
	case toCancel:
		return lifecycle.CancelledResult(c, reason)
	case toAbandon:
		return lifecycle.FailedResult(c, schemas.Errorf(schemas.Internal,
			"every one of the %d workers that ran this call stopped before its end", maxStarts))
	default:
		return lifecycle.ExpiredResult(c)
	}
}

// endedResult is the result of a run that was ended from outside, with what it had printed.
func endedResult(c schemas.Call, s schemas.Status, text string, partial *schemas.Result) schemas.Result {
	r := lifecycle.Result(c, s, text)
	if s == schemas.StatusInterrupted {
		r = lifecycle.InterruptedResult(c, text)
	}
	return withPartial(r, partial)
}

// withPartial adds what had been printed, where that is known, to the result of a run that was not carried out to its end.
func withPartial(r schemas.Result, partial *schemas.Result) schemas.Result {
	if partial == nil {
		return r
	}
	r.Output = partial.Output
	if printed := strings.TrimSpace(partial.Text); printed != "" {
		r.Text += "\n\n" + printed
	}
	return r
}
