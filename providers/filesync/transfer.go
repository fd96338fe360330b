package filesync

import (
	"errors"
	"io/fs"
	"path"

	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// bringIn copies the bucket's version of a file into the copy, unless the copy's file was changed since the scan.
func (s *syncing) bringIn(name string) error {
	if err := s.crash("bring in", name); err != nil {
		return err
	}
	was, err := s.files.Stat(s.ctx, name)
	f, there := s.foundAt(name)
	switch {
	case err == nil && was.IsDir():
		if err := s.files.Remove(s.ctx, name); err != nil { // an empty one makes room; a full one stays, and hides the file
			return workspacefs.ErrIsDirectory
		}
		was = nil
	case err == nil && (!there || was.Size() != f.size || f.stamp.Modified != 0 && was.ModTime().UnixNano() != f.stamp.Modified):
		return nil // a process writes it at this moment: the next comparison sees it
	case isGone(err):
		was = nil
	case err != nil:
		return err
	}
	in := arrival{s: s, name: name, was: was, sum: bucket.NewSum()}
	err = s.bucket.Part(s.ctx, name, "", 0, s.firstPart(name), in.first)
	if err == nil && in.beside != "" {
		err = in.rest()
	}
	if in.beside != "" {
		in.leave(err)
	}
	switch code := workspacefs.CodeOf(err); {
	case schemas.CodeOf(err) == schemas.NotFound:
		return nil // the list was old
	case errors.Is(err, errLarge):
		s.hide(leftLarge, name)
		return nil
	case code == workspacefs.ErrChanged || code == workspacefs.ErrExists:
		return nil // as above
	case schemas.CodeOf(err) == schemas.Denied:
		s.count(&s.refused)
		return err
	case err != nil:
		return err
	}
	s.known(name, in.object, in.sum.Hash())
	s.count(&s.report.In)
	return s.crash("brought in", name)
}

// firstPart returns how many bytes to read first: all of a small file by its listed size, so that it takes no more of the memory budget.
func (s *syncing) firstPart(name string) int {
	if o, listed := s.remote[name]; listed {
		return int(min(max(o.Size, 1), bucket.PartSize))
	}
	return bucket.PartSize
}

// arrival is a file that is being copied from the bucket.
type arrival struct {
	s      *syncing
	name   string
	was    fs.FileInfo // what it takes the place of; nil: nothing
	object bucket.Object
	sum    *bucket.Sum // of what has come
	beside string      // where a large file is until it is whole; empty: it is a small one
}

// errLarge is an object that has become larger than a file may be since it was listed.
var errLarge = errors.New("the file is larger than the limit")

// first stores the first part of a file, which is all of a small one.
func (a *arrival) first(data []byte, o bucket.Object) error {
	if a.object = o; o.Size > a.s.c.Limits.FileSize {
		return errLarge
	}
	_, _ = a.sum.Write(data) // it never fails
	if a.sum.Size() == o.Size {
		return a.put(data)
	}
	var err error
	if a.beside, err = arrive(a.s.dir); err != nil {
		return schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", err)
	}
	return a.s.files.Write(a.s.ctx, a.beside, data, workspacefs.Create, nil)
}

func (a *arrival) put(data []byte) error {
	if err := whole(a.object, a.sum); err != nil {
		return err
	}
	mode := workspacefs.Create
	if a.was != nil {
		mode = workspacefs.Replace
	}
	return a.s.files.Write(a.s.ctx, a.name, data, mode, a.was)
}

// errStale is a content that is neither what its metadata says nor what its ETag does: it was damaged, or another program has written it
// and kept the metadata.
var errStale = errors.New("the content is not what the metadata says")

func whole(o bucket.Object, sum *bucket.Sum) error {
	if o.Hash != "" && o.Hash != sum.Hash() && !sum.Is(o.ETag) {
		return errStale
	}
	return nil
}

// rest writes the other parts of a large file to a temporary file, and moves it to its place when it is complete, unless the file there
// was changed or created meanwhile.
func (a *arrival) rest() error {
	s := a.s
	for a.sum.Size() < a.object.Size {
		n := int(min(a.object.Size-a.sum.Size(), bucket.PartSize))
		err := s.bucket.Part(s.ctx, a.name, a.object.ETag, a.sum.Size(), n, func(data []byte, _ bucket.Object) error {
			if len(data) == 0 {
				return schemas.OpErrorf(schemas.Unavailable, "files", "%s ends early on S3: try later", schemas.Quotable(a.name))
			}
			_, _ = a.sum.Write(data) // it never fails
			return s.files.Write(s.ctx, a.beside, data, workspacefs.Append, nil)
		})
		if schemas.CodeOf(err) == schemas.Conflict {
			err = workspacefs.ErrChanged
		}
		if err != nil {
			return err
		}
	}
	if err := whole(a.object, a.sum); err != nil {
		return err
	}
	if dir := path.Dir(a.name); dir != "." {
		if err := s.files.MkdirAll(s.ctx, dir); err != nil {
			return err
		}
	}
	if err := s.crash("place", a.name); err != nil {
		return err
	}
	return s.placer.Place(s.ctx, a.beside, a.name, a.was)
}

// leave ends the use of the temporary file, and removes the file after an error.
func (a *arrival) leave(err error) {
	if err != nil {
		if left := a.s.files.Remove(a.s.ctx, a.beside); left != nil && !isGone(left) { // the next comparison removes it
			return
		}
	}
	arrived(a.s.dir, a.beside)
}

// takeOut writes the copy's version of a file to the bucket, as a new file or in place of the base's version.
func (s *syncing) takeOut(name string, a action) error {
	e := s.entryOf(name)
	if a == create {
		e = entry{}
	}
	o, err := s.write(name, e.ETag)
	switch {
	case isGone(err):
		return nil
	case errors.Is(err, bucket.ErrTorn):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said.group(leftChanged, name)
		return nil
	case schemas.CodeOf(err) == schemas.Conflict:
		return s.settle(name)
	case bucket.OneObject(err):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.said.group(leftRefused, name)
		return nil
	case err != nil:
		return err
	}
	if a == create && s.hadBase(name) {
		s.notify("%s was removed on S3 and changed here: it is kept", schemas.Quotable(name))
	}
	s.known(name, o, o.Hash)
	s.count(&s.report.Out)
	return s.crash("taken out", name)
}

func (s *syncing) hadBase(name string) bool { return s.entryOf(name).ETag != "" }

// write writes a file of the copy to the bucket, and tries again if the file was changed meanwhile.
func (s *syncing) write(name, etag string) (bucket.Object, error) {
	if err := s.crash("take out", name); err != nil {
		return bucket.Object{}, err
	}
	var o bucket.Object
	for try := 1; ; try++ {
		sum, size, err := hashFile(s.ctx, s.files, name, s.c.Limits.FileSize)
		if err != nil {
			return o, err
		}
		f, err := s.files.Open(s.ctx, name)
		if err != nil {
			return o, err
		}
		o, err = s.bucket.Put(s.ctx, name, etag, sum, f, size)
		_ = f.Close() // it was only read
		if !errors.Is(err, bucket.ErrTorn) || try == 2 {
			return o, err
		}
	}
}

// conflictName returns the name under which the copy's version of a file is kept beside the bucket's. It contains a hash of the content,
// so that a repetition makes the same file. The hash is at the end, so that no tool takes the file for one of its type.
func conflictName(name, digits string) string { return name + ".conflict-" + digits }

// settle resolves a file that both sides have changed. If the versions differ, the bucket's keeps the name and the copy's is kept beside
// it, on both sides.
func (s *syncing) settle(name string) error {
	const tries = 3
	for range tries {
		o, err := s.bucket.Head(s.ctx, name)
		if schemas.CodeOf(err) == schemas.NotFound {
			o, err = s.write(name, "")
			if schemas.CodeOf(err) == schemas.Conflict {
				continue
			}
			if isGone(err) || errors.Is(err, bucket.ErrTorn) {
				return nil
			}
			if err == nil {
				s.notify("%s was removed on S3 and changed here: it is kept", schemas.Quotable(name))
				s.known(name, o, o.Hash)
				s.count(&s.report.Out)
			}
			return err
		}
		if err != nil {
			return err
		}
		return s.settleWith(name, o)
	}
	return schemas.OpErrorf(schemas.Unavailable, "files", "%s is being changed and removed by another writer: try later", schemas.Quotable(name))
}

func (s *syncing) settleWith(name string, o bucket.Object) error {
	sum := bucket.NewSum()
	_, err := readInto(s.ctx, s.files, name, s.c.Limits.FileSize, sum)
	if isGone(err) {
		return s.bringIn(name)
	}
	if err != nil {
		return err
	}
	mine := sum.Hash()
	if equal, err := s.holds(o, sum); err != nil || equal {
		if err == nil {
			s.known(name, o, mine)
		}
		return err
	}
	if err := s.crash("set beside", name); err != nil {
		return err
	}
	beside, err := s.setBeside(name, mine)
	if err != nil {
		return err
	}
	s.notify("%s was changed by another writer too: theirs has the name, and the version of this workspace is %s",
		schemas.Quotable(name), schemas.Quotable(beside))
	if err := s.bringIn(name); err != nil {
		return err
	}
	kept, err := s.write(beside, "")
	switch {
	case isGone(err) || errors.Is(err, bucket.ErrTorn): // the process that has it open continues: the next comparison stores it
		return nil
	case schemas.CodeOf(err) == schemas.Conflict:
		return schemas.OpErrorf(schemas.Unavailable, "files", "%s cannot be stored: try later", schemas.Quotable(beside))
	case err != nil:
		return err
	}
	s.known(beside, kept, kept.Hash)
	s.count(&s.report.Out)
	return nil
}

// setBeside renames the copy's version of a file, whose hash is mine, to its conflict name and returns that. It does not replace a changed
// file of that name: the next name has more digits.
func (s *syncing) setBeside(name, mine string) (string, error) {
	for digits := 8; ; digits *= 2 {
		beside := conflictName(name, mine[:digits])
		if bucket.Problem(beside) != "" { // the name is too long for that
			dir, base := path.Split(name)
			beside = dir + conflictName(base[:min(len(base), 8)], mine[:digits])
		}
		err := s.placer.Place(s.ctx, name, beside, nil)
		if workspacefs.CodeOf(err) == workspacefs.ErrExists {
			had, _, readErr := hashFile(s.ctx, s.files, beside, s.c.Limits.FileSize)
			switch {
			case readErr == nil && had == mine: // it is kept already; what has the name is replaced by the bucket's version
				return beside, nil
			case digits < len(mine):
				continue
			}
		}
		if err != nil {
			return "", err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.local[beside] = s.local[name]
		delete(s.local, name)
		return beside, nil
	}
}

// holds reports whether a version in the bucket has the content of sum. It reads the object if neither the base nor the ETag decides.
func (s *syncing) holds(o bucket.Object, sum *bucket.Sum) (bool, error) {
	e := s.entryOf(o.Name)
	known := e.has(o)
	if known && e.Hash == sum.Hash() {
		return true, nil
	}
	if known || o.Size != sum.Size() { // nothing is moved for the sake of an object that cannot be brought in
		if _, _, err := s.bucket.Get(s.ctx, o.Name, o.ETag, 0, 1); bucket.OneObject(err) {
			return false, err
		}
		return false, nil
	}
	return s.bucket.Holds(s.ctx, o, sum, s.c.Limits.FileSize)
}
