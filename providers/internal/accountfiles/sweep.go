//go:build unix

package accountfiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// Folder is a directory with one folder per workspace. All fields but Holders and Gone are required.
type Folder struct {
	Dir string
	Log *slog.Logger
	// Lock prevents other goroutines of this process from creating the folder of a workspace, until unlock is called.
	Lock func(namespace string) (unlock func())
	// Mine reports whether a folder is still as it was created for an account: an operator may have replaced it, or given it to another
	// user.
	Mine func(info fs.FileInfo, a schemas.AccountID) bool
	// Holders returns the workspaces used by sandboxes for which no process has called [Folder.Occupy], such as sandboxes that outlive
	// their process. A sandbox that is created meanwhile must be occupied until Holders contains it. Nil: there are none.
	Holders func(ctx context.Context) (map[string]bool, error)
	// Gone is called when the folder of a workspace was renamed for removal. Nil: it is not called.
	Gone func(namespace string)
}

// Names beside the folders of workspaces. No workspace can have such a name.
const (
	ownersDir    = ".owners"   // a file per workspace with its account; not visible in sandboxes
	absentSuffix = ".absent"   // suffix of the file with the time for which the account was found removed
	tempPrefix   = ".new-"     // prefix of a temporary file there
	goingPrefix  = ".removed-" // prefix of the directory of a workspace that is being removed
)

// tempKept is the age at which a temporary file is removed: far longer than writing one takes.
const tempKept = 24 * time.Hour

// owner is the content of an owner file. Every box that uses the workspace, in any process, holds a shared lock on the file; removing the
// workspace needs an exclusive lock. The file is never replaced, so that all lock the same one.
type owner struct {
	Account schemas.AccountID `json:"account"`
}

// absence is for how long the account of a workspace was found removed. It is a sum of observed intervals and not a date, so that a wrong
// clock cannot make it longer and time without sweeps does not count.
type absence struct {
	Seconds int64 `json:"seconds"`
}

// verdict is the decision of a sweep about the files of a workspace.
type verdict int

const (
	leaveFiles  verdict = iota // the state of the account is unknown
	forgetMark                 // the account exists; a mark of its absence is removed
	keepMark                   // the account is removed, but not for long enough
	removeFiles                // the account was found removed for long enough
)

// judge decides about the files of an account. Before is for how long it was found removed until the last sweep, passed the time since
// then. It has no side effects.
func judge(removed bool, err error, before, passed time.Duration) (absent time.Duration, v verdict) {
	switch {
	case err != nil:
		return before, leaveFiles
	case !removed:
		return 0, forgetMark
	}
	absent = max(before, 0) + max(passed, 0)
	if absent < providers.WorkspacesKept {
		return absent, keepMark
	}
	return absent, removeFiles
}

func (f *Folder) ownerFile(namespace string) string {
	return filepath.Join(f.Dir, ownersDir, namespace)
}

func (f *Folder) at(name string) string { return filepath.Join(f.Dir, name) }

// Attribute records on the disk which account a workspace belongs to. An error is only logged, so as not to stop a tenant who may be about
// to free space: the files then stay when the account is removed, unless the workspace is opened again.
func (f *Folder) Attribute(account schemas.AccountID, namespace string) {
	path := f.ownerFile(namespace)
	if _, err := os.Lstat(path); err == nil {
		return
	}
	if err := writeOwner(path, account); err != nil {
		f.Log.Debug("owner of a workspace not noted, its files stay when the account is removed", "account", account, "error", err)
	}
}

// writeOwner creates an owner file atomically. If several processes do so at once, one file wins.
func writeOwner(path string, account schemas.AccountID) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(owner{Account: account})
	if err != nil {
		return err
	}
	temp, err := writeTemp(path, data)
	if err != nil {
		return err
	}
	defer os.Remove(temp) //nolint:errcheck // it is linked or of no use
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// writeTemp writes data to a new file beside path.
func writeTemp(path string, data []byte) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"*")
	if err != nil {
		return "", err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Occupy marks a workspace as used by a box until the file is closed, for all processes that share the directory. It returns nil if that
// cannot be recorded, as on a full disk or a file system without locks. Code: unavailable, the workspace is being removed.
func (f *Folder) Occupy(namespace string) (*os.File, error) {
	file, err := os.Open(f.ownerFile(namespace))
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // as said
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil && !linked(file) {
		err = unix.EWOULDBLOCK
	}
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, schemas.OpErrorf(schemas.Unavailable, "open workspace", "the workspace's files are being removed with their account: try again")
	}
	return nil, nil //nolint:nilnil // as said
}

// linked reports whether an open file still has a name.
func linked(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0
}

// Open makes the folders of workspaces with mk, which also calls [Folder.Attribute], and returns open files whose locks keep the
// workspaces from being removed: see [CloseAll].
func (f *Folder) Open(mounts []providers.Mount, mk func(namespace string) error) (occupied []*os.File, err error) {
	for _, m := range mounts {
		var file *os.File
		const tries = 2 // a folder may be removed between its creation and its lock
		for i := 0; i < tries && file == nil && err == nil; i++ {
			if err = mk(m.Namespace); err == nil {
				file, err = f.Occupy(m.Namespace)
			}
		}
		if file != nil {
			occupied = append(occupied, file)
			err = mk(m.Namespace)
		}
		if err != nil {
			CloseAll(occupied)
			return nil, err
		}
	}
	return occupied, nil
}

// CloseAll closes the files that [Folder.Open] returned, which releases their locks.
func CloseAll(occupied []*os.File) {
	for _, file := range occupied {
		_ = file.Close() // it was opened only for its lock
	}
}

