//go:build unix

package accountfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// movedPrefix is the prefix of directories that were moved to the top to be removed.
const movedPrefix = ".moved-"

// RemoveTree removes a directory whose content a tenant made: with any depth, and with directories that forbid reading. It moves nested
// directories to the top before it empties them, so that paths stay short and few directories are open. No process may still change the
// tree. It calls more now and then and stops with its error; the rest then stays.
func RemoveTree(top string, more func() error) error {
	root, err := os.OpenRoot(top)
	if errors.Is(err, fs.ErrPermission) { // its permissions forbid it even to its owner
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

// flatten removes a directory in root: it removes its files and moves its directories up into root.
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
				_ = root.Chmod(at, 0o700) // a directory without write permission cannot be moved
				*next++
				err = root.Rename(at, fmt.Sprintf("%s%d", movedPrefix, *next))
				if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
					err = nil // the name is taken: retry with the next one
				}
			}
			if err != nil {
				return err
			}
		}
	}
}

// listSome returns up to 1,000 entries of a directory.
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
