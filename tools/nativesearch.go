package tools

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// mostEntries limits the number of entries of one walk.
const mostEntries = 1_000_000

func (t glob) run(ctx context.Context, root workspacefs.FS) (answer, error) {
	var first firstPaths
	err := walk(ctx, root, t.name, workspacefs.Walk, func(found string, e workspacefs.Entry) error {
		if strings.HasPrefix(e.Name, ".") && !t.hidden {
			return fs.SkipDir
		}
		if !e.Type.IsRegular() && (!e.Type.IsDir() || !t.dirs) {
			return nil
		}
		if matched, err := t.match.matches(ctx, []byte(found)); err != nil || !matched {
			return err
		}
		f := foundPath{path: found}
		if t.order == schemas.SortNewest {
			info, err := e.Info()
			if err != nil { // removed meanwhile
				return nil //nolint:nilerr // it is not there any more
			}
			f.time = info.ModTime
		}
		first.add(f)
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	var out []byte
	for _, f := range first.sorted() {
		out = append(append(out, f.path...), '\n')
	}
	return answer{word: wordOK, numbers: []int64{first.total}, parts: [][]byte{out[:min(len(out), pathsBytes)]}}, nil
}

type foundPath struct {
	path string
	time time.Time
}

// compare orders newer paths first, and those of the same time by name.
func (f foundPath) compare(o foundPath) int {
	return cmp.Or(o.time.Compare(f.time), cmp.Compare(f.path, o.path))
}

// firstPaths collects the first paths that an answer can show: up to [mostPaths], and up to the one that fills [pathsBytes]. It is a heap
// whose root is the last of them.
type firstPaths struct {
	total int64
	bytes int
	paths []foundPath
}

func (h *firstPaths) Len() int           { return len(h.paths) }
func (h *firstPaths) Less(i, j int) bool { return h.paths[i].compare(h.paths[j]) > 0 }
func (h *firstPaths) Swap(i, j int)      { h.paths[i], h.paths[j] = h.paths[j], h.paths[i] }

// Push implements heap.Interface.
func (h *firstPaths) Push(x any) {
	if f, ok := x.(foundPath); ok {
		h.paths = append(h.paths, f)
	}
}

// Pop implements heap.Interface.
func (h *firstPaths) Pop() any {
	last := h.paths[len(h.paths)-1]
	h.paths[len(h.paths)-1] = foundPath{}
	h.paths = h.paths[:len(h.paths)-1]
	return last
}

func (h *firstPaths) add(f foundPath) {
	h.total++
	heap.Push(h, f)
	h.bytes += len(f.path) + 1
	for h.Len() > mostPaths || h.bytes-len(h.paths[0].path)-1 >= pathsBytes { // the paths before the last one fill the answer
		h.bytes -= len(h.paths[0].path) + 1
		heap.Pop(h)
	}
}

func (h *firstPaths) sorted() []foundPath {
	slices.SortFunc(h.paths, foundPath.compare)
	return h.paths
}

// walk visits everything below a folder, except for names with line breaks. If a visit of a file returns fs.SkipDir, only that file is
// skipped.
func walk(
	ctx context.Context, root workspacefs.FS, name string,
	how func(context.Context, workspacefs.FS, string, workspacefs.Bounds, workspacefs.Visit) error, visit workspacefs.Visit,
) error {
	info, err := root.Stat(ctx, name)
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("walk: %w", workspacefs.ErrNotDirectory)
	}
	err = how(ctx, root, name, workspacefs.Bounds{Entries: mostEntries, Bytes: schemas.MaxWalkNames},
		func(found string, e workspacefs.Entry) error {
			if err := checkpoint(ctx); err != nil {
				return err
			}
			err := fs.SkipDir
			if !strings.Contains(e.Name, "\n") {
				err = visit(found, e)
			}
			if !e.Type.IsDir() && errors.Is(err, fs.SkipDir) {
				return nil
			}
			return err
		})
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	return nil
}

func (t grep) run(ctx context.Context, root workspacefs.FS) (answer, error) {
	info, err := root.Stat(ctx, t.name)
	if err != nil {
		return answer{}, fmt.Errorf("grep: %w", err)
	}
	s := search{grep: t, root: root}
	if !info.IsDir() {
		return s.single(ctx, info)
	}
	err = walk(ctx, root, t.name, workspacefs.WalkSorted, func(found string, e workspacefs.Entry) error {
		if e.Type.IsDir() && skipped(e.Name) {
			return fs.SkipDir
		}
		if !e.Type.IsRegular() {
			return nil
		}
		if wanted, err := s.wanted(ctx, found); err != nil || !wanted {
			return err
		}
		return s.file(ctx, found, path.Join(t.name, found))
	})
	if err != nil {
		return answer{}, err
	}
	return s.answer(false), nil
}

// skipped reports whether grep ignores a folder.
func skipped(name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".jj", ".bzr", ".sandjet":
		return true
	}
	return false
}

