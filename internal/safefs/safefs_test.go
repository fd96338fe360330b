package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/providers/workspacefs"
)

// each runs f against both ways of resolving names.
func each(t *testing.T, f func(t *testing.T, r *Root, dir string)) {
	t.Helper()
	for name, open := range map[string]func(string) (backend, error){"default": openBackend, "os.Root": openFallback} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "root")
			must(t, os.Mkdir(dir, 0o755))
			must(t, os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644))
			b, err := open(dir)
			must(t, err)
			r := &Root{at: b}
			t.Cleanup(func() { must(t, r.Close()) })
			f(t, r, dir)
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// populate makes every kind of file that a box can make.
func populate(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("aaa"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "sub/b"), []byte("bbb"), 0o644))
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "hard")))
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	for name, target := range map[string]string{
		"in": "sub/b", "indir": "sub", "out": "../secret", "outdir": "..", "abs": filepath.Join(dir, "a"), "etc": "/etc/passwd",
		"loop": "loop", "nowhere": "sub/new", "sub/up": "../a", "sub/upout": "../../secret", "dangling": "none/x",
		"proc": "/proc/self/root/etc/passwd",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		populate(t, dir)
		for _, c := range []struct {
			name, want string
			err        error
		}{
			{"a", "aaa", nil}, {"/a", "aaa", nil}, {"//./sub//b", "bbb", nil}, {"sub/../a", "", workspacefs.ErrBadName},
			{"../secret", "", workspacefs.ErrBadName},
			{"..", "", workspacefs.ErrBadName}, {"a\x00b", "", workspacefs.ErrBadName}, {"a\n", "", workspacefs.ErrBadName}, {"hard", "aaa", nil},
			{"in", "bbb", nil}, {"indir/b", "bbb", nil}, {"sub/up", "aaa", nil},
			{"out", "", workspacefs.ErrEscape}, {"outdir/secret", "", workspacefs.ErrEscape}, {"sub/upout", "", workspacefs.ErrEscape},
			{"abs", "", workspacefs.ErrEscape}, {"etc", "", workspacefs.ErrEscape},
			{"proc", "", workspacefs.ErrEscape}, {"out/", "", workspacefs.ErrEscape}, {"outdir/", "", workspacefs.ErrEscape},
			{"outdir", "", workspacefs.ErrEscape},
			{"loop", "", syscall.ELOOP}, {"dangling", "", fs.ErrNotExist}, {"none", "", fs.ErrNotExist}, {"a/b", "", syscall.ENOTDIR},
			{"sub", "", workspacefs.ErrIsDirectory}, {"", "", workspacefs.ErrIsDirectory}, {"/", "", workspacefs.ErrIsDirectory},
			{".", "", workspacefs.ErrIsDirectory}, {"fifo", "", workspacefs.ErrNotRegular},
			{strings.Repeat("x", 300), "", syscall.ENAMETOOLONG},
		} {
			got, _, err := workspacefs.ReadFile(t.Context(), r, c.name, 100)
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("read %q: %q, %v; want %q, %v", c.name, got, err, c.want, c.err)
			}
		}
		if _, _, err := workspacefs.ReadFile(t.Context(), r, "a", 2); !errors.Is(err, workspacefs.ErrTooLarge) {
			t.Errorf("above the limit: %v", err)
		}
	})
}

func TestWrite(t *testing.T) {
	t.Parallel()
	for _, mode := range []workspacefs.Mode{workspacefs.Replace, workspacefs.InPlace} {
		each(t, func(t *testing.T, r *Root, dir string) {
			populate(t, dir)
			must(t, os.Chmod(filepath.Join(dir, "sub/b"), 0o751))
			for _, c := range []struct {
				name, at string
				err      error
			}{
				{"new", "new", nil}, {"x/y/z", "x/y/z", nil}, {"in", "sub/b", nil}, {"indir/c", "sub/c", nil}, {"nowhere", "sub/new", nil},
				{"sub/b", "sub/b", nil},
				{"out", "", workspacefs.ErrEscape}, {"outdir/x", "", workspacefs.ErrEscape}, {"sub/upout", "", workspacefs.ErrEscape},
				{"etc", "", workspacefs.ErrEscape}, {"abs", "", workspacefs.ErrEscape},
				{"loop", "", syscall.ELOOP}, {"dangling", "", fs.ErrNotExist},
				{"hard", "", workspacefs.ErrHardLink}, {"fifo", "", workspacefs.ErrNotRegular},
				{"sub", "", workspacefs.ErrIsDirectory}, {"/", "", workspacefs.ErrIsDirectory}, {"../x", "", workspacefs.ErrBadName},
				{"a/b", "", syscall.ENOTDIR},
			} {
				err := r.Write(t.Context(), c.name, []byte("content"), mode, nil)
				if !errors.Is(err, c.err) {
					t.Errorf("write %q: %v; want %v", c.name, err, c.err)
				}
				if got, e := os.ReadFile(filepath.Join(dir, c.at)); c.err == nil && string(got) != "content" {
					t.Errorf("write %q: %s has %q, %v", c.name, c.at, got, e)
				}
			}
			if info, err := os.Stat(filepath.Join(dir, "sub/b")); err != nil || info.Mode().Perm() != 0o751 {
				t.Errorf("the mode was not kept: %v, %v", info, err)
			}
			if info, err := os.Lstat(filepath.Join(dir, "in")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("the link was not kept: %v, %v", info, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "../secret")); string(got) != "secret" {
				t.Errorf("something outside was changed: %q, %v", got, err)
			}
			if temps, err := filepath.Glob(filepath.Join(dir, ".sandjet*")); len(temps) != 0 {
				t.Errorf("left behind: %q, %v", temps, err)
			}
		})
	}
}

