package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// WorkspaceRemover is the capability to remove the files of removed accounts. Providers that store the files of workspaces on an
// operator's disk have it, because nothing else would remove these.
type WorkspaceRemover interface {
	// SweepWorkspaces checks the files of every workspace once, and removes those whose account was found removed in every sweep for a
	// total of [WorkspacesKept]. It returns the number of removed workspaces. The time for which an account was found removed is stored
	// with the files and survives the process. Files whose account is not known for certain, or that a sandbox uses, are not removed.
	//
	// Two sweeps of the same files must not run at the same time; the caller ensures that.
	//
	// Codes: unavailable (some files could not be removed; the next sweep retries), and those of Held.
	SweepWorkspaces(ctx context.Context, s WorkspaceSweep) (removed int, err error)
}

// WorkspacesKept is how long the files of workspaces are stored after their account was found removed.
const WorkspacesKept = 7 * 24 * time.Hour

// WorkspaceSweep describes one sweep of a [WorkspaceRemover].
type WorkspaceSweep struct {
	// Removed reports whether an account was certainly removed. False without an error: the account certainly exists. After an error it is
	// unknown.
	Removed func(context.Context, schemas.AccountID) (bool, error)
	// Passed is the time since the last sweep, by this process's monotonic clock. 0: unknown.
	Passed time.Duration
	// Held returns an error if another process may have taken over the sweep. It is called before each step that cannot be undone.
	Held func() error
}
