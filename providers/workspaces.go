package providers

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// WorkspaceRemover is the capability to remove the files of removed accounts. Providers have it that store the files of workspaces on an
// operator's disk, where nothing else would remove them.
type WorkspaceRemover interface {
	// SweepWorkspaces looks once at the files of every workspace and removes those whose account was found removed in every
	// look for [WorkspacesKept] in sum, and reports how many workspaces that were. How long is kept with the files and survives
	// the process. Files whose account is not known for certain, or that a sandbox has open, stay.
	//
	// Two looks at the same files at the same time are one too many: the caller sees to it that there is one.
	//
	// Codes: unavailable (some could not be removed: the next look does it), and what Held returns.
	SweepWorkspaces(ctx context.Context, s WorkspaceSweep) (removed int, err error)
}

// WorkspacesKept is how long the files of workspaces stay after their account was found removed.
const WorkspacesKept = 7 * 24 * time.Hour

// WorkspaceSweep describes one sweep of a [WorkspaceRemover].
type WorkspaceSweep struct {
	// Removed reports whether an account was certainly removed. False without an error is one that certainly exists. With an error
	// it is unknown.
	Removed func(context.Context, schemas.AccountID) (bool, error)
	// Passed is the time since the last look, as measured by the clock of this process that cannot be set. 0: it is not known.
	Passed time.Duration
	// Held returns an error when another process may look by now. It is asked before each step that cannot be taken back.
	Held func() error
}
