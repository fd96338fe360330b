// Package safefs opens files below a root that another process may be changing at the same time.
//
// Every name is resolved by the kernel (openat2 with RESOLVE_BENEATH) or, where that is missing, by
// [os.Root], in one go: there is no moment between a check and a use. Symbolic links are followed
// while they stay below the root; absolute ones and those that lead out are refused. Only regular
// files are opened, so a FIFO or a device put there cannot block or be driven.
//
// A mount point below the root is not entered.
//
// A [Root] is a [workspacefs.FS], whose codes it gives to what it refuses.
package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

var (
	_ workspacefs.FS     = (*Root)(nil)
	_ workspacefs.Placer = (*Root)(nil)
)

// Options says how a root is used.
type Options struct {
	// UID and GID own what is made below the root, when this process is root. 0 leaves it to root.
	UID, GID int
	// ReadOnly refuses every change with [workspacefs.ErrReadOnly].
	ReadOnly bool
	// Admit is asked before a file is written, with the bytes and files by which the tree grows at most, below 0 when it
	// shrinks. Its error is the write's. Nil: everything is admitted.
	Admit func(bytes, files int64) error
}

// Root is a directory below which names are resolved race-free. It may be used from many
// goroutines at a time, until Close.
type Root struct {
	at  backend
	opt Options
}

// backend resolves names below a directory. Names are clean, relative and never empty.
type backend interface {
	// open opens a file, following links that stay below the root.
	open(name string, flag int, perm fs.FileMode) (*os.File, error)
	// dir opens a directory for changes in it.
	dir(name string) (directory, error)
	// stat describes what name leads to without opening it.
	stat(name string) (fs.FileInfo, error)
	// lstat describes what has the name, be it a link.
	lstat(name string) (fs.FileInfo, error)
	// rename moves an entry from one directory to another. No link is followed but on the way there.
	rename(from, to string) error
	// renameNew does the same with a file, and fails with [fs.ErrExist] where something has the new name, also at the last moment.
	renameNew(from, to string) error
	close() error
}

// directory changes the entries of one open directory. Names have one component; no link is followed.
type directory interface {
	open(base string, flag int, perm fs.FileMode) (*os.File, error)
	mkdir(base string, perm fs.FileMode) error
	chown(base string, uid, gid int) error
	rename(from, to string) error
	link(from, to string) error
	remove(base string) error
	lstat(base string) (fs.FileInfo, error)
	readlink(base string) (string, error)
	sync() error
	close() error
}

// Open opens the directory dir as a root. The path to dir itself is trusted.
func Open(dir string, o Options) (*Root, error) {
	at, err := openBackend(dir)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	return &Root{at: at, opt: o}, nil
}

// Close releases the root. Files opened through it stay open.
func (r *Root) Close() error {
	if r == nil || r.at == nil {
		return nil
	}
	return r.at.close()
}

// Open opens a regular file for reading. The caller closes it.
func (r *Root) Open(ctx context.Context, name string) (workspacefs.File, error) {
	name, err := begin(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := r.at.open(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refusal(err)
	}
	if _, err := regular(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Stat describes a file or directory, following links below the root.
func (r *Root) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	name, err := begin(ctx, name)
	if err != nil {
		return nil, err
	}
	info, err := r.at.stat(name)
	if err != nil {
		return nil, refusal(err)
	}
	return info, nil
}

// begin is what every method begins with.
func begin(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return workspacefs.Clean(name)
}

// regular returns what f is, or why it is not a regular file.
func regular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("stat: %w", err)
	case info.IsDir():
		return nil, workspacefs.ErrIsDirectory
	case !info.Mode().IsRegular():
		return nil, workspacefs.ErrNotRegular
	}
	return info, nil
}

// refusal gives the system's words for a refused path this package's name.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV), strings.HasSuffix(err.Error(), "path escapes from parent"):
		return fmt.Errorf("%w: %w", workspacefs.ErrEscape, err)
	case strings.HasSuffix(err.Error(), ": not a directory") && !errors.Is(err, syscall.ENOTDIR): // os.Root's own words
		return fmt.Errorf("%w: %w", syscall.ENOTDIR, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %w", workspacefs.ErrIsDirectory, err)
	case errors.Is(err, syscall.ENXIO): // a FIFO without reader, a socket
		return fmt.Errorf("%w: %w", workspacefs.ErrNotRegular, err)
	}
	return err
}
