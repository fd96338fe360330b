package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/providers/workspacefs"
)

// FuzzVerdict asks both ways of resolving names for the same thing: they must agree.
//
//guarantee:a-run-stays-in-its-box
func FuzzVerdict(f *testing.F) {
	for _, seed := range [][2]string{
		{"a", "a"}, {"l", "../secret"}, {"l", "/etc/passwd"}, {"d/l", "../../secret"}, {"l/x", "d"}, {"l", "l"}, {"l/", "d/../.."},
		{"d/l/..", "."}, {"l", "d/./b"}, {"l", "d//b/"}, {"l", "a/"}, {"l/b", "d/"}, {"l", "d/../a/../b"}, {"l", ".."}, {"l", "d/.."},
		{"/l", ""}, {"l", "x/../a"}, {"d/../a", "a"}, {"l", "."}, {"a/.", ""}, {"l\x00", "a"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, target string) {
		base := t.TempDir()
		dir := filepath.Join(base, "root")
		must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o755))
		must(t, os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o644))
		must(t, os.WriteFile(filepath.Join(dir, "d/b"), []byte("b"), 0o644))
		for _, link := range []string{"l", "d/l"} {
			_ = os.Symlink(target, filepath.Join(dir, link)) // some targets are no names
		}
		var words [2]string
		var contents [2]string
		for i, open := range []func(string) (backend, error){openBackend, openFallback} {
			b, err := open(dir)
			must(t, err)
			r := &Root{at: b}
			content, _, err := workspacefs.ReadFile(t.Context(), r, name, 100)
			words[i], contents[i] = verdict(err), string(content)
			must(t, r.Close())
		}
		if words[0] != words[1] || contents[0] != contents[1] {
			t.Errorf("%q with links to %q: %s %q, and by os.Root %s %q", name, target, words[0], contents[0], words[1], contents[1])
		}
		if contents[0] == "secret" {
			t.Errorf("%q with links to %q escaped", name, target)
		}
	})
}

// verdict returns the kind of an error, as far as callers distinguish kinds. If a path both leads out of the root and leads nowhere,
// either error may be found first, so both are "refused".
func verdict(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, workspacefs.ErrBadName):
		return "name"
	case errors.Is(err, workspacefs.ErrIsDirectory):
		return "directory"
	case errors.Is(err, workspacefs.ErrEscape), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return "refused"
	}
	return err.Error()
}

func BenchmarkReadFile(b *testing.B) {
	const size = 4 << 10
	dir := b.TempDir()
	must(b, os.MkdirAll(filepath.Join(dir, "some/folder"), 0o755))
	must(b, os.WriteFile(filepath.Join(dir, "some/folder/file"), make([]byte, size), 0o644))
	for name, open := range map[string]func(string) (backend, error){"default": openBackend, "os.Root": openFallback} {
		b.Run(name, func(b *testing.B) {
			at, err := open(dir)
			must(b, err)
			r := &Root{at: at}
			for b.Loop() {
				if _, _, err := workspacefs.ReadFile(b.Context(), r, "some/folder/file", size); err != nil {
					b.Fatal(err)
				}
			}
			must(b, r.Close())
		})
	}
}