func TestWriteModes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, _ string) {
		content := func() string {
			b, _, err := workspacefs.ReadFile(t.Context(), r, "f", 100)
			must(t, err)
			return string(b)
		}
		must(t, r.Write(t.Context(), "f", []byte("one"), workspacefs.Create, nil))
		if err := r.Write(t.Context(), "f", []byte("two"), workspacefs.Create, nil); !errors.Is(err, fs.ErrExist) || content() != "one" {
			t.Errorf("create of what exists: %v, %q", err, content())
		}
		must(t, r.Write(t.Context(), "f", []byte("+two"), workspacefs.Append, nil))
		must(t, r.Write(t.Context(), "g", []byte("new"), workspacefs.Append, nil))
		was, err := r.Stat(t.Context(), "f")
		must(t, err)
		if content() != "one+two" {
			t.Errorf("append: %q", content())
		}
		must(t, r.Write(t.Context(), "f", []byte("three"), workspacefs.Replace, was))
		for _, mode := range []workspacefs.Mode{workspacefs.Replace, workspacefs.InPlace, workspacefs.Append} {
			if err := r.Write(t.Context(), "f", []byte("x"), mode, was); !errors.Is(err, workspacefs.ErrChanged) {
				t.Errorf("mode %d over a changed file: %v", mode, err)
			}
		}
		must(t, r.Remove(t.Context(), "g"))
		if err := r.Write(t.Context(), "g", []byte("x"), workspacefs.Replace, was); !errors.Is(err, workspacefs.ErrChanged) {
			t.Errorf("write over a removed file: %v", err)
		}
		r.opt.ReadOnly = true
		if err := errors.Join(r.Remove(t.Context(), "f"), r.MkdirAll(t.Context(), "d")); !errors.Is(err, workspacefs.ErrReadOnly) {
			t.Errorf("read-only: %v", err)
		}
		if err := r.Write(t.Context(), "f", nil, workspacefs.Replace, nil); !errors.Is(err, workspacefs.ErrReadOnly) || content() != "three" {
			t.Errorf("read-only write: %v, %q", err, content())
		}
	})
}

func TestOwner(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		longtest.Missing(t, "only root gives files away")
	}
	each(t, func(t *testing.T, r *Root, dir string) {
		const uid, gid = 165537, 165538
		r.opt.UID, r.opt.GID = uid, gid
		must(t, r.Write(t.Context(), "d/e/f", []byte("x"), workspacefs.Replace, nil))
		must(t, r.Write(t.Context(), "d/e/f", []byte("y"), workspacefs.Replace, nil))
		must(t, r.Write(t.Context(), "d/e/g", []byte("x"), workspacefs.InPlace, nil))
		must(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
		must(t, os.Chown(filepath.Join(dir, "other"), 7, 8))
		must(t, r.Write(t.Context(), "other", []byte("y"), workspacefs.Replace, nil))
		for name, want := range map[string][2]uint32{"d": {uid, gid}, "d/e": {uid, gid}, "d/e/f": {uid, gid}, "d/e/g": {uid, gid},
			"other": {7, 8}} {
			info, err := os.Stat(filepath.Join(dir, name))
			must(t, err)
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || [2]uint32{st.Uid, st.Gid} != want {
				t.Errorf("%s: owner %v; want %v", name, st, want)
			}
		}
	})
}

// nothing is a visitor of walks that does nothing.
func nothing(string, workspacefs.Entry) error { return nil }

