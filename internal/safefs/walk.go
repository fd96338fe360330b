//go:build unix

package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is what a walk finds.
type Entry struct {
	Path string      // relative to where the walk began
	Type fs.FileMode // type bits: directory, link, regular (0), …
	dir  *os.File
}

// Info is size and time of an entry.
type Info struct {
	Size    int64
	ModTime time.Time
}

// Info looks at the entry itself, never through a link. It may be called until the visit returns.
func (e Entry) Info() (Info, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(e.dir.Fd()), path.Base(e.Path), &st, unix.AT_SYMLINK_NOFOLLOW) // a descriptor fits
	if err != nil {
		return Info{}, &fs.PathError{Op: "fstatat", Path: e.Path, Err: err}
	}
	return Info{Size: st.Size, ModTime: time.Unix(st.Mtim.Unix())}, nil
}

// Walk visits everything below the directory name, directories before what is in them, in no
// certain order. No link is followed. A visit of a directory that returns [fs.SkipDir] keeps the
// walk out of it; any other error ends it. Directories that cannot be read (gone, forbidden, too
// deep) are passed over. More than most entries end it with [ErrTooMany].
func (r *Root) Walk(ctx context.Context, name string, most int, visit func(Entry) error) error {
	top, err := r.OpenDir(name)
	if err != nil {
		return err
	}
	name, err = Clean(name)
	if err != nil {
		return errors.Join(err, top.Close())
	}
	w := walk{root: r, top: name, left: most, visit: visit}
	if err := w.list(ctx, top, ""); err != nil {
		return err
	}
	for len(w.todo) > 0 {
		sub := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		f, err := r.at.open(path.Join(name, sub), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if err := w.list(ctx, f, sub); err != nil {
			return err
		}
	}
	return nil
}

type walk struct {
	root  *Root
	top   string
	left  int
	visit func(Entry) error
	todo  []string // directories that were visited and not yet listed
}

// list visits the entries of f and closes it.
func (w *walk) list(ctx context.Context, f *os.File, prefix string) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	const batch = 1024
	for {
		if err := ctx.Err(); err != nil {
			return err //nolint:wrapcheck // the context's own error
		}
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if w.left--; w.left < 0 {
				return fmt.Errorf("%w below %s", ErrTooMany, w.top)
			}
			p := path.Join(prefix, e.Name())
			switch err := w.visit(Entry{Path: p, Type: e.Type(), dir: f}); {
			case errors.Is(err, fs.SkipDir) && e.IsDir():
			case err != nil:
				return err
			case e.IsDir():
				w.todo = append(w.todo, p)
			}
		}
		if err != nil || len(entries) == 0 { // the end, or no longer readable
			return nil // what cannot be read is passed over
		}
	}
}
