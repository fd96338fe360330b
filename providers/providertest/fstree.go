package providertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

func fsDirectories(s fsSubject) {
	for _, name := range []string{"a/b/c", "a/b/c", "a", "", "empty"} {
		if err := s.fs.MkdirAll(s.Context(), name); err != nil {
			s.Errorf("make %q: %v", name, err)
		}
	}
	s.write("a/file", "x")
	s.lists("", "a/", "empty/")
	s.lists("a", "b/", "file")
	s.lists("a/b/c")
	for _, name := range []string{"", "a", "empty"} {
		if info, err := s.fs.Stat(s.Context(), name); err != nil || !info.IsDir() {
			s.Errorf("stat %q: %v, %v", name, info, err)
		}
	}
	s.refused("making a directory where a file is", s.fs.MkdirAll(s.Context(), "a/file"), workspacefs.ErrNotDirectory)
	s.refused("making a directory below a file", s.fs.MkdirAll(s.Context(), "a/file/x"), workspacefs.ErrNotDirectory)
	nothing := func(workspacefs.Entry) error { return nil }
	s.refused("listing a file", s.fs.ReadDir(s.Context(), "a/file", true, nothing), workspacefs.ErrNotDirectory)
	s.refused("listing nothing", s.fs.ReadDir(s.Context(), "none", true, nothing), workspacefs.ErrNotFound)
	stop, calls := errors.New("stop"), 0
	err := s.fs.ReadDir(s.Context(), "a", true, func(e workspacefs.Entry) error {
		calls++
		if info, err := e.Info(); err != nil || e.Type.IsRegular() && info.Size != 1 {
			s.Errorf("entry %s: %+v, %v", e.Name, info, err)
		}
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		s.Errorf("a list that is stopped: %v after %d entries", err, calls)
	}
	s.refused("removing a full directory", s.fs.Remove(s.Context(), "a"), workspacefs.ErrNotEmpty)
	s.refused("removing nothing", s.fs.Remove(s.Context(), "none"), workspacefs.ErrNotFound)
	for _, name := range []string{"a/file", "a/b/c", "a/b"} { // what becomes empty stays
		if err := s.fs.Remove(s.Context(), name); err != nil {
			s.Errorf("remove %s: %v", name, err)
		}
	}
	s.lists("", "a/", "empty/")
	s.lists("a")
}

func fsLong(s fsSubject) {
	const files = 2100
	var want []string
	for i := range files {
		name := fmt.Sprintf("%04d", i)
		if err := s.fs.Write(s.Context(), "dir/"+name, nil, workspacefs.InPlace, nil); err != nil {
			s.Fatal(err)
		}
		want = append(want, name)
	}
	if got := s.list("dir"); !slices.Equal(got, want) {
		s.Errorf("%d names are listed; want %d", len(got), len(want))
	}
}

func fsRename(s fsSubject) {
	rename := func(from, to string) error { return s.fs.Rename(s.Context(), from, to) }
	s.write("a/file", "file")
	s.write("a/sub/deep/leaf", "leaf")
	s.write("old", "old")
	for _, pair := range [][2]string{{"a/file", "old"}, {"a", "b"}, {"b/sub", "sub"}, {"sub/deep/leaf", "b/leaf"}, {"b/leaf", "b/leaf"}} {
		if err := rename(pair[0], pair[1]); err != nil {
			s.Errorf("rename %s to %s: %v", pair[0], pair[1], err)
		}
	}
	s.holds("old", "file")
	s.holds("b/leaf", "leaf")
	s.lists("", "b/", "old", "sub/")
	s.lists("b", "leaf")
	s.lists("sub/deep")
	s.refused("a file to the place of a directory", rename("old", "b"), workspacefs.ErrIsDirectory)
	s.refused("a directory to the place of a directory", rename("sub", "b"), workspacefs.ErrIsDirectory)
	s.refused("a directory to the place of a file", rename("sub", "old"), workspacefs.ErrExists)
	s.refused("what is not there", rename("none", "x"), workspacefs.ErrNotFound)
	s.refused("into a directory that is not there", rename("old", "none/x"), workspacefs.ErrNotFound)
	s.refused("below a file", rename("sub", "old/x"), workspacefs.ErrNotDirectory)
	if err := rename("sub", "sub/deep/x"); err == nil {
		s.Error("a directory was moved into itself")
	}
	s.lists("", "b/", "old", "sub/")
}

func fsSymlinks(s fsSubject) {
	if s.Symlink == nil {
		s.Skip("there are no symbolic links in it")
	}
	s.write("dir/f", "f")
	s.write("g", "g")
	for name, target := range map[string]string{
		"in": "dir/f", "indir": "dir", "dir/back": "../g", "new": "dir/made", "chain": "indir/back", "loop": "loop", "dangling": "none/x",
		"absolute": "/etc/passwd", "climbing": "../../../../../../../../etc/passwd", "all": "/", "up": "..", "dir/up": "../..",
		"magic": "/proc/self/root/etc/passwd",
	} {
		s.Symlink(s.T, target, name)
	}
	for name, content := range map[string]string{"in": "f", "indir/f": "f", "dir/back": "g", "chain": "g"} {
		s.holds(name, content)
	}
	s.write("in", "f2")
	s.holds("dir/f", "f2")
	s.write("new", "made")
	s.holds("dir/made", "made")
	s.lists("indir", "back", "f", "made", "up")
	links := map[string]bool{}
	_ = s.fs.ReadDir(s.Context(), "", true, func(e workspacefs.Entry) error { // its error is that of lists
		links[e.Name] = e.Type&fs.ModeSymlink != 0
		return nil
	})
	for _, name := range []string{"in", "indir", "new", "loop", "absolute"} { // written through or not
		if !links[name] {
			s.Errorf("%s is no link any more", name)
		}
	}
	nothing := func(workspacefs.Entry) error { return nil }
	s.refused("listing a link that is not to be followed", s.fs.ReadDir(s.Context(), "indir", false, nothing),
		workspacefs.ErrNotDirectory, workspacefs.ErrLoop)
	for _, name := range []string{"all/etc/passwd", "up/x", "dir/up/x", "all/tmp/sandjet-probe", "absolute", "climbing", "all", "up",
		"magic"} { // links last: they go
		itself := !strings.Contains(name, "/") // the link is the last component
		for method, err := range s.all(s.Context(), s.fs, name) {
			switch method {
			case "Open", "Stat", "ReadDir":
				s.refused(method+" of "+name, err, workspacefs.ErrEscape)
			case "Remove", "Rename from", "Rename to":
				if !itself { // else it is about the link itself, which may go
					s.refused(method+" of "+name, err, workspacefs.ErrEscape, workspacefs.ErrNotFound) // there is no "other"
				}
			default:
				s.refused(method+" of "+name, err, workspacefs.ErrEscape, workspacefs.ErrIsDirectory, workspacefs.ErrNotDirectory)
			}
		}
	}
	_, err := s.read("loop")
	s.refused("a loop", err, workspacefs.ErrLoop)
	_, err = s.read("dangling")
	s.refused("a link to nothing", err, workspacefs.ErrNotFound)
	if err := s.fs.Rename(s.Context(), "indir", "moved"); err != nil {
		s.Error(err)
	}
	s.holds("moved/f", "f2")
	if err := s.fs.Remove(s.Context(), "moved"); err != nil {
		s.Error(err)
	}
	s.holds("dir/f", "f2")
}

// fsExchange swaps a directory and a link that leads out, while a name below is used.
func fsExchange(s fsSubject) {
	if s.Symlink == nil {
		s.Skip("there are no symbolic links in it")
	}
	const rounds = 200
	s.write("d/f", "inside")
	s.Symlink(s.T, "..", "x")
	done := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		defer close(done)
		for range rounds {
			for _, pair := range [][2]string{{"d", "t"}, {"x", "d"}, {"d", "x"}, {"t", "d"}} {
				if err := s.fs.Rename(s.Context(), pair[0], pair[1]); err != nil {
					s.Errorf("rename %s to %s: %v", pair[0], pair[1], err)
					return
				}
			}
		}
	})
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if got, err := s.read("d/f"); err == nil && got != "inside" {
			s.Errorf("read %q", got)
		} else if err != nil {
			s.refused("read", err, workspacefs.ErrEscape, workspacefs.ErrNotFound)
		}
		if err := s.fs.Remove(s.Context(), "d/none"); err != nil {
			s.refused("remove", err, workspacefs.ErrEscape, workspacefs.ErrNotFound)
		}
	}
	swapping.Wait()
}

