//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/accountfiles"
	"github.com/sandjet/sandjet/schemas"
)

// DefaultHomeQuota is the most bytes in the home folder of one box where Options do not say.
const DefaultHomeQuota int64 = 5 << 30

// homePrefix begins the names of the boxes' home folders. They lie beside the workspaces, on the same file system,
// and no workspace can have such a name: those that begin with a dot are refused.
const homePrefix = ".home-"

// homeRest is how old a home folder must be to be one that a dead worker has left: a younger one may just be made.
const homeRest = time.Minute

// home is the home folder of one box: on the disk, private to the box and removed with it. The open directory holds a lock, which the
// kernel releases however this process ends; other workers see by it that the folder is in use.
type home struct {
	name string // below the directory of the workspaces
	path string
	lock *os.File
}

// makeHome makes the home folder of a box whose host user is id (0: this process's own). On a full disk it returns nil without an error:
// the home is in memory then.
func (p *boxes) makeHome(id int) (*home, error) {
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

// mount returns the folder as a mount that the box may write to.
func (h *home) mount() providers.Mount { return providers.Mount{Namespace: h.name} }

// remove removes the folder with its content, and releases the lock.
func (h *home) remove() error {
	err := accountfiles.RemoveTree(h.path, func() error { return nil })
	if h.lock != nil {
		err = errors.Join(err, h.lock.Close())
	}
	return err
}

// sweepHomes removes the home folders of dead workers: those that no process has locked. Folders that cannot be locked, as on some network
// file systems, stay.
func (p *boxes) sweepHomes() (removed int, err error) {
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
