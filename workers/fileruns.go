package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/internal/membudget"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/files"
)

const (
	// FileSandboxes is how many sandboxes a worker makes at a time for files of applications and for artifacts, where its provider reaches
	// files by runs alone and no persistent sandbox of the workspace is up.
	FileSandboxes = 4
	// FileSandboxesOfAccount is how many of them are for one account.
	FileSandboxesOfAccount = 2
	// fileRunWithin bounds one run for files, from its start. A question has a little more for all of its runs.
	fileRunWithin = 20 * time.Second
	// fileRunEnds is what the end of a run may take that was lost sight of.
	fileRunEnds = 10 * time.Second
)

// fileRuns accesses files of workspaces by running commands, where the provider has no better way: in a running persistent sandbox of the
// workspace, else in a fresh one per command, which leaves no record.
type fileRuns struct {
	s     *workerRun
	filer providers.Filer   // of some workspaces; nil: of none
	fresh *membudget.Budget // of sandboxes
	small atomic.Bool       // the provider keeps less output of a run than it is asked to
}

func newFileRuns(s *workerRun) *fileRuns {
	filer, _ := providers.As[providers.Filer](s.Provider)
	return &fileRuns{s: s, filer: filer, fresh: membudget.New(FileSandboxes, FileSandboxesOfAccount)}
}

// serveFiles answers requests for files in the provider's folders or volumes until ctx ends.
func (s *workerRun) serveFiles(ctx context.Context) {
	if s.byRuns.filer == nil && s.OnlyS3 {
		return // there is nothing in its volumes
	}
	(&files.Server{Bus: s.Bus, Place: streams.FilesInFolders(s.Name), Open: s.byRuns.open, Log: s.Log}).Run(ctx)
}

// open opens the files of a workspace for a request about them.
func (r *fileRuns) open(ctx context.Context, a schemas.AccountID, w schemas.WorkspaceID) (workspacefs.FS, error) {
	if r.filer != nil {
		fsys, err := files.InFolders(r.filer)(ctx, a, w)
		if schemas.CodeOf(err) != schemas.Unsupported {
			return fsys, err
		}
	}
	return r.files(a, w, mountOf(a, w, ""), false, streams.StillAwaited), nil
}

// files returns the files of a workspace, accessed by commands. begin is called before each command, see [providers.Command].
func (r *fileRuns) files(a schemas.AccountID, w schemas.WorkspaceID, mount providers.Mount, readOnly bool,
	begin func(context.Context) error) *runfs.FS {
	o := runfs.Options{ReadOnly: readOnly, Run: func(ctx context.Context, c providers.Command) (providers.Result, error) {
		c.Begin = func() error { return begin(ctx) }
		return r.run(ctx, a, w, mount, c)
	}}
	if r.small.Load() {
		o.Output = schemas.MaxOutputLimit
	}
	return runfs.New(o)
}

// run runs a command in a sandbox that has the workspace.
func (r *fileRuns) run(ctx context.Context, a schemas.AccountID, w schemas.WorkspaceID, mount providers.Mount,
	c providers.Command) (providers.Result, error) {
	c.ID, c.Dir, c.Mounts = schemas.NewID("files_"), mount.Path(), []providers.Mount{mount}
	if res, done, err := r.inInstance(ctx, a, w, c); done {
		return res, err
	}
	place, err := r.fresh.Take(ctx, string(a), 1)
	if err != nil {
		return providers.Result{}, schemas.Wrap(schemas.Unavailable, "files", "other files of the account wait for sandboxes too: try again", err)
	}
	defer place.Release()
	c.Network = schemas.Network{Mode: schemas.DenyAll}
	c.Spec = providers.Spec{Account: a, Network: c.Network, Mounts: c.Mounts}
	return r.once(ctx, "", c)
}

// inInstance runs a command in a running persistent sandbox of the workspace. done is false if there is none, or if it has just ended:
// nothing was started then.
func (r *fileRuns) inInstance(ctx context.Context, a schemas.AccountID, w schemas.WorkspaceID,
	c providers.Command) (res providers.Result, done bool, err error) {
	stay, ok := r.s.instances.Enter(ctx, a, w)
	if !ok {
		return res, false, nil
	}
	defer stay.Leave()
	sandbox, err := r.s.Specs.Sandbox(ctx, a, stay.Sandbox())
	if err != nil {
		return res, false, nil // it is about to end, or not known now: a fresh one does as well
	}
	c.Sandbox, c.Network, c.Spec = stay.Ref(), sandbox.Network, specOf(sandbox, c.Mounts)
	res, err = r.once(ctx, schemas.BoxKey(a, stay.Sandbox(), w), c)
	return res, res.Started || !errors.Is(err, schemas.ErrNotFound), err
}

// once runs a command, and ends it if its end was not observed, since the next request would run beside it.
func (r *fileRuns) once(ctx context.Context, key string, c providers.Command) (providers.Result, error) {
	c.Timeout = fileRunWithin
	res, err := r.s.Provider.Run(ctx, c)
	if res.Truncated && c.OutputLimit > schemas.MaxOutputLimit {
		r.small.Store(true) // the next request asks for smaller pieces
	}
	if ender, ok := providers.As[providers.RunEnder](r.s.Provider); ok && schemas.CodeOf(err) == schemas.Interrupted {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileRunEnds)
		defer cancel()
		if err := ender.EndRun(ending, key, c.Spec.Account, c.ID); err != nil {
			r.s.Log.Warn("run for files not ended, it ends at its time", "error", err)
		}
	}
	return res, err
}