func fsDevices(s fsSubject) {
	if s.FIFO == nil {
		s.Skip("there are no devices in it")
	}
	s.FIFO(s.T, "fifo")
	for _, method := range []string{"Open", "Replace", "InPlace", "Append"} {
		s.refused(method+" of a FIFO", s.one(method, "fifo"), workspacefs.ErrNotRegular)
	}
	s.refused("Create of a FIFO", s.one("Create", "fifo"), workspacefs.ErrNotRegular, workspacefs.ErrExists)
	if info, err := s.fs.Stat(s.Context(), "fifo"); err != nil || info.Mode().IsRegular() {
		s.Errorf("stat: %v, %v", info, err)
	}
	s.lists("", "fifo")
	if err := s.fs.Remove(s.Context(), "fifo"); err != nil {
		s.Error(err)
	}
}

// one calls one method that changes a name, or opens it.
func (s fsSubject) one(method, name string) error {
	switch method {
	case "Open":
		f, err := s.fs.Open(s.Context(), name)
		if err == nil {
			err = f.Close()
		}
		return err
	case "Replace":
		return s.fs.Write(s.Context(), name, []byte("x"), workspacefs.Replace, nil)
	case "InPlace":
		return s.fs.Write(s.Context(), name, []byte("x"), workspacefs.InPlace, nil)
	case "Append":
		return s.fs.Write(s.Context(), name, []byte("x"), workspacefs.Append, nil)
	default:
		return s.fs.Write(s.Context(), name, []byte("x"), workspacefs.Create, nil)
	}
}

