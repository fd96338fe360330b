package providertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

// Workspace is a workspace whose files [RunFS] tests.
type Workspace struct {
	// Open opens its files, any number of times. The suite closes them.
	Open func(t *testing.T, readOnly bool) workspacefs.FS
	// Symlink, HardLink and FIFO put something there that no method of an FS makes. Nil: it can never be there.
	Symlink  func(t *testing.T, target, name string)
	HardLink func(t *testing.T, old, name string)
	FIFO     func(t *testing.T, name string)
}

// RunFS tests that an implementation of [workspacefs.FS] fulfils its contract. Fresh makes an empty workspace for each case. Except names
// cases that the store cannot fulfil and that its own tests cover.
func RunFS(t *testing.T, fresh func(t *testing.T) Workspace, except ...string) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(s fsSubject)
	}{
		{"what is written is read, whole and in ranges", fsContent},
		{"a mode says what a write does with what is there", fsModes},
		{"a write over a file that has changed is refused", fsChanged},
		{"names are sequences of bytes", fsNames},
		{"a name that leads up is refused by every method", fsTraversal},
		{"directories are made, listed and removed", fsDirectories},
		{"a long directory is listed to its end", fsLong},
		{"files and directories get other names", fsRename},
		{"links are followed below the root and nowhere else", fsSymlinks},
		{"a link that is exchanged for a directory leads nowhere else", fsExchange},
		{"a device is not opened", fsDevices},
		{"a file with several names is not written", fsHardLinks},
		{"a replaced file is whole at every moment", fsConcurrent},
		{"a read-only workspace is changed by nothing", fsReadOnly},
		{"a context that has ended ends every method", fsCancelled},
		{"a walk visits everything below, in order when asked", fsWalk},
		{"a tree is removed with all that is in it", fsRemoveTree},
	} {
		if slices.Contains(except, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := fresh(t)
			c.run(fsSubject{T: t, Workspace: w, fs: opened(t, w, false)})
		})
	}
}

