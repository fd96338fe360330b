//go:build linux

package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// DefaultHomeQuota is the most bytes in the home folder of one box where Options do not say.
const DefaultHomeQuota int64 = 5 << 30

// homePrefix begins the names of the boxes' home folders. They lie beside the workspaces, on the same file system,
// and no workspace can have such a name: those that begin with a dot are refused.
const homePrefix = ".home-"

// homeRest is how old a home folder must be to be one that a dead worker has left: a younger one may just be made.
const homeRest = time.Minute

// home is the home folder of one box: its own, on the disk, gone when the box is. The open directory holds a lock,
// by which other workers see that it is in use, however this one ends.
type home struct {
	name string // below the directory of the workspaces
	path string
	lock *os.File
}

// makeHome makes the home folder of a box whose user on the host is id; 0 is this process's own.
func (p *Provider) makeHome(id int) (*home, error) {
	name := homePrefix + strings.ToLower(schemas.NewID(""))
	h := &home{name: name, path: p.workspace(name)}
	err := os.Mkdir(h.path, 0o700)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return nil, nil //nolint:nilnil // on a full disk commands must still be able to delete: home is in memory then
	}
	if err != nil {
		return nil, homeError(err)
	}
	if h.lock, err = os.Open(h.path); err == nil {
		err = unix.Flock(int(h.lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if err == nil && id > 0 {
		err = os.Lchown(h.path, id, id)
	}
	if err != nil {
		return nil, errors.Join(homeError(err), h.remove())
	}
	return h, nil
}

func homeError(err error) error {
	return schemas.Wrap(schemas.Unavailable, "make box", "the box's home folder cannot be made", err)
}

// mount is the folder as something that the box may write to.
func (h *home) mount() providers.Mount { return providers.Mount{Namespace: h.name} }

// remove removes the folder with all that is in it, and lets go of the lock.
func (h *home) remove() error {
	err := removeTree(h.path, func() error { return nil })
	if h.lock != nil {
		err = errors.Join(err, h.lock.Close())
	}
	return err
}

// removeTree removes a directory that a tenant has filled: any number of levels, and directories that forbid to be
// read. Directories are moved up to the top before they are emptied, so no path becomes long and few are open. Nothing
// may run any more that could change it. Now and then it asks more, whose error ends it: the rest stays.
func removeTree(top string, more func() error) error {
	root, err := os.OpenRoot(top)
	if errors.Is(err, fs.ErrPermission) { // its owner has forbidden it to himself
		if err = os.Chmod(top, 0o700); err == nil { //nolint:gosec // a directory
			root, err = os.OpenRoot(top)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", filepath.Base(top), err)
	}
	defer root.Close() //nolint:errcheck // only looked up in
	next := 0
	for {
		entries, err := listSome(root, ".")
		if err == nil {
			err = more()
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", filepath.Base(top), err)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if !e.IsDir() {
				err = root.Remove(e.Name())
			} else {
				err = flatten(root, e.Name(), &next, more)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove %s: %w", filepath.Base(top), err)
			}
		}
	}
	if err := os.Remove(top); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", filepath.Base(top), err)
	}
	return nil
}

// flatten removes a directory of the top: what is in it is removed, and its directories are moved beside it.
func flatten(root *os.Root, name string, next *int, more func() error) error {
	if err := root.Chmod(name, 0o700); err != nil {
		return err
	}
	for {
		entries, err := listSome(root, name)
		if err == nil {
			err = more()
		}
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return root.Remove(name)
		}
		for _, e := range entries {
			at := name + "/" + e.Name()
			if !e.IsDir() {
				err = root.Remove(at)
			} else {
				_ = root.Chmod(at, 0o700) // a directory that forbids to be written cannot be moved
				*next++
				err = root.Rename(at, fmt.Sprintf("%s%d", homePrefix, *next))
				if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
					err = nil // the name is taken: the next try has another
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// listSome reads some of a directory's entries.
func listSome(root *os.Root, name string) ([]fs.DirEntry, error) {
	const some = 1000
	d, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // only read
	entries, err := d.ReadDir(some)
	if len(entries) > 0 {
		err = nil
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// sweepHomes removes the home folders that dead workers have left: those on which nobody holds a lock. What cannot
// be locked, as on some network file systems, stays.
func (p *Provider) sweepHomes() (removed int, err error) {
	entries, err := os.ReadDir(p.opt.Workspaces)
	if err != nil {
		return 0, fmt.Errorf("list the workspaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || !strings.HasPrefix(e.Name(), homePrefix) || time.Since(info.ModTime()) < homeRest {
			continue
		}
		h := &home{name: e.Name(), path: p.workspace(e.Name())}
		if h.lock, err = os.Open(h.path); err != nil {
			continue
		}
		if unix.Flock(int(h.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			_ = h.lock.Close()
			continue
		}
		if err := h.remove(); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}