func fsHardLinks(s fsSubject) {
	if s.HardLink == nil {
		s.Skip("there are no hard links in it")
	}
	s.write("a", "a")
	s.HardLink(s.T, "a", "b")
	for _, method := range []string{"Replace", "InPlace", "Append"} {
		s.refused(method, s.one(method, "b"), workspacefs.ErrHardLink)
	}
	s.holds("b", "a")
}

func fsConcurrent(s fsSubject) {
	const writers, rounds, size = 4, 25, 64 << 10
	s.write("f", strings.Repeat("0", size))
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for i := range writers {
		writing.Go(func() {
			content := bytes.Repeat([]byte{byte('0' + i)}, size)
			for range rounds {
				// Another writer may come between what is looked at and what is written: that is said.
				if err := s.fs.Write(s.Context(), "f", content, workspacefs.Replace,
					nil); err != nil && workspacefs.CodeOf(err) != workspacefs.ErrChanged {
					s.Errorf("replace: %v", err)
				}
			}
		})
	}
	reading.Go(func() {
		for {
			got, err := s.read("f")
			if err != nil || len(got) != size || strings.Count(got, got[:1]) != size {
				s.Errorf("a reader saw %d bytes of more than one writer, or none: %v", len(got), err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	writing.Wait()
	close(done)
	reading.Wait()
	s.lists("", "f")
	made := make([]bool, 16)
	for i := range made {
		writing.Go(func() {
			err := s.fs.Write(s.Context(), "new/one", fmt.Append(nil, i), workspacefs.Create, nil)
			made[i] = err == nil
			if err != nil {
				s.refused("create", err, workspacefs.ErrExists)
			}
		})
	}
	writing.Wait()
	winner := slices.Index(made, true)
	if winner < 0 || slices.Contains(made[winner+1:], true) {
		s.Fatalf("of those who created a file at once succeeded: %v; want one", made)
	}
	s.holds("new/one", fmt.Sprint(winner))
}

func fsReadOnly(s fsSubject) {
	s.write("dir/f", "content")
	s.write("other", "other")
	fsys := opened(s.T, s.Workspace, true)
	for _, name := range []string{"dir/f", "new", "new/deep", "other"} {
		for method, err := range s.all(s.Context(), fsys, name) {
			switch method {
			case "Open", "Stat", "ReadDir":
			default:
				s.refused(method+" of "+name, err, workspacefs.ErrReadOnly)
			}
		}
	}
	if got, _, err := workspacefs.ReadFile(s.Context(), fsys, "dir/f", 100); err != nil || string(got) != "content" {
		s.Errorf("%q, %v", got, err)
	}
	s.lists("", "dir/", "other")
}

func fsCancelled(s fsSubject) {
	s.write("dir/f", "content")
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for _, name := range []string{"dir/f", "dir", "new"} {
		for method, err := range s.all(ctx, s.fs, name) {
			if !errors.Is(err, context.Canceled) {
				s.Errorf("%s of %s: %v", method, name, err)
			}
		}
	}
	s.lists("", "dir/")
	s.holds("dir/f", "content")
}

func fsWalk(s fsSubject) {
	names := []string{"a.b", "a/b/x", "a/b.c", "a/c", "a0", "b", "ab/é"}
	for _, n := range names {
		s.write("top/"+n, n)
	}
	if err := s.fs.MkdirAll(s.Context(), "top/empty"); err != nil {
		s.Fatal(err)
	}
	bounds := workspacefs.Bounds{Entries: 100, Bytes: 10_000}
	for what, walk := range map[string]func(context.Context, workspacefs.FS, string, workspacefs.Bounds, workspacefs.Visit) error{
		"sorted": workspacefs.WalkSorted, "any order": workspacefs.Walk,
	} {
		var got, dirs []string
		err := walk(s.Context(), s.fs, "top", bounds, func(path string, e workspacefs.Entry) error {
			if e.Type.IsDir() {
				dirs = append(dirs, path)
			} else {
				got = append(got, path)
			}
			return nil
		})
		if what != "sorted" {
			slices.Sort(got)
		}
		slices.Sort(dirs)
		want := slices.Clone(names)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) || !slices.Equal(dirs, []string{"a", "a/b", "ab", "empty"}) {
			s.Errorf("%s: files %q, directories %q, %v; want %q", what, got, dirs, err, want)
		}
		s.refused(what+" over the bounds", walk(s.Context(), s.fs, "", workspacefs.Bounds{Entries: 3, Bytes: 10_000},
			func(string, workspacefs.Entry) error { return nil }), workspacefs.ErrTooMany)
	}
}

func fsRemoveTree(s fsSubject) {
	for _, name := range []string{"kept/f", "tree/f", "tree/a/b/c", "tree/a/d", "tree/-rf", "tree/a/ *"} {
		s.write(name, name)
	}
	if err := s.fs.MkdirAll(s.Context(), "tree/empty"); err != nil {
		s.Fatal(err)
	}
	if s.Symlink != nil {
		s.Symlink(s.T, "../kept", "tree/link")
		s.Symlink(s.T, "kept", "toplink")
	}
	all := func(name string, b workspacefs.Bounds) error {
		for range 10 {
			if more, err := workspacefs.RemoveTree(s.Context(), s.fs, name, b); err != nil || !more {
				return err
			}
		}
		return errors.New("there is always more")
	}
	if err := all("tree", workspacefs.Bounds{Entries: 4, Bytes: 10_000}); err != nil { // fewer than there are
		s.Error(err)
	}
	if s.Symlink != nil {
		if err := all("toplink", workspacefs.Bounds{Entries: 100, Bytes: 10_000}); err != nil {
			s.Error(err)
		}
	}
	s.lists("", "kept/")
	s.holds("kept/f", "kept/f")
	bounds := workspacefs.Bounds{Entries: 100, Bytes: 10_000}
	s.refused("removing a tree that is not there", all("tree", bounds), workspacefs.ErrNotFound)
	s.refused("removing the root", all("", bounds), workspacefs.ErrBadName)
	if err := all("kept/f", bounds); err != nil {
		s.Errorf("a file as a tree: %v", err)
	}
	_, err := s.read("kept/f")
	s.refused("reading it afterwards", err, workspacefs.ErrNotFound)
}
