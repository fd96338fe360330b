package filesync

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

const (
	usesFolder = "uses"
	lockFile   = "lock"
	maxMark    = 4 << 10
)

// mark is a file that records a use of a copy. The process of the use holds a lock on it.
type mark struct {
	file *os.File
	// of is what the mark is of; the zero value where it cannot be read.
	of markOf
}

type markOf struct {
	Account   schemas.AccountID   `json:"account"`
	Workspace schemas.WorkspaceID `json:"workspace"`
	// Job is set where the use is that of a job, which may continue when this process is gone.
	Job schemas.JobID `json:"job,omitempty"`
}

// newMark creates and locks a mark, durably.
func newMark(dir string, of markOf) (*mark, error) {
	uses := filepath.Join(dir, usesFolder)
	if err := os.MkdirAll(uses, 0o700); err != nil {
		return nil, err
	}
	data, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(uses, rand.Text()), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	m := &mark{file: f, of: of}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil { // who looks for the dead may have taken it before it was locked
		_, err = os.Stat(f.Name())
	}
	if err != nil { // nothing was done yet that the mark could be needed for
		m.remove()
		return nil, err
	}
	return m, nil
}

// remove ends a use whose changes are all stored.
func (m *mark) remove() {
	_ = os.Remove(m.file.Name()) // while it is locked: another process finds it gone or in use
	m.leave()
}

// leave ends a use with changes that are not stored: its mark stays, without a lock, as that of a dead process.
func (m *mark) leave() { _ = m.file.Close() }

// deadMarks locks and returns the marks in a folder whose processes have ended. Live reports that there are others.
func deadMarks(dir string) (dead []*mark, live bool, err error) {
	names, err := os.ReadDir(filepath.Join(dir, usesFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	for _, e := range names {
		if m := takeMark(filepath.Join(dir, usesFolder, e.Name())); m != nil {
			dead = append(dead, m)
		} else {
			live = true
		}
	}
	return dead, live, err
}

// takeMark locks and returns a mark; nil if a process has locked it, or it is gone.
func takeMark(name string) *mark {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return nil
	}
	if _, err := os.Stat(name); err != nil { // it was removed before the lock was ours
		_ = f.Close()
		return nil
	}
	m := &mark{file: f}
	data := make([]byte, maxMark)
	n, _ := f.ReadAt(data, 0)
	if of, err := decodeMark(data[:n]); err == nil {
		m.of = of
	}
	return m
}

// decodeMark parses the content of a mark. If the process died while writing the mark it is an error: the use had not begun.
func decodeMark(data []byte) (of markOf, err error) {
	if err := json.Unmarshal(data, &of); err != nil {
		return markOf{}, err
	}
	if err := errors.Join(of.Account.Validate(), of.Workspace.Validate()); err != nil {
		return markOf{}, err
	}
	if of.Job != "" && of.Job.Validate() != nil {
		return markOf{}, of.Job.Validate()
	}
	return of, nil
}

// lock locks a copy for a comparison: no other process or goroutine compares it, or changes it by this package, until unlock is called. It
// waits until ctx ends, at most lockWithin. Code: unavailable.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "files", "the state of the workspace's copy cannot be written", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWithin)
	defer cancel()
	const often = 20 * time.Millisecond
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		if !wait.Sleep(ctx, often) {
			_ = f.Close()
			return nil, schemas.OpErrorf(schemas.Unavailable, "files", "another call is bringing the workspace's files in or out: try later")
		}
	}
	return func() { _ = f.Close() }, nil
}

// deadOnes returns the marks of dead processes that can be locked now; it ignores errors.
func deadOnes(dir string) []*mark {
	dead, live, err := deadMarks(dir)
	_, _ = live, err // what cannot be read now may be readable the next time
	return dead
}
