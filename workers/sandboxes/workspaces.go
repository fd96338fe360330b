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

// DefaultWorkspacesEvery is how often the files of workspaces are looked at for those of removed accounts.
const DefaultWorkspacesEvery = time.Hour

// WorkspaceCleaner removes the files of workspaces whose account was removed [providers.WorkspacesKept] ago, where the provider keeps
// them on a disk of its own. Of all workers that see the same files one does so at a time.
type WorkspaceCleaner struct {
	Bus      *streams.Bus
	Provider providers.Provider
	// Store identifies the files: the same for all workers that see them.
	Store string
	// Removed reports whether an account was certainly removed; with an error that is unknown. Nil: nothing is removed.
	Removed func(context.Context, schemas.AccountID) (bool, error)
	Every   time.Duration // 0: DefaultWorkspacesEvery
	Log     *slog.Logger
}

// Run looks now and then until ctx ends, and returns nil then.
func (c *WorkspaceCleaner) Run(ctx context.Context) error {
	sweeper, ok := providers.As[providers.WorkspaceRemover](c.Provider)
	if !ok || c.Removed == nil || c.Store == "" {
		return nil
	}
	every := cmp.Or(c.Every, DefaultWorkspacesEvery)
	duty := &streams.Duty{Bus: c.Bus, Name: "workspaces." + c.Store, Every: every, Log: c.Log,
		Begin: func() func(context.Context, *streams.Tenure) {
			var last time.Time // of this tenure: what was before another process may have counted
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

// passedSince is the time between two looks that counts: by the clock that cannot be set, and no more than two looks are apart. A
// process that was suspended for days has not seen in these whether an account was there. It is pure.
func passedSince(last, now time.Time, every time.Duration) time.Duration {
	if last.IsZero() {
		return 0
	}
	return min(max(now.Sub(last), 0), 2*every)
}
