package safefs

import (
	"errors"
	"io/fs"
	"os"
)

// fallback resolves names with [os.Root].
type fallback struct{ root *os.Root }

func openFallback(dir string) (backend, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return fallback{root}, nil
}

func (b fallback) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return b.root.OpenFile(name, flag, perm)
}

func (b fallback) stat(name string) (fs.FileInfo, error) { return b.root.Stat(name) }

func (b fallback) dir(name string) (directory, error) {
	sub, err := b.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return fallbackDir{sub}, nil
}

func (b fallback) lstat(name string) (fs.FileInfo, error) { return b.root.Lstat(name) }

func (b fallback) rename(from, to string) error { return b.root.Rename(from, to) }

// renameNew creates a second name, because link replaces nothing, and removes the first.
func (b fallback) renameNew(from, to string) error {
	if err := b.root.Link(from, to); err != nil {
		return err
	}
	return b.root.Remove(from)
}

func (b fallback) close() error { return b.root.Close() }

// fallbackDir is one directory. Its os.Root is narrower than the tree's, which is no restriction: names have one component, and links are
// not followed.
type fallbackDir struct{ root *os.Root }

func (d fallbackDir) open(base string, flag int, perm fs.FileMode) (*os.File, error) {
	return d.root.OpenFile(base, flag, perm)
}

func (d fallbackDir) mkdir(base string, perm fs.FileMode) error { return d.root.Mkdir(base, perm) }

func (d fallbackDir) chown(base string, uid, gid int) error { return d.root.Lchown(base, uid, gid) }

func (d fallbackDir) rename(from, to string) error { return d.root.Rename(from, to) }

func (d fallbackDir) link(from, to string) error { return d.root.Link(from, to) }

func (d fallbackDir) remove(base string) error { return d.root.Remove(base) }

func (d fallbackDir) lstat(base string) (fs.FileInfo, error) { return d.root.Lstat(base) }

func (d fallbackDir) readlink(base string) (string, error) { return d.root.Readlink(base) }

func (d fallbackDir) sync() error {
	f, err := d.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(syncDir(f), f.Close())
}

func (d fallbackDir) close() error { return d.root.Close() }
