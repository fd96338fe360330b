//go:build unix

package safefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
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

// Info looks at the entry itself, never through a link. It may be called until the visit of [Root.Walk]
// returns; entries of a sorted walk have none.
func (e Entry) Info() (Info, error) {
	if e.dir == nil {
		return Info{}, &fs.PathError{Op: "fstatat", Path: e.Path, Err: errors.ErrUnsupported}
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(e.dir.Fd()), path.Base(e.Path), &st, unix.AT_SYMLINK_NOFOLLOW) // a descriptor fits
	if err != nil {
		return Info{}, &fs.PathError{Op: "fstatat", Path: e.Path, Err: err}
	}
	return Info{Size: st.Size, ModTime: time.Unix(st.Mtim.Unix())}, nil
}

// Bounds are those of one walk. Whoever fills the tree must not fill this process's memory.
type Bounds struct {
	Entries int // that are visited
	Bytes   int // of names that were read and wait
}

// perName is what a name that waits takes beside its bytes.
const perName = 64

// Walk visits everything below the directory name, directories before what is in them, in no
// certain order. No link is followed. A visit of a directory that returns [fs.SkipDir] keeps the
// walk out of it; any other error ends it. Directories that cannot be read (gone, forbidden, too
// deep) are passed over. What is beyond the bounds ends it with [ErrTooMany].
func (r *Root) Walk(ctx context.Context, name string, b Bounds, visit func(Entry) error) error {
	w, err := r.newWalk(name, b, visit)
	if err != nil {
		return err
	}
	todo := []string{""} // directories that were visited and not yet listed
	for len(todo) > 0 {
		sub := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if sub != "" {
			w.give(len(sub) + perName)
		}
		f, err := w.open(sub)
		if err != nil {
			if sub == "" {
				return refusal(err)
			}
			continue
		}
		err = w.list(ctx, f, func(e fs.DirEntry) error {
			p := path.Join(sub, e.Name())
			into, err := w.visited(Entry{Path: p, Type: e.Type(), dir: f})
			if err != nil || !into {
				return err
			}
			todo = append(todo, p)
			return w.take(len(p))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WalkSorted is Walk in the order of the paths' bytes. All names of a directory are held until the walk leaves it.
func (r *Root) WalkSorted(ctx context.Context, name string, b Bounds, visit func(Entry) error) error {
	w, err := r.newWalk(name, b, visit)
	if err != nil {
		return err
	}
	top, err := w.sorted(ctx, "")
	if err != nil {
		return err
	}
	for stack := []level{top}; len(stack) > 0; {
		l := &stack[len(stack)-1]
		if l.next == len(l.names) {
			w.give(l.bytes)
			stack = stack[:len(stack)-1]
			continue
		}
		e := l.names[l.next]
		l.next++
		if err := ctx.Err(); err != nil {
			return err
		}
		p := path.Join(l.path, e.name)
		into, err := w.visited(Entry{Path: p, Type: e.mode})
		if err != nil {
			return err
		}
		if into {
			sub, err := w.sorted(ctx, p)
			if err != nil {
				return err
			}
			stack = append(stack, sub)
		}
	}
	return nil
}

// level is a directory of a sorted walk.
type level struct {
	path  string
	names []named
	next  int
	bytes int // that the names take
}

type named struct {
	name string
	mode fs.FileMode
}

// compare orders names as the paths that begin with them: those in a directory go on with a slash.
func (n named) compare(o named) int {
	short := min(len(n.name), len(o.name))
	return cmp.Or(cmp.Compare(n.name[:short], o.name[:short]), cmp.Compare(n.at(short), o.at(short)))
}

// at is the i-th byte, or what comes behind the last.
func (n named) at(i int) int {
	switch {
	case i < len(n.name):
		return int(n.name[i])
	case n.mode.IsDir():
		return '/'
	}
	return -1
}

type walk struct {
	root  *Root
	name  string
	left  Bounds
	visit func(Entry) error
}

func (r *Root) newWalk(name string, b Bounds, visit func(Entry) error) (*walk, error) {
	name, err := Clean(name)
	return &walk{root: r, name: name, left: b, visit: visit}, err
}

// open opens a directory for its list. A link to one is followed at the top alone.
func (w *walk) open(sub string) (*os.File, error) {
	flag := os.O_RDONLY | syscall.O_DIRECTORY | syscall.O_NONBLOCK
	if sub != "" {
		flag |= syscall.O_NOFOLLOW
	}
	return w.root.at.open(path.Join(w.name, sub), flag, 0)
}

// sorted reads the names of a directory; of one that cannot be read there are none.
func (w *walk) sorted(ctx context.Context, sub string) (level, error) {
	l := level{path: sub}
	f, err := w.open(sub)
	if err != nil {
		if sub == "" {
			return l, refusal(err)
		}
		return l, nil
	}
	err = w.list(ctx, f, func(e fs.DirEntry) error {
		l.names = append(l.names, named{e.Name(), e.Type()})
		l.bytes += len(e.Name()) + perName
		return w.take(len(e.Name()))
	})
	slices.SortFunc(l.names, named.compare)
	return l, err
}

// list hands on the entries of f and closes it.
func (w *walk) list(ctx context.Context, f *os.File, each func(fs.DirEntry) error) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	const batch = 1024
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if w.left.Entries--; w.left.Entries < 0 {
				return fmt.Errorf("%w below %s", ErrTooMany, w.name)
			}
			if err := each(e); err != nil {
				return err
			}
		}
		if err != nil || len(entries) == 0 { // the end, or no longer readable
			return nil // what cannot be read is passed over
		}
	}
}

// visited visits an entry and reports whether the walk goes into it.
func (w *walk) visited(e Entry) (into bool, err error) {
	err = w.visit(e)
	if e.Type.IsDir() && errors.Is(err, fs.SkipDir) {
		return false, nil
	}
	return e.Type.IsDir(), err
}

// take and give count the names that wait.
func (w *walk) take(length int) error {
	if w.left.Bytes -= length + perName; w.left.Bytes < 0 {
		return fmt.Errorf("%w below %s", ErrTooMany, w.name)
	}
	return nil
}

func (w *walk) give(bytes int) { w.left.Bytes += bytes }
