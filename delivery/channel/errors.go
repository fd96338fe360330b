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
	// NotSent: it did not arrive, and may be sent again.
	NotSent Outcome = "not_sent"
	// Ambiguous: it is unknown whether the message arrived.
	Ambiguous Outcome = "ambiguous"
	// Limited: it did not arrive, and may be sent again after a time.
	Limited Outcome = "limited"
	// Refused: it did not arrive and never will: the chat is gone, the bot is not allowed in, the credential is not valid.
	Refused Outcome = "refused"
)

// Error is why a message was not sent, or why that is unknown.
type Error struct {
	Outcome Outcome
	// Reason is for people, without any secret: "the bot was blocked by the user".
	Reason string
	// Status is of the HTTP response; 0: there was none.
	Status int
	// After is how long to wait, of [Limited]; 0: the service does not say.
	After time.Duration
	// Of is whom the limit holds back.
	Of PaceOf
	// Credential is whether it is the credential that is refused: nothing will arrive with it.
	Credential bool
	// Keyless is whether the message had no key, although the profile says [OnceByKey]: sent again, it may be there twice.
	Keyless bool
	// Cause may be nil. It must hold no secret.
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