// plenty is for walks that are not to end early.
var plenty = workspacefs.Bounds{Entries: 1000, Bytes: 1 << 20}

// TestWalkSorted: a walk visits paths in the order of the whole paths, also where sorting the names of each directory would give another
// order.
func TestWalkSorted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		names := []string{"a", "a.b", "a/c", "a/b/x", "a/b.c", "a0", "ab/é", "b-/z", "b/z", "b+", "ä/1"}
		var want []string
		for _, n := range names {
			n = "top/" + n
			if n == "top/a" {
				n = "top/a-"
			}
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, n)), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, n), nil, 0o644))
			want = append(want, strings.TrimPrefix(n, "top/"))
		}
		slices.Sort(want)
		var got []string
		must(t, os.Symlink("a", filepath.Join(dir, "top/link")))
		must(t, workspacefs.WalkSorted(t.Context(), r, "top", plenty, func(path string, e workspacefs.Entry) error {
			if e.Type.IsRegular() {
				got = append(got, path)
			}
			if _, err := e.Info(); err == nil {
				t.Errorf("%s has an info", path)
			}
			return nil
		}))
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		for _, walk := range []func(context.Context, workspacefs.FS, string, workspacefs.Bounds,
			workspacefs.Visit) error{workspacefs.Walk, workspacefs.WalkSorted} {
			for _, name := range []string{"top/a-", "none", "top/link/c"} {
				if err := walk(t.Context(), r, name, plenty, nothing); err == nil {
					t.Errorf("%s is walked", name)
				}
			}
			skip := func(path string, e workspacefs.Entry) error {
				if e.Type.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			must(t, walk(t.Context(), r, "top", plenty, skip))
		}
	})
}

// TestWalksHoldBoundedNames: the bytes of names that a walk holds because it has not visited them yet are limited. Directories that it has
// left do not count any more.
//
//guarantee:what-one-tenant-can-do-to-another
func TestWalksHoldBoundedNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		long := strings.Repeat("n", 200)
		for _, top := range []string{"a", "b", "c"} {
			for i := range 20 {
				must(t, os.MkdirAll(filepath.Join(dir, top, fmt.Sprintf("%s%02d", long, i), "x"), 0o755))
			}
		}
		for name, walk := range map[string]func(context.Context, workspacefs.FS, string, workspacefs.Bounds,
			workspacefs.Visit) error{"any order": workspacefs.Walk, "sorted": workspacefs.WalkSorted} {
			if err := walk(t.Context(), r, "", workspacefs.Bounds{Entries: 1000, Bytes: 4000}, nothing); !errors.Is(err, workspacefs.ErrTooMany) {
				t.Errorf("%s: more names than may be held: %v", name, err)
			}
			if err := walk(t.Context(), r, "", workspacefs.Bounds{Entries: 1000, Bytes: 8000}, nothing); err != nil { // one of the three at a time
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestWalk(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		populate(t, dir)
		var got []string
		visit := func(path string, e workspacefs.Entry) error {
			if e.Type.IsRegular() {
				info, err := e.Info()
				if err != nil || info.Size != 3 || time.Since(info.ModTime) > time.Hour {
					t.Errorf("%s: %+v, %v", path, info, err)
				}
			}
			if path == "sub/deep" {
				return fs.SkipDir
			}
			if e.Type&fs.ModeSymlink == 0 {
				got = append(got, path)
			}
			return nil
		}
		must(t, os.WriteFile(filepath.Join(dir, "sub/deep/c"), nil, 0o644))
		must(t, workspacefs.Walk(t.Context(), r, "", plenty, visit))
		slices.Sort(got)
		if want := []string{"a", "fifo", "hard", "sub", "sub/b"}; !slices.Equal(got, want) {
			t.Errorf("walked %q; want %q", got, want)
		}
		if err := workspacefs.Walk(t.Context(), r, "", workspacefs.Bounds{Entries: 3, Bytes: 1 << 20},
			nothing); !errors.Is(err, workspacefs.ErrTooMany) {
			t.Errorf("walk over the limit: %v", err)
		}
		if err := workspacefs.Walk(t.Context(), r, "outdir", plenty, func(string,
			workspacefs.Entry) error {
			return nil
		}); !errors.Is(err, workspacefs.ErrEscape) {
			t.Errorf("walk outside: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := workspacefs.Walk(ctx, r, "", plenty, nothing); !errors.Is(err, context.Canceled) {
			t.Errorf("walk of a cancelled context: %v", err)
		}
	})
}

func TestRemove(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		populate(t, dir)
		must(t, r.Remove(t.Context(), "out")) // the link, not the secret
		must(t, r.Remove(t.Context(), "sub/deep"))
		if err := r.Remove(t.Context(), "sub"); err == nil {
			t.Error("a full directory was removed")
		}
		if err := r.Remove(t.Context(), "outdir/secret"); !errors.Is(err, workspacefs.ErrEscape) {
			t.Errorf("removal outside: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "../secret")); err != nil {
			t.Error(err)
		}
	})
}

