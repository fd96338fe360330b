package filesync

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// lockWithin is how long one comparison waits for another one of the same copy.
	lockWithin = 30 * time.Second
	// syncWithin is how long a comparison may take. What is left then waits for the next.
	syncWithin = 5 * time.Minute
	// sweepEvery is how often dead marks are looked for, and how often what jobs have changed is written out, but for copies that rest after
	// a failure. Whether a job has ended is looked at every aliveEvery.
	sweepEvery = 30 * time.Second
	aliveEvery = 2 * time.Second
	// transfers is how many files are on their way at the same time, for one copy.
	transfers = 8
)

// Limits are the limits of one workspace. Files beyond FileSize are left out and named; if the bucket exceeds Files or Bytes see
// [Report.Held].
type Limits struct {
	Files    int   // files
	Bytes    int64 // of all files
	FileSize int64 // bytes of one file
}

// entries returns how many files and folders a copy may have, including those that are left out.
func (l Limits) entries() int { return 4*l.Files + 10_000 }

// DefaultLimits returns the limits that apply unless an operator changes them.
func DefaultLimits() Limits { return Limits{Files: 10_000, Bytes: 4 << 30, FileSize: 1 << 30} }

// Copies manages one provider's local copies of workspaces on S3. Its methods are safe for concurrent use, also by other processes that
// use the same folders.
type Copies struct {
	// Files opens the files that a provider's sandboxes see.
	Files providers.Filer
	// Bucket opens what a workspace's record names. Its codes: unsupported (there is none), and those of records.
	Bucket func(context.Context, schemas.Workspace) (*bucket.Bucket, error)
	// Workspace finds a record, for what dead processes have left. Code not_found: it is gone, and so is what was left.
	Workspace func(context.Context, schemas.AccountID, schemas.WorkspaceID) (schemas.Workspace, error)
	// JobRuns reports whether a job may still change files: its record is not final, or cannot be read. Nil: none does.
	JobRuns func(context.Context, schemas.AccountID, schemas.JobID) bool
	// Dir is a folder for bases and marks, on this host and of this provider's copies alone. It is made when absent.
	Dir    string
	Limits Limits
	Log    *slog.Logger // nil: no log

	// at is called before each effect, and an error from it ends everything right there, as a crash would: for tests.
	at func(what, name string) error

	mu   sync.Mutex
	kept map[*Use]bool
}

// Use is one use of a copy, by a call or a job.
type Use struct {
	c         *Copies
	workspace schemas.Workspace
	mark      *mark
}

// Begin updates the copy from the bucket and begins a use. With writes, changes to the copy from now on are stored in the bucket by
// [Use.End], or by the next process that finds this one dead; without, the use must change nothing.
//
// If the workspace is over its limits the use begins nevertheless if a call can change that: see [Report.Held].
//
// Codes: unavailable (try later), denied, invalid and unsupported (the bucket cannot be used, or exceeds the limits and the copy has no
// files yet), exhausted (the host has no room for the files).
func (c *Copies) Begin(ctx context.Context, w schemas.Workspace, writes bool) (*Use, Report, error) {
	return c.begin(ctx, w, writes, "")
}

// BeginJob is Begin for a job, whose use lasts until the job has ended, even if this process ends earlier and the job does not. Then
// [Copies.Run] of the next process on the host stores the job's changes, as after [Use.Keep].
func (c *Copies) BeginJob(ctx context.Context, w schemas.Workspace, job schemas.JobID) (*Use, Report, error) {
	return c.begin(ctx, w, true, job)
}

func (c *Copies) begin(ctx context.Context, w schemas.Workspace, writes bool, job schemas.JobID) (*Use, Report, error) {
	u := &Use{c: c, workspace: w}
	dir, err := c.dir(w)
	if err != nil {
		return nil, Report{}, err
	}
	report, err := c.compare(ctx, w, dir, false)
	if err != nil {
		return nil, report, err
	}
	if writes {
		if u.mark, err = newMark(dir, markOf{w.Account, w.ID, job}); err != nil {
			return nil, report, schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", err)
		}
	}
	return u, report, nil
}

// Store stores changes of the use in the bucket, and updates the copy by changes of other processes. The use continues.
func (u *Use) Store(ctx context.Context) (Report, error) {
	dir, err := u.c.dir(u.workspace)
	if err != nil {
		return Report{}, err
	}
	return u.c.compare(ctx, u.workspace, dir, true)
}

