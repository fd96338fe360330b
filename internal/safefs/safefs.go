// Package safefs opens files below a root that somebody else may be changing at the same time.
//
// Every name is resolved by the kernel (openat2 with RESOLVE_BENEATH) or, where that is missing, by
// [os.Root], in one go: there is no moment between a check and a use. Symbolic links are followed
// while they stay below the root; absolute ones and those that lead out are refused. Only regular
// files are opened, so a FIFO or a device put there cannot block or be driven.
//
// A mount point below the root is not entered.
package safefs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// The refusals of this package. They are found with [errors.Is], beside [fs.ErrNotExist],
// [fs.ErrExist], [fs.ErrPermission] and the errors of the system calls.
var (
	ErrEscape     = errors.New("the path leads out of the root")
	ErrName       = errors.New("the name is not one below the root")
	ErrNotRegular = errors.New("it is not a regular file")
	ErrDirectory  = errors.New("it is a directory")
	ErrHardLink   = errors.New("the file has several hard links")
	ErrTooLarge   = errors.New("the file is too large")
	ErrReadOnly   = errors.New("the root is read-only")
	ErrChanged    = errors.New("the file was changed by somebody else")
	ErrTooMany    = errors.New("there are too many files")
)

// Options says how a root is used.
type Options struct {
	// UID and GID own what is made below the root, when this process is root. 0 leaves it to root.
	UID, GID int
	// ReadOnly refuses every change with [ErrReadOnly].
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

// Clean returns name in the form in which it is resolved: relative to the root, without a leading
// slash, "." and "//"; the root itself is ".". It refuses ".." in every place, NUL and line breaks.
func Clean(name string) (string, error) {
	if strings.ContainsAny(name, "\x00\n") {
		return "", fmt.Errorf("%w: NUL and line breaks are not allowed", ErrName)
	}
	for seg := range strings.SplitSeq(name, "/") {
		if seg == ".." {
			return "", fmt.Errorf("%w: .. is not allowed", ErrName)
		}
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

// Open opens a regular file for reading. The caller closes it.
func (r *Root) Open(name string) (*os.File, error) {
	name, err := Clean(name)
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
func (r *Root) Stat(name string) (fs.FileInfo, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	info, err := r.at.stat(name)
	if err != nil {
		return nil, refusal(err)
	}
	return info, nil
}

// OpenDir opens a directory for listing, following links below the root. The caller closes it.
func (r *Root) OpenDir(name string) (*os.File, error) {
	name, err := Clean(name)
	if err != nil {
		return nil, err
	}
	f, err := r.at.open(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, refusal(err)
	}
	return f, nil
}

// regular returns what f is, or why it is not a regular file.
func regular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("stat: %w", err)
	case info.IsDir():
		return nil, ErrDirectory
	case !info.Mode().IsRegular():
		return nil, ErrNotRegular
	}
	return info, nil
}

// refusal gives the system's words for a refused path this package's name.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EXDEV), strings.HasSuffix(err.Error(), "path escapes from parent"):
		return fmt.Errorf("%w: %w", ErrEscape, err)
	case strings.HasSuffix(err.Error(), ": not a directory") && !errors.Is(err, syscall.ENOTDIR): // os.Root's own words
		return fmt.Errorf("%w: %w", syscall.ENOTDIR, err)
	case errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	case errors.Is(err, syscall.ENXIO): // a FIFO without reader, a socket
		return fmt.Errorf("%w: %w", ErrNotRegular, err)
	}
	return err
}
