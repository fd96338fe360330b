package filesync

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// writers is how many copies [Copies.Run] writes out at the same time, and writersOfAccount how many of one account: an endpoint that
	// stalls has those of its account only.
	writers, writersOfAccount = 8, 2
	// longestRest is the longest rest of a copy whose files could not be written out several times.
	longestRest = 30 * time.Minute
)

var rest = wait.Backoff{First: sweepEvery, Most: longestRest} //nolint:gochecknoglobals // a constant

// errHeld is a workspace over its limits, whose files wait.
var errHeld = errors.New("the workspace is over its limits")

// errand is a task to store the changes of one copy.
type errand struct {
	copy    string // the name of its folder
	account schemas.AccountID
	do      func(context.Context) error
}

// writeBack runs the errands of [Copies.Run]. One goroutine collects and starts them.
type writeBack struct {
	c       *Copies
	pending map[string]errand // by copy
	running sync.WaitGroup

	mu     sync.Mutex
	busy   map[string]schemas.AccountID // copies that are being written out
	failed map[string]failure           // copies that could not be written out the last time
	turn   uint64
	served map[schemas.AccountID]uint64 // the last turn of an account
}

type failure struct {
	times int
	until time.Time // of its rest
}

func newWriteBack(c *Copies) *writeBack {
	return &writeBack{c: c, pending: map[string]errand{}, busy: map[string]schemas.AccountID{}, failed: map[string]failure{},
		served: map[schemas.AccountID]uint64{}}
}

// Run stores changes that dead processes have left and those of jobs, until ctx ends. It returns nil.
func (c *Copies) Run(ctx context.Context) error {
	w := newWriteBack(c)
	for n := 0; ; n = (n + 1) % int(sweepEvery/aliveEvery) {
		if n == 0 {
			w.sweep(ctx)
		}
		w.keep(ctx, n == 0)
		w.start(ctx, time.Now())
		if !wait.Sleep(ctx, aliveEvery) {
			w.running.Wait()
			c.mu.Lock()
			for u := range c.kept { // their jobs end with this process, or are gone on with by another
				u.Leave()
			}
			clear(c.kept)
			c.mu.Unlock()
			return nil
		}
	}
}

// choose returns the errands to start now: none for a busy copy, and by accounts in turn, beginning with the one that was served longest
// ago. It has no side effects.
func choose(due []errand, busy map[string]schemas.AccountID, served map[schemas.AccountID]uint64) []errand {
	has := map[schemas.AccountID]int{}
	for _, a := range busy {
		has[a]++
	}
	by := map[schemas.AccountID][]errand{}
	for _, e := range due {
		if _, is := busy[e.copy]; !is {
			by[e.account] = append(by[e.account], e)
		}
	}
	accounts := slices.SortedFunc(maps.Keys(by), func(a, b schemas.AccountID) int {
		return cmp.Or(cmp.Compare(served[a], served[b]), cmp.Compare(a, b))
	})
	var chosen []errand
	for n := range writersOfAccount {
		for _, a := range accounts {
			if n < len(by[a]) && has[a] < writersOfAccount && len(busy)+len(chosen) < writers {
				chosen = append(chosen, by[a][n])
				has[a]++
			}
		}
	}
	return chosen
}

// start starts errands that are due.
func (w *writeBack) start(ctx context.Context, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []errand
	for _, name := range slices.Sorted(maps.Keys(w.pending)) {
		if now.Before(w.failed[name].until) {
			delete(w.pending, name) // what is still to be done then is found again
			continue
		}
		due = append(due, w.pending[name])
	}
	for _, e := range choose(due, w.busy, w.served) {
		delete(w.pending, e.copy)
		w.turn++
		w.busy[e.copy], w.served[e.account] = e.account, w.turn
		w.running.Go(func() { w.finish(ctx, e, e.do(ctx)) })
	}
	if len(w.busy) == 0 { // no turns are left to be kept
		clear(w.served)
	}
}

func (w *writeBack) finish(ctx context.Context, e errand, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.busy, e.copy)
	if err == nil || ctx.Err() != nil {
		delete(w.failed, e.copy)
		return
	}
	n := w.failed[e.copy].times + 1
	w.failed[e.copy] = failure{n, time.Now().Add(rest.After(n))}
}

