package sandboxes

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// DefaultWorkspacesEvery is the default time between searches for workspace files of removed accounts.
const DefaultWorkspacesEvery = time.Hour

// WorkspaceCleaner removes the files of workspaces whose account was removed [providers.WorkspacesKept] ago, if the provider stores
// workspaces on a disk of its own. Of all workers with access to the same files, one at a time does so.
type WorkspaceCleaner struct {
	Bus      *streams.Bus
	Provider providers.Provider
	// Store identifies the files; it is the same for all workers with access to them.
	Store string
	// Removed reports whether an account was certainly removed; after an error that is unknown. Nil: nothing is removed.
	Removed func(context.Context, schemas.AccountID) (bool, error)
	Every   time.Duration // 0: DefaultWorkspacesEvery
	Log     *slog.Logger
}

// Run removes files periodically until ctx is done, and then returns nil.
func (c *WorkspaceCleaner) Run(ctx context.Context) error {
	sweeper, ok := providers.As[providers.WorkspaceRemover](c.Provider)
	if !ok || c.Removed == nil || c.Store == "" {
		return nil
	}
	every := cmp.Or(c.Every, DefaultWorkspacesEvery)
	duty := &streams.Duty{Bus: c.Bus, Name: "workspaces." + c.Store, Every: every, Log: c.Log,
		Begin: func() func(context.Context, *streams.Tenure) {
			var last time.Time // within this tenure only: another process may have counted earlier time
			return func(ctx context.Context, t *streams.Tenure) {
				now := time.Now()
				passed := passedSince(last, now, every)
				last = now
				n, err := sweeper.SweepWorkspaces(ctx, providers.WorkspaceSweep{Removed: c.Removed, Passed: passed, Held: t.Held})
				if err != nil && ctx.Err() == nil {
					c.Log.Warn("files of removed accounts not removed, retrying", "error", err)
				}
				if n > 0 {
					c.Log.Info("files of removed accounts removed", "workspaces", n)
				}
			}
		}}
	return duty.Run(ctx)
}

// passedSince returns how much time between two rounds counts: by the monotonic clock, at most twice the time between rounds. A process
// that was suspended for days has not checked during them whether an account was removed. It has no side effects.
func passedSince(last, now time.Time, every time.Duration) time.Duration {
	if last.IsZero() {
		return 0
	}
	return min(max(now.Sub(last), 0), 2*every)
}