// Sweep implements SweepWorkspaces of [providers.WorkspaceRemover]. It renames the folder of a workspace in one step, so that it is no
// longer used, and then removes it, as well as renamed folders that a dead process has left.
func (f *Folder) Sweep(ctx context.Context, s providers.WorkspaceSweep) (removed int, err error) {
	entries, err := os.ReadDir(f.at(ownersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, schemas.Wrap(schemas.Unavailable, "sweep workspaces", "the owners of the workspaces cannot be listed", err)
	}
	held, err := f.holders(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, tempPrefix) {
			errs = append(errs, f.removeTemp(e))
			continue
		}
		if name[0] == '.' || strings.HasSuffix(name, absentSuffix) || held[name] {
			continue
		}
		if err := errors.Join(ctx.Err(), s.Held()); err != nil {
			return removed, err
		}
		is, err := f.sweepWorkspace(ctx, name, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("workspace %s: %w", name, err))
		} else if is {
			removed++
		}
	}
	errs = append(errs, f.removeGoing(ctx, s.Held))
	if err := errors.Join(errs...); err != nil {
		return removed, schemas.Wrap(schemas.Unavailable, "sweep workspaces", "files of removed accounts could not be removed", err)
	}
	return removed, nil
}

// holders returns the workspaces that sandboxes use. Code: unavailable.
func (f *Folder) holders(ctx context.Context) (map[string]bool, error) {
	if f.Holders == nil {
		return nil, nil //nolint:nilnil // there are none
	}
	held, err := f.Holders(ctx)
	if err != nil {
		return nil, schemas.Wrap(schemas.Unavailable, "sweep workspaces", "it is not known which workspaces sandboxes have", err)
	}
	return held, nil
}

// removeTemp removes an old temporary file, whose process has died before renaming it. If the process was only slow, the owner is recorded
// when the workspace is next opened, the absence at the next sweep.
func (f *Folder) removeTemp(e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil || time.Since(info.ModTime()) < tempKept {
		return nil //nolint:nilerr // it has its name, or is new
	}
	return removeFile(filepath.Join(f.Dir, ownersDir, e.Name()))
}

// sweepWorkspace checks one workspace and renames its folder for removal if its account has been removed for long enough. It takes no lock
// if the account exists, so that boxes do not wait for a sweep.
func (f *Folder) sweepWorkspace(ctx context.Context, name string, s providers.WorkspaceSweep) (removed bool, err error) {
	path := f.ownerFile(name)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // only read and locked
	var o owner
	if err := json.NewDecoder(file).Decode(&o); err != nil || o.Account.Validate() != nil {
		return false, nil // the account is unknown
	}
	if is, err := s.Removed(ctx, o.Account); err != nil {
		return false, nil // it is unknown whether the account exists
	} else if !is {
		return false, removeFile(path + absentSuffix)
	}

	defer f.Lock(name)()
	if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil || !linked(file) {
		return false, nil // a sandbox uses it, or that is unknown
	}
	there, mine, err := f.holdsFilesOf(name, o.Account)
	if err != nil || !mine {
		return false, err
	}
	before, err := readAbsence(path + absentSuffix)
	if err != nil {
		return false, err
	}
	is, err := s.Removed(ctx, o.Account) // the account may have returned meanwhile
	absent, v := judge(is, err, before, s.Passed)
	switch v {
	case leaveFiles:
		return false, nil
	case forgetMark:
		return false, removeFile(path + absentSuffix)
	case keepMark:
		return false, writeAbsence(path+absentSuffix, absent)
	case removeFiles:
	}
	if held, err := f.holders(ctx); err != nil || held[name] { // because of the lock, no further sandbox can begin to use it
		return false, err
	}
	if err := s.Held(); err != nil {
		return false, err
	}
	if there {
		if err := os.Rename(f.at(name), f.at(goingPrefix+strings.ToLower(schemas.NewID("")))); err != nil {
			return false, err
		}
	}
	if f.Gone != nil {
		f.Gone(name)
	}
	f.Log.Info("files of a removed account's workspace removed", "account", o.Account, "namespace", name)
	// The owner file is removed last: after a crash before that, a later sweep finds no directory and removes the rest.
	return there, errors.Join(removeFile(path+absentSuffix), removeFile(path))
}

// holdsFilesOf reports whether a workspace's folder exists, and whether it is still as it was made for the account; mine is true if it
// does not exist.
func (f *Folder) holdsFilesOf(name string, a schemas.AccountID) (there, mine bool, err error) {
	info, err := os.Lstat(f.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, true, nil
	} else if err != nil {
		return false, false, err
	}
	return true, info.IsDir() && f.Mine(info, a), nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readAbsence returns for how long an account was found removed; 0 if there is no record or it is damaged.
func readAbsence(path string) (time.Duration, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var a absence
	if json.Unmarshal(data, &a) != nil || a.Seconds < 0 || a.Seconds > int64(providers.WorkspacesKept/time.Second) {
		return 0, nil //nolint:nilerr // as said
	}
	return time.Duration(a.Seconds) * time.Second, nil
}

func writeAbsence(path string, d time.Duration) error {
	data, err := json.Marshal(absence{Seconds: int64(d / time.Second)})
	if err != nil {
		return err
	}
	temp, err := writeTemp(path, data)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// removeGoing removes the folders that were renamed for removal, one after the other, until ctx ends or held returns an error.
func (f *Folder) removeGoing(ctx context.Context, held func() error) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), goingPrefix) {
			continue
		}
		err := RemoveTree(f.at(e.Name()), func() error { return errors.Join(ctx.Err(), held()) })
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}
