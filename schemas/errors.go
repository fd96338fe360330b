package schemas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the class of an error. The set is closed: codes are added, never renamed or reused,
// because they cross the wire and are kept in the log.
type Code string

// The codes.
const (
	Invalid     Code = "invalid"     // the request is wrong; sending it again will not help
	NotFound    Code = "not_found"   // no such thing, or not yours
	Conflict    Code = "conflict"    // it exists already and differs, or it has moved on
	Denied      Code = "denied"      // not allowed
	Exhausted   Code = "exhausted"   // a cap or quota is used up; later it may fit
	Unavailable Code = "unavailable" // a part is unavailable; later it may be back
	Timeout     Code = "timeout"     // it took longer than allowed
	Unsupported Code = "unsupported" // this provider or host cannot do it
	Interrupted Code = "interrupted" // it was started and its outcome is unknown
	Internal    Code = "internal"    // our fault
)

// Codes lists every code, for tables that must be total.
func Codes() []Code {
	return []Code{Invalid, NotFound, Conflict, Denied, Exhausted, Unavailable, Timeout, Unsupported, Interrupted, Internal}
}

// Retryable reports whether the same thing may succeed later without being changed.
func (c Code) Retryable() bool { return c == Exhausted || c == Unavailable }

// Error is the one error type that crosses a wire. Message is for the user: it names the cause
// and the remedy and holds no secret, host path or stack. Err is for the operator and stays in
// the process.
type Error struct {
	Code    Code   `json:"code"`
	Op      string `json:"op,omitzero"`
	Field   string `json:"field,omitzero"` // the field of the request at fault, if one is
	Message string `json:"message"`
	// Errors are the things that are wrong where Message lists several, each with its field. They are no part of the JSON:
	// HTTP answers have them beside the error.
	Errors []*Error `json:"-"`
	Err    error    `json:"-"`
	// RetryAfter is when the same thing may be tried again, as a service outside has asked; 0: it has not. It stays in the process.
	RetryAfter time.Duration `json:"-"`
}

// RetryAfterOf is the longest [Error.RetryAfter] in the chain of err.
func RetryAfterOf(err error) time.Duration {
	var after time.Duration
	for e, ok := errors.AsType[*Error](err); ok; e, ok = errors.AsType[*Error](e.Err) {
		after = max(after, e.RetryAfter)
	}
	return after
}

// One value per code, for errors.Is: they compare by code alone, so they work on an error that
// has crossed a wire.
var (
	ErrInvalid     = &Error{Code: Invalid}
	ErrNotFound    = &Error{Code: NotFound}
	ErrConflict    = &Error{Code: Conflict}
	ErrDenied      = &Error{Code: Denied}
	ErrExhausted   = &Error{Code: Exhausted}
	ErrUnavailable = &Error{Code: Unavailable}
	ErrTimeout     = &Error{Code: Timeout}
	ErrUnsupported = &Error{Code: Unsupported}
	ErrInterrupted = &Error{Code: Interrupted}
	ErrInternal    = &Error{Code: Internal}
)

// Error returns "op: field: message: cause", leaving out what is empty.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, p := range []string{e.Op, e.Field, e.Message} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if _, printed := e.Err.(quiet); e.Err != nil && !printed { //nolint:errorlint // Errorf's own wrapper, never wrapped itself
		parts = append(parts, e.Err.Error())
	}
	if len(parts) == 0 {
		return string(e.Code)
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the operator's cause.
func (e *Error) Unwrap() error { return e.Err }

// Is lets errors.Is compare by code with the values above and with the corresponding errors of the standard library.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Message == "" && t.Field == "" && t.Code == e.Code
	}
	return target == errors.ErrUnsupported && e.Code == Unsupported ||
		target == context.DeadlineExceeded && e.Code == Timeout
}

// Errorf makes an error with a code. A %w verb keeps its operand as the operator's cause; what it
// prints becomes part of Message, so wrap only what a user may read, else use [Wrap].
func Errorf(code Code, format string, args ...any) error {
	return OpErrorf(code, "", format, args...)
}

// OpErrorf is Errorf with the operation that failed, such as "open workspace", in [Error.Op].
func OpErrorf(code Code, op, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Op: op, Message: err.Error(), Err: quiet{errors.Unwrap(err)}.orNil()}
}

// Invalidf makes an invalid error about one field of a request.
func Invalidf(field, format string, args ...any) error {
	return &Error{Code: Invalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives err a code and a message for the user, keeping err itself for the operator only.
func Wrap(code Code, op, message string, err error) error {
	return &Error{Code: code, Op: op, Message: message, Err: err}
}

// quiet is a cause for errors.Is and errors.As whose text is already in the message.
type quiet struct{ err error }

func (q quiet) Error() string { return q.err.Error() }
func (q quiet) Unwrap() error { return q.err }
func (q quiet) orNil() error {
	if q.err == nil {
		return nil
	}
	return q
}

// CodeOf returns the code of the first [Error] in err's chain; for others timeout and interrupted
// for the context errors, and internal for all else. CodeOf(nil) is empty.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.Is(err, errors.ErrUnsupported):
		return Unsupported
	}
	return Internal
}

// Public returns what may be shown outside: the [Error] in err's chain without its cause, or an
// internal error that says nothing but where to look.
func Public(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Code: e.Code, Field: e.Field, Message: e.Message, Errors: e.Errors}
	}
	switch code := CodeOf(err); code {
	case Timeout:
		return &Error{Code: code, Message: "it took longer than allowed"}
	case Interrupted:
		return &Error{Code: code, Message: "it was interrupted"}
	default:
		return &Error{Code: Internal, Message: "internal error: see the log of the process that answered"}
	}
}