func opened(t *testing.T, w Workspace, readOnly bool) workspacefs.FS {
	t.Helper()
	fsys := w.Open(t, readOnly)
	t.Cleanup(func() {
		if err := fsys.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return fsys
}

// fsSubject is one empty workspace in one test.
type fsSubject struct {
	*testing.T
	Workspace

	fs workspacefs.FS
}

func (s fsSubject) write(name, content string) {
	s.Helper()
	if err := s.fs.Write(s.Context(), name, []byte(content), workspacefs.Replace, nil); err != nil {
		s.Fatalf("write %.60q: %v", name, err)
	}
}

func (s fsSubject) read(name string) (string, error) {
	content, _, err := workspacefs.ReadFile(s.Context(), s.fs, name, 64<<20)
	return string(content), err
}

// holds fails the test unless a file has that content.
func (s fsSubject) holds(name, content string) {
	s.Helper()
	if got, err := s.read(name); err != nil || got != content {
		s.Errorf("%.60q holds %d bytes %.60q, %v; want %d bytes %.60q", name, len(got), got, err, len(content), content)
	}
}

// refused fails the test unless the error has one of the codes.
func (s fsSubject) refused(what string, err error, codes ...workspacefs.Code) {
	s.Helper()
	if err == nil || !slices.Contains(codes, workspacefs.CodeOf(err)) {
		s.Errorf("%s: %v (code %q); want one of %+q", what, err, string(workspacefs.CodeOf(err)), names(codes))
	}
}

func names(codes []workspacefs.Code) (list []string) {
	for _, c := range codes {
		list = append(list, string(c))
	}
	return list
}

// list returns the sorted names in a directory, directories with a slash.
func (s fsSubject) list(name string) []string {
	s.Helper()
	var names []string
	if err := s.fs.ReadDir(s.Context(), name, true, func(e workspacefs.Entry) error {
		n := e.Name
		if e.Type.IsDir() {
			n += "/"
		}
		names = append(names, n)
		return nil
	}); err != nil {
		s.Errorf("list %q: %v", name, err)
	}
	slices.Sort(names)
	return names
}

func (s fsSubject) lists(name string, want ...string) {
	s.Helper()
	if got := s.list(name); !slices.Equal(got, want) {
		s.Errorf("%q lists %q; want %q", name, got, want)
	}
}

// all calls every method on a name and returns their errors, nil for success.
func (s fsSubject) all(ctx context.Context, fsys workspacefs.FS, name string) map[string]error {
	open := func() error {
		f, err := fsys.Open(ctx, name)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	stat := func() error { _, err := fsys.Stat(ctx, name); return err }
	return map[string]error{
		"Open": open(), "Stat": stat(),
		"ReadDir":  fsys.ReadDir(ctx, name, true, func(workspacefs.Entry) error { return nil }),
		"Replace":  fsys.Write(ctx, name, []byte("x"), workspacefs.Replace, nil),
		"InPlace":  fsys.Write(ctx, name, []byte("x"), workspacefs.InPlace, nil),
		"Create":   fsys.Write(ctx, name, []byte("x"), workspacefs.Create, nil),
		"Append":   fsys.Write(ctx, name, []byte("x"), workspacefs.Append, nil),
		"MkdirAll": fsys.MkdirAll(ctx, name), "Remove": fsys.Remove(ctx, name),
		"Rename from": fsys.Rename(ctx, name, "other"), "Rename to": fsys.Rename(ctx, "other", name),
	}
}

func fsContent(s fsSubject) {
	big := strings.Repeat("0123456789abcdef", 512<<10) // 8 MiB
	for name, content := range map[string]string{"empty": "", "a/b/c": "content\x00\xff\n", "big": big} {
		s.write(name, content)
		s.holds(name, content)
		info, err := s.fs.Stat(s.Context(), name)
		if err != nil || info.Size() != int64(len(content)) || !info.Mode().IsRegular() || info.ModTime().IsZero() {
			s.Errorf("stat %s: %+v, %v", name, info, err)
		}
	}
	f, err := s.fs.Open(s.Context(), "big")
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	buf := make([]byte, 20)
	for _, at := range []int64{5, 0, int64(len(big)) - 20} {
		if n, err := f.ReadAt(buf, at); n != len(buf) || err != nil && !errors.Is(err, io.EOF) || string(buf) != big[at:at+20] {
			s.Errorf("range at %d: %q, %v", at, buf[:n], err)
		}
	}
	if n, err := f.ReadAt(buf, int64(len(big))-5); n != 5 || !errors.Is(err, io.EOF) {
		s.Errorf("a range over the end: %d, %v; want 5 and EOF", n, err)
	}
	if n, err := io.ReadFull(f, buf); err != nil || string(buf) != big[:20] {
		s.Errorf("reading after ranges begins with %q, %v", buf[:n], err)
	}
	if rest, err := io.ReadAll(f); err != nil || len(rest) != len(big)-20 {
		s.Errorf("reading on: %d bytes, %v", len(rest), err)
	}
	if info, err := f.Stat(); err != nil || info.Size() != int64(len(big)) {
		s.Errorf("an open file describes itself as %+v, %v", info, err)
	}
	_, err = s.read("none")
	s.refused("a file that is not there", err, workspacefs.ErrNotFound)
	if !errors.Is(err, fs.ErrNotExist) {
		s.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = s.read("big/below")
	s.refused("a file below a file", err, workspacefs.ErrNotDirectory)
	_, err = s.read("a/b")
	s.refused("a directory", err, workspacefs.ErrIsDirectory)
}

func fsModes(s fsSubject) {
	write := func(name, content string, m workspacefs.Mode) error {
		return s.fs.Write(s.Context(), name, []byte(content), m, nil)
	}
	for _, m := range []workspacefs.Mode{workspacefs.Replace, workspacefs.InPlace, workspacefs.Create, workspacefs.Append} {
		name := fmt.Sprintf("deep/%d/file", m)
		if err := write(name, "one", m); err != nil {
			s.Errorf("mode %d makes no file: %v", m, err)
		}
		s.holds(name, "one")
		s.refused(fmt.Sprintf("mode %d over a directory", m), write("deep", "x", m), workspacefs.ErrIsDirectory)
		s.refused(fmt.Sprintf("mode %d over the root", m), write("/", "x", m), workspacefs.ErrIsDirectory)
		s.refused(fmt.Sprintf("mode %d below a file", m), write(name+"/x", "x", m), workspacefs.ErrNotDirectory)
	}
	s.refused("creating what is there", write("deep/0/file", "two", workspacefs.Create), workspacefs.ErrExists)
	s.holds("deep/0/file", "one")
	for m, want := range map[workspacefs.Mode]string{workspacefs.Replace: "2", workspacefs.InPlace: "2", workspacefs.Append: "one2"} {
		name := fmt.Sprintf("deep/%d/file", m)
		if err := write(name, "2", m); err != nil {
			s.Errorf("mode %d: %v", m, err)
		}
		s.holds(name, want)
	}
	s.lists("deep/0", "file")
}

func fsChanged(s fsSubject) {
	for _, m := range []workspacefs.Mode{workspacefs.Replace, workspacefs.InPlace, workspacefs.Append} {
		name := fmt.Sprintf("file%d", m)
		s.write(name, "one")
		was, err := s.fs.Stat(s.Context(), name)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.fs.Write(s.Context(), name, []byte("three"), m, was); err != nil {
			s.Errorf("mode %d over the file as it was: %v", m, err)
		}
		s.refused(fmt.Sprintf("mode %d over a changed file", m), s.fs.Write(s.Context(), name, []byte("x"), m, was), workspacefs.ErrChanged)
		f, err := s.fs.Open(s.Context(), name)
		if err != nil {
			s.Fatal(err)
		}
		if was, err = f.Stat(); err != nil {
			s.Fatal(err)
		}
		_ = f.Close() // it was only read
		if err := s.fs.Remove(s.Context(), name); err != nil {
			s.Fatal(err)
		}
		s.refused(fmt.Sprintf("mode %d over a removed file", m), s.fs.Write(s.Context(), name, []byte("x"), m, was), workspacefs.ErrChanged)
		_, err = s.read(name)
		s.refused("reading it afterwards", err, workspacefs.ErrNotFound)
	}
}

func fsNames(s fsSubject) {
	names := []string{
		" ", "-rf", "a b", "a'b\"c", `a\b`, "*", "?[a]", "$HOME", "a;b|c&d", "~", ".hidden", "...", "é", "e\u0301", "日本", "\u202e", "a\tb", "a\rb", "a\x7f\x01", "%2e%2e", "a%00b",
		"con", "a.", "a:b", "..a", "a..", strings.Repeat("n", 255), "\xff\xfe",
	}
	var kept []string
	for _, n := range names {
		err := s.fs.Write(s.Context(), "dir/"+n, []byte(n), workspacefs.Create, nil)
		if code := workspacefs.CodeOf(err); n == "\xff\xfe" && (code == workspacefs.ErrBadName || code == workspacefs.ErrTooLong) {
			continue // it cannot be stored, and that is said
		}
		if err != nil {
			s.Errorf("write %q: %v", n, err)
			continue
		}
		kept = append(kept, n)
	}
	for _, n := range kept { // after all are there: names that become one would show
		s.holds("dir/"+n, n)
	}
	slices.Sort(kept)
	s.lists("dir", kept...)
	for _, n := range kept {
		if err := s.fs.Remove(s.Context(), "dir/"+n); err != nil {
			s.Errorf("remove %q: %v", n, err)
		}
	}
	s.lists("dir")
	for _, same := range []string{"x", "/x", "//x", "./x", "x/", "./././x", "x/."} {
		s.write(same, "by "+same)
		s.holds("x", "by "+same)
		s.holds(same, "by "+same)
	}
	s.lists("", "dir/", "x")
}

func fsTraversal(s fsSubject) {
	s.write("dir/f", "f")
	for _, name := range []string{"..", "../x", "/../x", "dir/../f", "dir/../../x", "dir/..", "a\x00b", "a\nb"} {
		for method, err := range s.all(s.Context(), s.fs, name) {
			s.refused(fmt.Sprintf("%s of %q", method, name), err, workspacefs.ErrBadName)
		}
	}
	s.refused("removing the root", s.fs.Remove(s.Context(), ""), workspacefs.ErrBadName)
	s.refused("renaming the root", s.fs.Rename(s.Context(), ".", "x"), workspacefs.ErrBadName)
	s.refused("renaming to the root", s.fs.Rename(s.Context(), "dir", "/"), workspacefs.ErrBadName)
	s.lists("", "dir/")
}
