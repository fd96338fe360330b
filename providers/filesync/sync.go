package filesync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// syncing is one comparison of a copy with its bucket. One goroutine uses it, except for transfers, which run in parallel.
type syncing struct {
	c      *Copies
	ctx    context.Context //nolint:containedctx // a comparison is one call
	files  workspacefs.FS
	placer workspacefs.Placer // of files
	bucket *bucket.Bucket
	dir    string
	use    usage
	busy   bool // the copy is in use
	began  time.Time

	local  map[string]found
	remote map[string]bucket.Object
	hidden map[string]bool // names that are left alone on both sides

	mu       sync.Mutex
	base     base
	left     collected // of files that are left out; said again only when it is otherwise than the last time
	said     collected
	report   Report
	inBucket int   // files in the bucket
	bytes    int64 // of these
	refused  int   // files that the service did not let be read
}

// run compares, and saves the resulting base, also after an error.
func (s *syncing) run() (Report, error) {
	s.began = time.Now()
	root, err := s.files.Stat(s.ctx, ".")
	if err != nil {
		return Report{}, fmt.Errorf("look at the copy: %w", err)
	}
	var lost error
	if s.base, lost = loadBase(s.dir, s.bucket.Where(), rootOf(root)); lost != nil {
		s.c.log().Warn("base of a copy not readable: nothing is removed on either side", "error", lost)
	}
	if err = s.scan(); err == nil && s.base.Where != s.bucket.Where() {
		err = s.leavePlace()
	}
	if err == nil {
		err = s.list()
	}
	switch {
	case errors.Is(err, errOverCopy):
		s.hold("the copy has more than %d files and folders (--s3-files is %d): delete some, or keep them outside of the workspace",
			s.c.Limits.entries(), s.c.Limits.Files)
		return s.report, nil
	case errors.Is(err, errOverBucket) && len(s.base.Files) == 0: // there is nothing that a call could remove
		return Report{}, schemas.OpErrorf(schemas.Unsupported, "files",
			"the workspace has more on S3 than a copy may: the limits are %d files (--s3-files) and %d MiB (--s3-bytes)",
			s.c.Limits.Files, s.c.Limits.Bytes>>20)
	case errors.Is(err, errOverBucket):
		s.hold("it has more than %d files (--s3-files) or %d MiB (--s3-bytes): delete some, here or with another program. Removals are "+
			"written out", s.c.Limits.Files, s.c.Limits.Bytes>>20)
		err = s.removals()
	case err != nil:
		return Report{}, err
	default:
		s.clashes()
		err = s.apply()
	}
	left := s.left.groups()
	if text := strings.Join(left, "\n"); err == nil && text != s.base.Left {
		s.base.Left = text
	} else {
		left = nil
	}
	if saveErr := s.base.save(s.dir); saveErr != nil {
		err = errors.Join(err, schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", saveErr))
	}
	s.report.Notices = bound(append(append(s.said.said, s.said.groups()...), left...))
	return s.report, err
}

// leavePlace empties a copy whose workspace has moved to another location on S3 (bucket, prefix or endpoint). The copy's files belong to
// the former location and must not get into the new one. They are removed only if all of them are stored there. Codes: unsupported (some
// are not), unavailable.
func (s *syncing) leavePlace() error {
	if s.busy {
		return schemas.OpErrorf(schemas.Unavailable, "files",
			"the workspace is at another place on S3 than before, and a call or job still uses its files of the former place: try later")
	}
	left := slices.Collect(maps.Keys(s.hidden))
	for name := range s.local {
		switch is, err := s.localState(name); {
		case err != nil && !isProblem(err):
			return err
		case err != nil || is == changed:
			left = append(left, name)
		}
	}
	for name := range s.base.Files {
		if _, there := s.local[name]; !there && s.use == ours { // its removal was not written out
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		var c collected
		for _, name := range left {
			c.group("not stored there", name)
		}
		return schemas.OpErrorf(schemas.Unsupported, "files", "the workspace is at another place on S3 than before, and its copy on this host has "+
			"changes that the former place does not have (%s): name the former bucket, prefix and endpoint again, have a call store or remove "+
			"them, and then name the new ones", c.groups()[0])
	}
	for _, name := range slices.Sorted(maps.Keys(s.local)) {
		if err := s.crash("drop copy", name); err != nil {
			return err
		}
		ok, err := s.untouched(name)
		if err == nil && !ok {
			return schemas.OpErrorf(schemas.Unavailable, "files", "%s is being changed: try later", schemas.Quotable(name))
		}
		if err == nil {
			err = s.files.Remove(s.ctx, name)
		}
		if err != nil && !isGone(err) {
			return fmt.Errorf("remove the copy of the former place: %w", err)
		}
		delete(s.local, name)
		s.removeEmpty(path.Dir(name))
	}
	if len(s.base.Files) > 0 {
		s.notify("the workspace is at another place on S3 than before: its files of the former place are stored there, and no longer on this host")
	}
	s.base = emptyBase(s.bucket.Where(), s.base.Root)
	if err := s.base.save(s.dir); err != nil { // before anything of the new place comes in
		return schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", err)
	}
	return nil
}

// hold records that the workspace is over its limits, with a notice in each report.
func (s *syncing) hold(format string, args ...any) {
	s.report.Held = true
	s.notify("nothing is brought in from S3 or stored there while the workspace is over its limits: "+format, args...)
	s.report.Notices = s.said.said
}

// removals stores only the removals of a use, to bring a bucket below its limits. Each one is conditional on the base's version, so that
// no list is needed.
func (s *syncing) removals() error {
	var gone []string
	for name, e := range s.base.Files {
		if _, there := s.local[name]; !there && !s.hidden[name] && s.use == ours && e.ETag != "" {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return s.each(gone, transfers, func(name string) error { return s.dropObject(name, dropObject) })
}

// apply carries out the action for each file. Removals come first, so that files can be replaced by folders and vice versa.
func (s *syncing) apply() error {
	names := slices.Collect(maps.Keys(s.local))
	for name := range s.remote {
		names = append(names, name)
	}
	for name := range s.base.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	todo := map[action][]string{}
	for _, name := range slices.Compact(names) {
		if s.hidden[name] {
			continue
		}
		a, err := s.judge(name)
		if err != nil {
			if isProblem(err) {
				s.hide(leftDenied, name)
				continue
			}
			return err
		}
		if a == create && !s.room(s.local[name].size) {
			s.said.group(leftMany, name)
			continue
		}
		todo[a] = append(todo[a], name)
	}
	for _, name := range todo[forget] {
		delete(s.base.Files, name)
	}
	for _, step := range []struct {
		actions []action
		do      func(string, action) error
		at      int
	}{
		{[]action{dropCopy}, s.dropCopy, 1},
		{[]action{dropObject}, s.dropObject, transfers},
		{[]action{settle}, func(name string, _ action) error { return s.settle(name) }, 1},
		{[]action{bringIn}, func(name string, _ action) error { return s.bringIn(name) }, transfers},
		{[]action{replace, create}, s.takeOut, transfers},
	} {
		for _, a := range step.actions {
			if err := s.each(todo[a], step.at, func(name string) error { return step.do(name, a) }); err != nil {
				return err
			}
		}
	}
	return s.mayRead()
}

// mayRead returns an error if the credentials can list files but not read any, so that the copy would look as if they did not exist. It
// reads a name that does not exist: with permission to read, the answer is that there is no such file. Code: denied.
func (s *syncing) mayRead() error {
	if s.use == ours || s.refused == 0 || s.report.In > 0 {
		return nil
	}
	if _, _, err := s.bucket.Get(s.ctx, temporary+"none", "", 0, 1); schemas.CodeOf(err) != schemas.Denied {
		return nil
	}
	return schemas.OpErrorf(schemas.Denied, "files", "the credentials of the workspace on S3 may list its %d files and read none of them: "+
		"allow them s3:GetObject below its prefix", len(s.remote))
}

// each calls do for all names, at most most at a time, and stops after the first error.
func (s *syncing) each(names []string, most int, do func(string) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	slots := make(chan struct{}, most)
	failed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return first != nil
	}
	for _, name := range names {
		slots <- struct{}{}
		if failed() || s.ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			err := do(name)
			if kind := kindOf(err); kind != "" {
				s.hide(kind, name)
				err = nil
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	if first == nil && s.ctx.Err() != nil {
		first = context.Cause(s.ctx)
	}
	return first
}

// judge decides on the action for a file by its states on both sides.
func (s *syncing) judge(name string) (action, error) {
	local, err := s.localState(name)
	if err != nil {
		return nothing, err
	}
	e, based := s.base.Files[name]
	remote := absent
	if o, there := s.remote[name]; there {
		remote = changed
		if based && e.has(o) {
			remote = same
		}
	}
	return decide(based, local, remote, s.use), nil
}

// crash lets tests end a comparison at this point, as a crash would.
func (s *syncing) crash(what, name string) error {
	if s.c.at == nil {
		return nil
	}
	return s.c.at(what, name)
}

// known records in the base a version that copy and bucket both have.
func (s *syncing) known(name string, o bucket.Object, hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base.Files[name] = entry{ETag: o.ETag, Hash: hash, Size: o.Size}
}

func (s *syncing) unknown(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.base.Files, name)
}

func (s *syncing) entryOf(name string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base.Files[name]
}

func (s *syncing) foundAt(name string) (found, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.local[name]
	return f, ok
}

func (s *syncing) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

func (s *syncing) notify(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.say(format, args...)
}

// dropCopy removes a file from the copy that is gone from the bucket, and then its empty folders. Because a list may be outdated it asks
// the bucket for this file first.
func (s *syncing) dropCopy(name string, _ action) error {
	switch o, err := s.bucket.Head(s.ctx, name); {
	case err == nil && s.entryOf(name).has(o):
		return nil
	case err == nil:
		return s.bringIn(name)
	case schemas.CodeOf(err) != schemas.NotFound:
		return err
	}
	if err := s.crash("drop copy", name); err != nil {
		return err
	}
	if ok, err := s.untouched(name); err != nil || !ok {
		return err
	}
	if err := s.files.Remove(s.ctx, name); err != nil && !isGone(err) {
		return err
	}
	s.unknown(name)
	delete(s.local, name)
	s.count(&s.report.Removed)
	s.removeEmpty(path.Dir(name))
	return nil
}

// removeEmpty removes a folder and its parents as long as they are empty.
func (s *syncing) removeEmpty(dir string) {
	for ; dir != "." && s.files.Remove(s.ctx, dir) == nil; dir = path.Dir(dir) {
	}
}

// untouched reports whether a file of the copy is unchanged since the scan.
func (s *syncing) untouched(name string) (bool, error) {
	f, _ := s.foundAt(name)
	i, err := s.files.Stat(s.ctx, name)
	if isGone(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	timely := f.stamp.Modified == 0 || i.ModTime().UnixNano() == f.stamp.Modified
	return i.Mode().IsRegular() && i.Size() == f.size && timely, nil
}

// dropObject removes a file from the bucket that is gone from the copy. Because an unreadable folder hides its files it checks the copy
// for this file first.
func (s *syncing) dropObject(name string, _ action) error {
	_, there := s.files.Stat(s.ctx, name)
	if code := workspacefs.CodeOf(there); code != workspacefs.ErrNotFound && code != workspacefs.ErrNotDirectory {
		return there // nil: it exists now, or by way of a link
	}
	if err := s.crash("drop object", name); err != nil {
		return err
	}
	err := s.bucket.Remove(s.ctx, name, s.entryOf(name).ETag)
	if schemas.CodeOf(err) == schemas.Conflict {
		s.notify("%s was removed here and changed on S3: that of S3 is kept", schemas.Quotable(name))
		if s.report.Held {
			return nil
		}
		return s.bringIn(name)
	}
	if err != nil {
		return err
	}
	s.unknown(name)
	s.count(&s.report.Removed)
	return nil
}

// room reserves room for a new file in the bucket; false if the limits are reached.
func (s *syncing) room(size int64) bool {
	if s.inBucket >= s.c.Limits.Files || s.bytes+size > s.c.Limits.Bytes {
		return false
	}
	s.inBucket, s.bytes = s.inBucket+1, s.bytes+size
	return true
}