func (w *writeBack) isBusy(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.busy[name]
	return is
}

// keep collects errands for the kept uses of jobs: to end those whose job has ended and, with store, to store the others.
func (w *writeBack) keep(ctx context.Context, store bool) {
	c := w.c
	c.mu.Lock()
	uses := slices.Collect(maps.Keys(c.kept))
	c.mu.Unlock()
	for _, u := range uses {
		e := errand{copy: schemas.Namespace(u.workspace.Account, u.workspace.ID), account: u.workspace.Account}
		if w.isBusy(e.copy) {
			continue
		}
		lives := u.mark != nil && c.jobRuns(ctx, u.mark.of)
		switch {
		case ctx.Err() != nil:
			return
		case !lives:
			e.do = func(ctx context.Context) error {
				c.mu.Lock()
				delete(c.kept, u)
				c.mu.Unlock()
				report, err := u.End(ctx) // after an error the mark is one of the dead
				return w.kept(ctx, u, report, err)
			}
		case store:
			e.do = func(ctx context.Context) error {
				report, err := u.Store(ctx)
				return w.kept(ctx, u, report, err)
			}
		default:
			continue
		}
		w.pending[e.copy] = e
	}
}

func (w *writeBack) kept(ctx context.Context, u *Use, r Report, err error) error {
	if err == nil && r.Held {
		err = errHeld
	}
	if err != nil && ctx.Err() == nil {
		w.c.log().Warn("files of a job not written to the bucket, retrying", "workspace", u.workspace.ID, "error", err)
	}
	return err
}

// sweep searches all copies for marks of dead processes, and collects errands for them.
func (w *writeBack) sweep(ctx context.Context) {
	c := w.c
	folders, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log().Warn("state of copies not readable", "error", err)
		return
	}
	there := map[string]bool{}
	for _, f := range folders {
		if ctx.Err() != nil {
			return
		}
		there[f.Name()] = true
		if w.isBusy(f.Name()) {
			continue
		}
		dir := filepath.Join(c.Dir, f.Name())
		var of *markOf
		for _, m := range deadOnes(dir) {
			if m.of.Workspace == "" { // it died while it made its mark
				m.remove()
				continue
			}
			if w.adopt(ctx, m) {
				continue
			}
			of = &m.of
			m.leave()
		}
		if of != nil {
			w.pending[f.Name()] = errand{f.Name(), of.Account, func(ctx context.Context) error { return c.recover(ctx, dir, *of) }}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.failed, func(name string, _ failure) bool { return !there[name] })
}

// adopt keeps the use of a job that is still running though the process that kept it has ended. If that cannot be found out now it returns
// true and leaves the mark to the next sweep.
func (w *writeBack) adopt(ctx context.Context, m *mark) bool {
	if !w.c.jobRuns(ctx, m.of) {
		return false
	}
	workspace, err := w.c.Workspace(ctx, m.of.Account, m.of.Workspace)
	if schemas.CodeOf(err) == schemas.NotFound || err == nil && workspace.Storage == "" {
		return false
	}
	if err != nil {
		m.leave()
		return true
	}
	(&Use{c: w.c, workspace: workspace, mark: m}).Keep()
	return true
}

// recover stores the changes that dead processes have left in a copy.
func (c *Copies) recover(ctx context.Context, dir string, of markOf) error {
	w, err := c.Workspace(ctx, of.Account, of.Workspace)
	if schemas.CodeOf(err) == schemas.NotFound || err == nil && w.Storage == "" {
		c.log().Warn("files left in the copy of a workspace that is not on S3 any more", "workspace", of.Workspace)
		for _, m := range deadOnes(dir) {
			m.remove()
		}
		return nil
	}
	var report Report
	if err == nil {
		report, err = c.compare(ctx, w, dir, false)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.log().Warn("files of an interrupted call not written to the bucket, retrying", "workspace", of.Workspace, "error", err)
	case report.Held:
		c.log().Warn("files of a workspace over its limits not written to the bucket, retrying", "workspace", of.Workspace)
		err = errHeld
	default:
		c.log().Info("files of an interrupted call written to the bucket", "workspace", of.Workspace,
			"out", report.Out, "removed", report.Removed, "notices", report.Notices)
	}
	return err
}
