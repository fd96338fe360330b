package workspacefs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

// Bounds limits one walk, so that a user who fills the tree cannot fill this process's memory.
type Bounds struct {
	Entries int // that are visited
	Bytes   int // of names that were read and wait
}

// perName is what a name that waits takes beside its bytes.
const perName = 64

// Visit is called with each entry of a walk and its path relative to where the walk began.
type Visit func(path string, e Entry) error

// Walk visits everything below the directory name, directories before what is in them, in no
// certain order. Only name itself may be a link; no other is followed. A visit of a directory that returns
// [fs.SkipDir] skips its contents; any other error ends it. Directories that cannot be read (gone,
// forbidden, too deep) are skipped; a failure without a code ends the walk. What is beyond the bounds ends
// it with [ErrTooMany].
func Walk(ctx context.Context, fsys FS, name string, b Bounds, visit Visit) error {
	if t, ok := fsys.(TreeWalker); ok {
		return t.WalkTree(ctx, name, b, visit)
	}
	w, err := newWalk(ctx, fsys, name, b, visit)
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
		err := w.list(sub, func(e Entry) error {
			p := path.Join(sub, e.Name)
			into, err := w.visited(p, e)
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

// RemoveTree removes a directory with its content, within the bounds: more reports that something is left, which another call removes.
// Links are removed, never followed. Files created meanwhile may be left too. Codes: as Remove of [FS], except ErrNotEmpty.
func RemoveTree(ctx context.Context, fsys FS, name string, b Bounds) (more bool, err error) {
	if t, ok := fsys.(TreeRemover); ok {
		return t.RemoveTree(ctx, name, b)
	}
	if name, err = Clean(name); err != nil {
		return false, err
	}
	err = fsys.Remove(ctx, name)
	if CodeOf(err) != ErrNotEmpty {
		return false, err
	}
	var below []string
	err = Walk(ctx, fsys, name, b, func(p string, _ Entry) error {
		below = append(below, path.Join(name, p))
		return nil
	})
	if err != nil && CodeOf(err) != ErrTooMany {
		return false, err
	}
	more = err != nil
	for _, n := range slices.Backward(below) { // directories come before what is in them
		switch err := fsys.Remove(ctx, n); CodeOf(err) {
		case ErrNotFound:
		case ErrNotEmpty:
			more = true // something was put there, or the walk did not come so far
		default:
			if err != nil {
				return false, err
			}
		}
	}
	if more {
		return true, nil
	}
	switch err := fsys.Remove(ctx, name); CodeOf(err) {
	case ErrNotFound:
		return false, nil
	case ErrNotEmpty:
		return true, nil
	default:
		return false, err
	}
}

// WalkSorted is [Walk] in the byte order of the paths. All names of a directory stay in memory until the walk leaves it, and entries have
// no Info.
func WalkSorted(ctx context.Context, fsys FS, name string, b Bounds, visit Visit) error {
	w, err := newWalk(ctx, fsys, name, b, visit)
	if err != nil {
		return err
	}
	top, err := w.sorted("")
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
		into, err := w.visited(p, Entry{Name: e.name, Type: e.mode})
		if err != nil {
			return err
		}
		if into {
			sub, err := w.sorted(p)
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

// compare orders names as the paths that begin with them: a directory's name is followed by a slash.
func (n named) compare(o named) int {
	short := min(len(n.name), len(o.name))
	return cmp.Or(cmp.Compare(n.name[:short], o.name[:short]), cmp.Compare(n.at(short), o.at(short)))
}

// at returns the i-th byte; after the last one, a slash for a directory and -1 otherwise.
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
	ctx   context.Context //nolint:containedctx // a walk is one call
	fsys  FS
	name  string
	left  Bounds
	visit Visit
}

func newWalk(ctx context.Context, fsys FS, name string, b Bounds, visit Visit) (*walk, error) {
	name, err := Clean(name)
	return &walk{ctx: ctx, fsys: fsys, name: name, left: b, visit: visit}, err
}

// sorted returns the sorted names of a directory; none if it cannot be read.
func (w *walk) sorted(sub string) (level, error) {
	l := level{path: sub}
	err := w.list(sub, func(e Entry) error {
		l.names = append(l.names, named{e.Name, e.Type})
		l.bytes += len(e.Name) + perName
		return w.take(len(e.Name))
	})
	slices.SortFunc(l.names, named.compare)
	return l, err
}

// list calls each with the entries of a directory, relative to the walk's root. Only the root may be a link.
func (w *walk) list(sub string, each func(Entry) error) error {
	var own error // of this walk, not of the file system
	err := w.fsys.ReadDir(w.ctx, path.Join(w.name, sub), sub == "", func(e Entry) error {
		own = w.admit()
		if own == nil {
			own = each(e)
		}
		return own
	})
	switch {
	case own != nil:
		return own
	case err == nil || sub == "" || w.ctx.Err() != nil:
		return err
	}
	switch CodeOf(err) {
	case ErrNotFound, ErrNotDirectory, ErrDenied, ErrEscape, ErrLoop, ErrTooLong, ErrNotRegular, ErrBadName:
		return nil // the tree is such, or was changed meanwhile
	default:
		return err
	}
}

// admit counts an entry.
func (w *walk) admit() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.left.Entries--; w.left.Entries < 0 {
		return fmt.Errorf("%w below %s", ErrTooMany, w.name)
	}
	return nil
}

// visited visits an entry and reports whether the walk descends into it.
func (w *walk) visited(p string, e Entry) (into bool, err error) {
	err = w.visit(p, e)
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
