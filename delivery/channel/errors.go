package channel

import (
	"errors"
	"fmt"
	"time"
)

// Outcome is what is known about a message whose sending failed.
type Outcome string

// The outcomes.
const (
	// NotSent: the message did not arrive, and may be sent again.
	NotSent Outcome = "not_sent"
	// Ambiguous: it is unknown whether the message arrived.
	Ambiguous Outcome = "ambiguous"
	// Limited: the message did not arrive because of a rate limit, and may be sent again after a time.
	Limited Outcome = "limited"
	// Refused: the message did not arrive, and a retry will not help: the chat was deleted, the bot has no access, or the credential is
	// invalid.
	Refused Outcome = "refused"
)

// Error is the error of a message that was not sent, or of which it is unknown whether it was sent.
type Error struct {
	Outcome Outcome
	// Reason is a description for people, without secrets: "the bot was blocked by the user".
	Reason string
	// Status is the status of the HTTP response. 0: there was none.
	Status int
	// After is how long to wait if the outcome is [Limited]. 0: the service does not say.
	After time.Duration
	// Of is whether the rate limit counts per destination or per credential.
	Of PaceOf
	// Credential is whether the service refuses the credential, so that no message can be sent with it.
	Credential bool
	// Keyless is whether the message was sent without a key, although the profile says [OnceByKey]: a retry may create a duplicate.
	Keyless bool
	// Cause is the underlying error; it may be nil. It must contain no secret.
	Cause error
}

// Error returns the outcome, the reason and the cause.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Outcome, e.Reason, e.Cause)
	}
	return fmt.Sprintf("%s: %s", e.Outcome, e.Reason)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// OutcomeOf returns the outcome in an error. An error that is no [Error] is ambiguous.
func OutcomeOf(err error) Outcome {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Outcome
	}
	return Ambiguous
}