// search collects the matches of grep.
type search struct {
	grep

	root  workspacefs.FS
	out   []byte
	shown int   // lines of the result
	large int64 // number of files that are too large
}

func (s *search) answer(single bool) answer {
	return answer{word: wordOK, numbers: []int64{s.large, int64(number(single))}, parts: [][]byte{s.out[:min(len(s.out), grepBytes+1)]}}
}

// full reports whether nothing more can be shown.
func (s *search) full() bool { return s.shown > s.most || len(s.out) > grepBytes }

// single searches the one file that the call names.
func (s *search) single(ctx context.Context, info fs.FileInfo) (answer, error) {
	if !info.Mode().IsRegular() {
		return answer{word: wordNotRegular}, nil
	}
	wanted, err := s.wanted(ctx, path.Base(s.name))
	if wanted {
		err = s.file(ctx, path.Base(s.name), s.name)
	}
	return s.answer(true), err
}

// wanted reports whether files of this name are searched.
func (s *search) wanted(ctx context.Context, name string) (bool, error) {
	if s.only == nil {
		return true, nil
	}
	return s.only.matches(ctx, []byte(name))
}

// file searches one file. An unreadable or missing file is skipped. A failure of the file system is an error, else the file would count as
// having no match.
func (s *search) file(ctx context.Context, shown, name string) error {
	f, err := s.root.Open(ctx, name)
	if err != nil {
		return unlessRefused(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return unlessRefused(err)
	}
	if info.Size() > largestFile {
		s.large++
		return nil
	}
	if s.full() || binary(f) { // if the answer is full, only sizes still matter
		return nil
	}
	count := 0
	err = s.match.lines(ctx, f, info.Size(), func(number int, line []byte) bool {
		if count++; s.mode != schemas.GrepContent {
			return s.mode == schemas.GrepCount
		}
		if count == 1 {
			s.out = append(append(append(s.out, 'F'), shown...), '\n')
		}
		begin := len(s.out)
		s.out = append(fmt.Appendf(s.out, "%d:", number), line...)
		s.out = append(s.out[:min(len(s.out), begin+cutLine)], '\n')
		s.shown++
		return !s.full()
	})
	if err != nil && (ctx.Err() != nil || workspacefs.CodeOf(err) == "") {
		return err
	}
	switch {
	case count == 0:
	case s.mode == schemas.GrepCount:
		s.out = fmt.Appendf(s.out, "%d:%s\n", count, shown)
		s.shown++
	case s.mode != schemas.GrepContent:
		s.out = append(append(s.out, shown...), '\n')
		s.shown++
	}
	return nil
}

// unlessRefused returns err, or nil if it is about a single file.
func unlessRefused(err error) error {
	if workspacefs.CodeOf(err) != "" {
		return nil //nolint:nilerr // that file is left out
	}
	return err
}

// binary reports whether there is a NUL in the beginning of a file.
func binary(f io.ReaderAt) bool {
	peek := make([]byte, peekBytes)
	n, _ := f.ReadAt(peek, 0) // read errors are reported later
	return hasNUL(peek[:n])
}
