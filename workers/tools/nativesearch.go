package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/schemas"
)

// mostEntries bounds one walk.
const mostEntries = 1_000_000

func (t glob) run(ctx context.Context, root *safefs.Root) (answer, error) {
	type found struct {
		path string
		time time.Time
	}
	var all []found
	err := walk(ctx, root, t.name, func(e safefs.Entry) error {
		base := path.Base(e.Path)
		if strings.HasPrefix(base, ".") && !t.hidden {
			return fs.SkipDir
		}
		if !e.Type.IsRegular() && (!e.Type.IsDir() || !t.dirs) || !t.match.matches([]byte(e.Path)) {
			return nil
		}
		f := found{path: e.Path}
		if t.order == schemas.SortNewest {
			info, err := e.Info()
			if err != nil { // gone meanwhile
				return nil //nolint:nilerr // it is not there any more
			}
			f.time = info.ModTime
		}
		all = append(all, f)
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(b.time.Compare(a.time), cmp.Compare(a.path, b.path)) })
	var out []byte
	for i, f := range all {
		if i == mostPaths || len(out) >= pathsBytes {
			break
		}
		out = append(append(out, f.path...), '\n')
	}
	return answer{word: wordOK, numbers: []int64{int64(len(all))}, parts: [][]byte{out[:min(len(out), pathsBytes)]}}, nil
}

// walk visits what lies below a folder, but for names with line breaks. A file that a visit skips is
// only that file.
func walk(ctx context.Context, root *safefs.Root, name string, visit func(safefs.Entry) error) error {
	info, err := root.Stat(name)
	if err != nil {
		return fmt.Errorf("walk: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("walk: %w", syscall.ENOTDIR)
	}
	err = root.Walk(ctx, name, mostEntries, func(e safefs.Entry) error {
		err := fs.SkipDir
		if !strings.Contains(path.Base(e.Path), "\n") {
			err = visit(e)
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

func (t grep) run(ctx context.Context, root *safefs.Root) (answer, error) {
	info, err := root.Stat(t.name)
	if err != nil {
		return answer{}, fmt.Errorf("grep: %w", err)
	}
	s := search{grep: t, root: root}
	if !info.IsDir() {
		return s.single(ctx, info)
	}
	var list []string
	err = walk(ctx, root, t.name, func(e safefs.Entry) error {
		if e.Type.IsDir() && skipped(path.Base(e.Path)) {
			return fs.SkipDir
		}
		if e.Type.IsRegular() && (t.only == nil || t.only.matches([]byte(e.Path))) {
			list = append(list, e.Path)
		}
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	slices.Sort(list)
	for _, p := range list {
		if err := s.file(ctx, p, path.Join(t.name, p)); err != nil {
			return answer{}, err
		}
	}
	return s.answer(false), nil
}

// skipped reports whether grep stays out of a folder.
func skipped(name string) bool {
	switch name {
	case ".git", ".hg", ".svn", ".jj", ".bzr", ".sandjet":
		return true
	}
	return false
}

// search collects what grep finds.
type search struct {
	grep

	root  *safefs.Root
	out   []byte
	shown int   // lines of the result
	large int64 // files that are too large
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
	if s.only != nil && !s.only.matches([]byte(path.Base(s.name))) {
		return s.answer(true), nil
	}
	err := s.file(ctx, path.Base(s.name), s.name)
	return s.answer(true), err
}

// file searches one file. What cannot be read is passed over.
func (s *search) file(ctx context.Context, shown, name string) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // the context's own error
	}
	if s.full() { // only the size is still of interest
		if info, err := s.root.Stat(name); err == nil && info.Size() > largestFile {
			s.large++
		}
		return nil
	}
	data, _, err := s.root.ReadFile(name, largestFile)
	if errors.Is(err, safefs.ErrTooLarge) {
		s.large++
	}
	if err != nil || bytes.IndexByte(data[:min(len(data), peekBytes)], 0) >= 0 {
		return nil //nolint:nilerr // as said
	}
	count := 0
	s.match.lines(data, func(number int, line []byte) bool {
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
