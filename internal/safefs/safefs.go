// Package safefs opens files below a root directory that another process may change at the same time.
//
// The kernel resolves each name in one step (openat2 with RESOLVE_BENEATH), or [os.Root] does if that is unavailable, so that nothing can
// change between a check and its use. Symbolic links are followed as long as they stay below the root; absolute links and those that lead
// out are refused. Only regular files are opened, so that a FIFO or a device there can neither block nor be operated.
//
// Mount points below the root are not entered.
//
// A [Root] implements [workspacefs.FS] and returns its errors.
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

// Options configure a root.
type Options struct {
	// UID and GID own new files and directories below the root, if this process is root. 0: root owns them.
	UID, GID int
	// ReadOnly refuses every change with [workspacefs.ErrReadOnly].
	ReadOnly bool
	// Admit is called before a file is written, with the number of bytes and files by which the tree grows at most, negative if it
	// shrinks. If it returns an error, the write fails with it. It may be nil.
	Admit func(bytes, files int64) error
}

// Root is a directory below which names are resolved without races. It is safe for concurrent use until Close.
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
	// stat describes the target of name without opening it.
	stat(name string) (fs.FileInfo, error)
	// lstat describes the entry itself, even if it is a link.
	lstat(name string) (fs.FileInfo, error)
	// rename moves an entry from one directory to another. Links are followed in the path only.
	rename(from, to string) error
	// renameNew moves a file and fails with [fs.ErrExist] if the new name exists, without a race.
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

// begin checks ctx and cleans the name, at the beginning of every method.
func begin(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return workspacefs.Clean(name)
}

// regular returns the description of f, or the error for anything but a regular file.
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

// refusal converts errors of the system about a refused path to those of package workspacefs.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV), strings.HasSuffix(err.Error(), "path escapes from parent"):
		return fmt.Errorf("%w: %w", workspacefs.ErrEscape, err)
	case strings.HasSuffix(err.Error(), ": not a directory") && !errors.Is(err, syscall.ENOTDIR): // the message of os.Root
		return fmt.Errorf("%w: %w", syscall.ENOTDIR, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %w", workspacefs.ErrIsDirectory, err)
	case errors.Is(err, syscall.ENXIO): // a FIFO without a reader, or a socket
		return fmt.Errorf("%w: %w", workspacefs.ErrNotRegular, err)
	}
	return err
}
