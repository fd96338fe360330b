package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers/filesync"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// openInBucket opens the files of a workspace on S3 for an application. Codes: not_found, unsupported.
func (s *Worker) openInBucket(ctx context.Context, a schemas.AccountID, id schemas.WorkspaceID) (workspacefs.FS, error) {
	w, err := s.Specs.Workspace(ctx, a, id)
	if err != nil {
		return nil, fmt.Errorf("workspace of the files: %w", err)
	}
	if w.Storage == "" {
		return nil, schemas.OpErrorf(schemas.Unavailable, "workspace", "its files are no longer on S3: try again")
	}
	return s.BucketFiles(ctx, w)
}

// use is a call's use of a copy. One goroutine has it. The nil use is that of a call without a copy.
type use struct {
	copied  *filesync.Use // nil: it has ended
	notices []string
}

// takeOut writes out what the call has changed, and adds to its result what its client should know of the files.
func (u *use) takeOut(ctx context.Context, r *schemas.Result) {
	if u == nil || u.copied == nil {
		return
	}
	report, err := u.copied.End(ctx)
	u.copied = nil
	for _, n := range report.Notices {
		if !slices.Contains(u.notices, n) { // a workspace over its limits says so at both ends
			u.notices = append(u.notices, n)
		}
	}
	if err != nil {
		u.notices = append(u.notices, "not all files that this call has changed are on S3 yet: "+schemas.Public(err).Message+
			". They stay with the worker, and are stored by its next call in this workspace, or as soon as it can")
	}
	u.addNotices(r)
}

// addNotices adds the notices to a result.
func (u *use) addNotices(r *schemas.Result) {
	if u == nil || len(u.notices) == 0 {
		return
	}
	for _, n := range u.notices {
		r.Notices = append(r.Notices, "files on S3: "+n)
	}
	r.Text = strings.TrimRight(r.Text, "\n") + "\n\n[files on S3: " + strings.Join(u.notices, "; ") + "]"
}

// handOver lets the copies store what a job changes, until it has ended.
func (u *use) handOver(r *schemas.Result) {
	if u == nil || u.copied == nil {
		return
	}
	u.copied.Keep()
	u.copied = nil
	u.addNotices(r)
}

// JobRuns returns what [filesync.Copies] asks for jobs: whether one may still change files. One whose record cannot be read may.
func JobRuns(bus *streams.Bus) func(context.Context, schemas.AccountID, schemas.JobID) bool {
	jobs := lifecycle.OpenJobs(bus)
	return func(ctx context.Context, account schemas.AccountID, id schemas.JobID) bool {
		j, err := jobs.Get(ctx, schemas.Job{Account: account, ID: id}.Key())
		if err != nil {
			return schemas.CodeOf(err) != schemas.NotFound
		}
		return !j.Value.State.Final()
	}
}

// abandon ends a use in which nothing was started.
func (u *use) abandon() {
	if u != nil && u.copied != nil {
		u.copied.Abandon()
		u.copied = nil
	}
}

// leave ends a use whose end this execution does not know: the next use writes out what it has left.
func (u *use) leave() {
	if u != nil && u.copied != nil {
		u.copied.Leave()
		u.copied = nil
	}
}
