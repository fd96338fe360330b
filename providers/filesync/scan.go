package filesync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const (
	// temporary is what the names of files begin with that are on their way in. They lie at the root of the copy; see [syncing.arrive].
	temporary = ".sandjet-s3-"
	// young is how long a file must have been left alone for its times to distinguish it from a later version.
	young = 2 * time.Second
	// namesBytes is what the names of a copy may take in memory while they are read.
	namesBytes = 64 << 20
)

// Kinds of files that are left out, as they are worded.
const (
	leftLink    = "left out, for S3 has no symbolic links"
	leftDevice  = "left out, for S3 has only files"
	leftName    = "left out, for the name cannot be on both sides"
	leftLarge   = "left out, for the file is larger than the limit of one file on S3"
	leftMany    = "left out, for the workspace is at its limit of files or bytes on S3"
	leftDenied  = "left out, for it cannot be read"
	leftClash   = "left out, for another file has its name as a folder, or the file system does not take it"
	leftObject  = "left out, for the service does not give it or take its removal: it is archived, or a policy or its encryption keeps it"
	leftNoETag  = "read again by each call, for the service gives no ETag for it: what is changed or removed here does not replace it there"
	leftStale   = "left out, for its content on S3 is not what its metadata sandjet-sha256 says: write it again, without that metadata"
	leftRefused = "not stored, for the service does not take it: a policy keeps it, or its name is too long"
	leftChanged = "not stored yet, for it is being changed: it is stored after the next call"
)

// A workspace that is over its limits.
var (
	errOverCopy   = errors.New("the copy is over the limits")
	errOverBucket = errors.New("the bucket is over the limits")
)

// found is a file of the copy.
type found struct {
	size  int64
	stamp stamp
	hash  string // where it was read
}

// scan lists the files of the copy. Files that cannot be stored are put into hidden and named in the report.
func (s *syncing) scan() error {
	s.local, s.hidden = map[string]found{}, map[string]bool{}
	arriving, err := arrivals(s.dir)
	if err != nil {
		return schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be read", err)
	}
	var leftovers []string
	limit := workspacefs.Bounds{Entries: s.c.Limits.entries(), Bytes: namesBytes}
	err = workspacefs.Walk(s.ctx, s.files, ".", limit, func(name string, e workspacefs.Entry) error {
		kind := ""
		switch {
		case e.Type.IsDir() && name == schemas.UploadsFolder: // what is there has not arrived yet
			return fs.SkipDir
		case e.Type.IsDir():
			return nil
		case arriving[name]:
			leftovers = append(leftovers, name)
			return nil
		case e.Type&fs.ModeSymlink != 0:
			kind = leftLink
		case !e.Type.IsRegular():
			kind = leftDevice
		case bucket.Problem(name) != "":
			kind = leftName
		}
		if kind != "" {
			s.hide(kind, name)
			return nil
		}
		i, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if i.Size > s.c.Limits.FileSize {
			s.hide(leftLarge, name)
			return nil
		}
		s.local[name] = found{size: i.Size, stamp: stampOf(i)}
		return nil
	})
	if workspacefs.CodeOf(err) == workspacefs.ErrTooMany {
		return errOverCopy
	}
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	for _, name := range leftovers {
		if err := s.files.Remove(s.ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what was being brought in: %w", err)
		}
	}
	for name := range arriving {
		arrived(s.dir, name)
	}
	return nil
}

// hide leaves a file out of the comparison, and names it in the report.
func (s *syncing) hide(kind, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[name] = true
	s.left.group(kind, name)
}

func stampOf(i workspacefs.Info) stamp {
	if i.Changed.IsZero() {
		return stamp{}
	}
	return stamp{Modified: i.ModTime.UnixNano(), Changed: i.Changed.UnixNano()}
}

// settled returns the stamp by which an unchanged file can be recognised later; zero if it was changed too recently.
func (s *syncing) settled(st stamp) stamp {
	if st.Changed == 0 || s.began.Sub(time.Unix(0, st.Changed)) < young {
		return stamp{}
	}
	return st
}

// localState compares a file of the copy with the base, and reads its content if its stamp does not suffice.
func (s *syncing) localState(name string) (state, error) {
	f, there := s.local[name]
	if !there {
		return absent, nil
	}
	e, based := s.base.Files[name]
	if !based || f.size != e.Size {
		return changed, nil
	}
	if e.Stamp != (stamp{}) && e.Stamp == f.stamp {
		return same, nil
	}
	if err := s.read(name, &f); err != nil {
		if isGone(err) {
			return absent, nil
		}
		return absent, err
	}
	if f.hash != e.Hash {
		return changed, nil
	}
	e.Stamp = s.settled(f.stamp)
	s.base.Files[name] = e
	return same, nil
}

func isGone(err error) bool { return workspacefs.CodeOf(err) == workspacefs.ErrNotFound }

// read reads a file of the copy and records its hash.
func (s *syncing) read(name string, f *found) error {
	h, n, err := hashFile(s.ctx, s.files, name, s.c.Limits.FileSize)
	if err != nil {
		return err
	}
	f.hash, f.size = h, n
	s.local[name] = *f
	return nil
}

// hashFile returns the hash and size of a file of at most limit bytes.
func hashFile(ctx context.Context, files workspacefs.FS, name string, limit int64) (string, int64, error) {
	h := sha256.New()
	n, err := readInto(ctx, files, name, limit, h)
	return hex.EncodeToString(h.Sum(nil)), n, err
}

func readInto(ctx context.Context, files workspacefs.FS, name string, limit int64, into io.Writer) (int64, error) {
	f, err := files.Open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	n, err := io.Copy(into, io.LimitReader(f, limit+1))
	if err != nil {
		return 0, fmt.Errorf("read %q: %w", name, err)
	}
	if n > limit {
		return 0, workspacefs.ErrTooLarge
	}
	return n, nil
}

// list lists the files in the bucket. Objects whose key is no valid file name are left out and named in the report.
func (s *syncing) list() error {
	s.remote = map[string]bucket.Object{}
	files, bytes := 0, int64(0)
	err := s.bucket.List(s.ctx, "", func(o bucket.Object) error {
		switch {
		case strings.HasPrefix(o.Name, schemas.UploadsFolder+"/"):
			return nil
		case o.Problem != "":
			s.left.group(leftName, o.Name)
			return nil
		case o.Size > s.c.Limits.FileSize:
			s.hide(leftLarge, o.Name)
			return nil
		}
		files, bytes = files+1, bytes+o.Size
		if files > s.c.Limits.Files || bytes > s.c.Limits.Bytes {
			return errOverBucket
		}
		if o.ETag == "" {
			s.left.group(leftNoETag, o.Name)
		}
		s.remote[o.Name] = o
		return nil
	})
	s.inBucket, s.bytes = files, bytes
	return err
}

// clashes leaves out files of the bucket whose names are also folders of other files, which a file system cannot have.
func (s *syncing) clashes() {
	for name := range s.remote {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, both := s.remote[dir]; both && !s.hidden[dir] {
				s.hide(leftClash, dir)
			}
		}
	}
}
