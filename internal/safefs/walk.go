//go:build unix

package safefs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

// ReadDir calls each for every entry of a directory.
func (r *Root) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) (err error) {
	name, err = begin(ctx, name)
	if err != nil {
		return err
	}
	flag := os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK
	if !follow {
		flag |= syscall.O_NOFOLLOW
	}
	f, err := r.at.open(name, flag, 0)
	if err != nil {
		return refusal(err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const batch = 1024
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if err := each(workspacefs.Entry{Name: e.Name(), Type: e.Type(), Source: openDir{f}}); err != nil {
				return err
			}
		}
		if err != nil || len(entries) == 0 {
			return ignoreEOF(err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// openDir is a directory that is being read.
type openDir struct{ *os.File }

// Describe describes an entry itself; links are not followed.
func (d openDir) Describe(name string) (workspacefs.Info, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) // a descriptor fits
	if err != nil {
		return workspacefs.Info{}, &fs.PathError{Op: "fstatat", Path: name, Err: err}
	}
	return workspacefs.Info{
		Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()), Changed: time.Unix(st.Ctim.Unix()),
		Inode: st.Ino, Links: uint64(st.Nlink), //nolint:unconvert // it is of another type on other systems
	}, nil
}