func TestRename(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		populate(t, dir)
		for _, c := range []struct {
			from, to string
			code     workspacefs.Code
		}{
			{"a", "sub/deep/a", ""}, {"sub/deep/a", "sub/b", ""}, {"in", "sub/in", ""}, {"out", "a", ""}, {"indir/b", "b", ""},
			{"sub", "moved", ""}, {"b", "b", ""},
			{"b", "moved", workspacefs.ErrIsDirectory}, {"moved", "b", workspacefs.ErrExists}, {"none", "x", workspacefs.ErrNotFound},
			{"b", "none/x", workspacefs.ErrNotFound},
			{"b", "../x", workspacefs.ErrBadName}, {"b", "outdir/x", workspacefs.ErrEscape}, {"outdir/secret", "x", workspacefs.ErrEscape},
			{".", "x", workspacefs.ErrBadName},
			{"moved", "b/x", workspacefs.ErrNotDirectory},
		} {
			if err := r.Rename(t.Context(), c.from, c.to); workspacefs.CodeOf(err) != c.code || (err == nil) != (c.code == "") {
				t.Errorf("rename %q to %q: %v; want code %q", c.from, c.to, err, string(c.code))
			}
		}
		if got, err := os.ReadFile(filepath.Join(dir, "b")); string(got) != "aaa" {
			t.Errorf("b holds %q, %v", got, err)
		}
		if target, err := os.Readlink(filepath.Join(dir, "a")); target != "../secret" {
			t.Errorf("the link itself was not moved: %q, %v", target, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "../secret")); string(got) != "secret" {
			t.Errorf("outside: %q, %v", got, err)
		}
	})
}

//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestPlace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *Root, dir string) {
		at := func(name string) string { return filepath.Join(dir, name) }
		write := func(name, text string) { must(t, os.WriteFile(at(name), []byte(text), 0o644)) }
		place := func(from, to string, was fs.FileInfo, want workspacefs.Code) {
			t.Helper()
			if err := r.Place(t.Context(), from, to, was); workspacefs.CodeOf(err) != want || (err == nil) != (want == "") {
				t.Errorf("%s to %s: got %v, want %q", from, to, err, string(want))
			}
		}
		holds := func(name, want string) {
			t.Helper()
			if got, err := os.ReadFile(at(name)); string(got) != want {
				t.Errorf("%s holds %q, %v; want %q", name, got, err, want)
			}
		}
		must(t, os.Mkdir(at("sub"), 0o755))
		write("new", "new")
		place("new", "sub/x", nil, "")
		holds("sub/x", "new")
		if _, err := os.Lstat(at("new")); err == nil {
			t.Error("the old name stays")
		}
		write("new", "newer")
		place("new", "sub/x", nil, workspacefs.ErrExists)
		holds("sub/x", "new")
		was, err := r.Stat(t.Context(), "sub/x")
		must(t, err)
		write("sub/x", "changed meanwhile")
		place("new", "sub/x", was, workspacefs.ErrChanged)
		holds("sub/x", "changed meanwhile")
		was, err = r.Stat(t.Context(), "sub/x")
		must(t, err)
		place("new", "sub/x", was, "")
		holds("sub/x", "newer")
		write("new", "newest")
		place("new", "sub/x", was, workspacefs.ErrChanged) // another file has the name
		must(t, os.Remove(at("sub/x")))
		place("new", "sub/x", was, workspacefs.ErrChanged)
		must(t, os.Symlink("../../secret", at("sub/link")))
		place("new", "sub/link", nil, workspacefs.ErrExists)
		place("sub", "moved", nil, workspacefs.ErrNotRegular)
		place("none", "x", nil, workspacefs.ErrNotFound)
		place("new", "../x", nil, workspacefs.ErrBadName)
		if b, is := r.at.(interface{ renameByLink(from, to string) error }); is {
			must(t, b.renameByLink("new", "sub/y"))
			holds("sub/y", "newest")
			write("new", "n")
			if err := b.renameByLink("new", "sub/y"); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a second name replaced one: %v", err)
			}
		}
	})
}