// End ends a use and stores the changes since. After an error, the next use of the workspace on this host, or [Copies.Run], stores the
// rest. It may be called once.
func (u *Use) End(ctx context.Context) (Report, error) {
	if u.mark == nil {
		return Report{}, nil
	}
	report, err := u.Store(ctx)
	if err != nil || report.Held {
		u.mark.leave()
		return report, err
	}
	u.mark.remove()
	return report, nil
}

// Abandon ends a use that has changed nothing.
func (u *Use) Abandon() {
	if u.mark != nil {
		u.mark.remove()
	}
}

// Leave ends a use without storing anything: the next use does that.
func (u *Use) Leave() {
	if u.mark != nil {
		u.mark.leave()
	}
}

// Keep passes the use of a job to [Copies.Run], which stores its changes periodically and ends it when the job has ended.
func (u *Use) Keep() {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if u.c.kept == nil {
		u.c.kept = map[*Use]bool{}
	}
	u.c.kept[u] = true
}

// jobRuns reports whether a mark belongs to a job that is still running.
func (c *Copies) jobRuns(ctx context.Context, of markOf) bool {
	return of.Job != "" && c.JobRuns != nil && c.JobRuns(ctx, of.Account, of.Job)
}

// dir creates and returns the folder for the state of a workspace's copy.
func (c *Copies) dir(w schemas.Workspace) (string, error) {
	dir := filepath.Join(c.Dir, schemas.Namespace(w.Account, w.ID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", err)
	}
	return dir, nil
}

// compare synchronises copy and bucket. With out, a use of this process may have changed the copy; a dead process's use may have too.
func (c *Copies) compare(ctx context.Context, w schemas.Workspace, dir string, out bool) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	b, err := c.Bucket(ctx, w)
	if err != nil {
		return Report{}, err
	}
	defer b.Close()
	unlock, err := lock(ctx, dir)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	dead, live, err := deadMarks(dir)
	if err != nil {
		return Report{}, schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be read", err)
	}
	done := false
	defer func() {
		held := false
		for _, m := range dead {
			switch {
			case c.jobRuns(ctx, m.of): // it is for Run to keep
				m.leave()
			case done || held: // one says the same as many
				m.remove()
			default:
				held = true
				m.leave()
			}
		}
	}()
	m := providers.Mount{Namespace: schemas.Namespace(w.Account, w.ID)}
	files, err := c.Files.OpenWorkspace(ctx, w.Account, m)
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = files.Close() }() // all that was written through it was written when it said so
	placer, ok := files.(workspacefs.Placer)
	if !ok {
		return Report{}, schemas.OpErrorf(schemas.Unsupported, "files", "the provider's files cannot be replaced on a condition: S3 is not for it")
	}
	s := &syncing{c: c, ctx: ctx, files: files, placer: placer, bucket: b, dir: dir, busy: out || live}
	switch {
	case out || len(dead) > 0:
		s.use = ours
	case live:
		s.use = others
	}
	report, err := s.run()
	done = err == nil && !report.Held
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && schemas.CodeOf(err) != schemas.Unavailable {
		err = schemas.Wrap(schemas.Unavailable, "files", "the workspace's files could not be brought in or out in time", err)
	}
	return report, err
}

func (c *Copies) log() *slog.Logger {
	if c.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Log
}

// kindOf returns why a file is left out after an error; empty if the error does not concern a single name. It has no side effects.
func kindOf(err error) string {
	switch {
	case isProblem(err):
		return leftClash
	case errors.Is(err, errStale):
		return leftStale
	case bucket.OneObject(err):
		return leftObject
	}
	return ""
}

// isProblem reports whether an error concerns a single file name, so that the other files can continue.
func isProblem(err error) bool {
	switch workspacefs.CodeOf(err) {
	case workspacefs.ErrNotDirectory, workspacefs.ErrIsDirectory, workspacefs.ErrEscape, workspacefs.ErrLoop, workspacefs.ErrTooLong,
		workspacefs.ErrBadName, workspacefs.ErrHardLink, workspacefs.ErrDenied, workspacefs.ErrNotRegular, workspacefs.ErrNotEmpty:
		return true
	default:
		return false
	}
}
