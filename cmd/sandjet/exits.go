package main

import (
	"github.com/sandjet/sandjet/schemas"
)

// The exit codes, after BSD's sysexits where that has one. A call ends with its command's own code, which may be any of these: --json
// distinguishes them.
const (
	exitOK          = 0
	exitFailure     = 1   // it did not work; a file tool failed
	exitDiffers     = 2   // diff: there is something to change
	exitUsage       = 64  // the command line or the request is wrong
	exitConflict    = 65  // the id belongs to another call
	exitNotFound    = 66  // no such thing
	exitUnreachable = 69  // nothing is running there, or it went away
	exitInternal    = 70  // our fault
	exitInterrupted = 71  // the call was started and its outcome is unknown
	exitTryLater    = 75  // a cap is used up, or the deadline passed before the call was started
	exitDenied      = 77  // not allowed, or the key is wrong
	exitTimeout     = 124 // as timeout(1)
	exitCancelled   = 130 // as a shell says of SIGINT
)

// exitError is an error that ends the process with an exit code. If err is nil, nothing is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return "exit"
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode returns the code for an error.
func exitCode(err error) int {
	switch schemas.CodeOf(err) {
	case schemas.Invalid:
		return exitUsage
	case schemas.NotFound:
		return exitNotFound
	case schemas.Conflict:
		return exitConflict
	case schemas.Denied:
		return exitDenied
	case schemas.Exhausted:
		return exitTryLater
	case schemas.Unavailable:
		return exitUnreachable
	case schemas.Timeout:
		return exitTimeout
	case schemas.Interrupted:
		return exitInterrupted
	case schemas.Unsupported, schemas.Internal:
	}
	return exitFailure
}

// resultCode returns the exit code of a call.
func resultCode(r schemas.Result) int {
	switch r.Status {
	case schemas.StatusCompleted:
		if r.Output != nil {
			return r.Output.ExitCode
		}
		return exitOK
	case schemas.StatusFailed:
		switch {
		case r.Output != nil && r.Output.TimedOut:
			return exitTimeout
		case r.Output != nil && r.Output.ExitCode != 0:
			return r.Output.ExitCode
		case r.Output == nil && r.Error != nil && r.Error.Code == schemas.Exhausted: // too many background jobs
			return exitTryLater
		}
		return exitFailure
	case schemas.StatusDenied:
		return exitDenied
	case schemas.StatusCancelled:
		return exitCancelled
	case schemas.StatusInterrupted:
		return exitInterrupted
	case schemas.StatusExpired:
		return exitTryLater
	}
	return exitInternal
}
