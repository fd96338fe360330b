package filesync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

// host is a worker's host: a folder of copies.
type host struct {
	*Copies

	t      *testing.T
	folder string
	w      schemas.Workspace
}

// folders opens workspaces below a folder.
type folders string

func (f folders) OpenWorkspace(_ context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	dir := filepath.Join(string(f), m.Namespace)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return safefs.Open(dir, safefs.Options{ReadOnly: m.ReadOnly})
}

func newHost(t *testing.T, url, prefix string) *host {
	t.Helper()
	h := &host{t: t, folder: t.TempDir(), w: schemas.Workspace{Account: "acct_1", ID: "ws_000000000000000000000001", Storage: "s3"}}
	h.Copies = &Copies{
		Files: folders(h.folder), Dir: t.TempDir(), Limits: DefaultLimits(), Log: slog.New(slog.DiscardHandler),
		Workspace: func(context.Context, schemas.AccountID, schemas.WorkspaceID) (schemas.Workspace, error) {
			return h.w, nil
		},
		Bucket: func(context.Context, schemas.Workspace) (*bucket.Bucket, error) { return bucketAt(t, url, prefix), nil },
	}
	return h
}

func bucketAt(t *testing.T, url, prefix string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: prefix, Endpoint: url, PathStyle: true,
		Credentials: bucket.Static(s3test.Key, s3test.Secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (h *host) path(name string) string {
	return filepath.Join(h.folder, schemas.Namespace(h.w.Account, h.w.ID), name)
}

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(h.path(name)), 0o700), os.WriteFile(h.path(name), []byte(text), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(name string) {
	h.t.Helper()
	if err := os.RemoveAll(h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// begin is a use that changes files, and must begin.
func (h *host) begin() *Use {
	h.t.Helper()
	u, r, err := h.Begin(h.t.Context(), h.w, true)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, n := range r.Notices {
		h.t.Log("begin:", n)
	}
	return u
}

func (h *host) end(u *Use) Report {
	h.t.Helper()
	r, err := u.End(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// sweep writes out what dead uses have left.
func (h *host) sweep(ctx context.Context) {
	w := newWriteBack(h.Copies)
	w.sweep(ctx)
	w.start(ctx, time.Now())
	w.running.Wait()
}

// call is a whole use.
func (h *host) call(do func()) Report {
	h.t.Helper()
	u := h.begin()
	do()
	return h.end(u)
}

// files are those of the copy.
func (h *host) files() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	root := h.path("")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		all[name] = string(data)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// objects are what is in the bucket.
func objects(t *testing.T, b *bucket.Bucket) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := b.List(t.Context(), "", func(o bucket.Object) error {
		data, _, err := b.Get(t.Context(), o.Name, "", 0, bucket.PartSize)
		all[o.Name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func wantFiles(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		base          bool
		local, remote state
		want          [3]action // unused, others, ours
	}{
		{false, absent, absent, [3]action{nothing, nothing, nothing}},
		{false, absent, changed, [3]action{bringIn, bringIn, bringIn}},
		{false, changed, absent, [3]action{nothing, nothing, create}},
		{false, changed, changed, [3]action{settle, settle, settle}},
		{true, absent, absent, [3]action{forget, forget, forget}},
		{true, absent, same, [3]action{bringIn, nothing, dropObject}},
		{true, absent, changed, [3]action{bringIn, bringIn, bringIn}},
		{true, same, absent, [3]action{dropCopy, dropCopy, dropCopy}},
		{true, same, same, [3]action{nothing, nothing, nothing}},
		{true, same, changed, [3]action{bringIn, bringIn, bringIn}},
		{true, changed, absent, [3]action{nothing, nothing, create}},
		{true, changed, same, [3]action{nothing, nothing, replace}},
		{true, changed, changed, [3]action{settle, settle, settle}},
	} {
		for u, want := range c.want {
			if got := decide(c.base, c.local, c.remote, usage(u)); got != want {
				t.Errorf("base %t, copy %d, bucket %d, use %d: got %s, want %s", c.base, c.local, c.remote, u, got, want)
			}
		}
	}
}

func TestTwoHostsShareAWorkspace(t *testing.T) { s3test.Each(t, "files", twoHostsShareAWorkspace) }

func twoHostsShareAWorkspace(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), newHost(t, s.URL, "w/")
	a.call(func() {
		a.write("notes.txt", "one")
		a.write("src/main.go", "package main")
		a.write("large", strings.Repeat("x", bucket.PartSize+7))
	})
	b.call(func() {
		wantFiles(t, "second host", b.files(), a.files())
		b.write("notes.txt", "two")
		b.remove("src")
	})
	r := a.call(func() {
		if got := a.files(); got["notes.txt"] != "two" || got["src/main.go"] != "" {
			t.Errorf("the first host has %v", slices.Collect(maps.Keys(got)))
		}
		if _, err := os.Stat(a.path("src")); err == nil {
			t.Error("an empty folder stays")
		}
	})
	if r.Out != 0 || r.In != 0 || len(r.Notices) != 0 {
		t.Errorf("a call that changes nothing: %+v", r)
	}
}

//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestConflictsKeepBothVersions(t *testing.T) { s3test.Each(t, "files", conflictsKeepBothVersions) }

func conflictsKeepBothVersions(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), newHost(t, s.URL, "w/")
	a.call(func() {
		a.write("both", "base")
		a.write("gone", "base")
		a.write("edited", "base")
		a.write("equal", "base")
	})
	ub := b.begin()
	ua := a.begin()
	a.write("both", "of a")
	a.remove("gone")
	a.remove("edited")
	a.write("equal", "the same")
	a.write("new", "of a")
	b.write("both", "of b")
	b.remove("gone")
	b.write("edited", "of b")
	b.write("equal", "the same")
	b.write("new", "of b")
	a.end(ua)
	r := b.end(ub)
	told := strings.Join(r.Notices, "\n")
	want := map[string]string{"both": "of a", "new": "of a", "equal": "the same", "edited": "of b"}
	for name, text := range b.files() {
		if base, _, beside := strings.Cut(name, ".conflict-"); beside {
			if text != "of b" || !strings.Contains(told, name) {
				t.Errorf("%s is %q; told: %s", name, text, told)
			}
			want[name] = text
			delete(want, "-"+base)
		}
	}
	if len(want) != 6 || !strings.Contains(told, "edited was removed on S3") {
		t.Errorf("want two files beside: %v; told: %s", want, told)
	}
	wantFiles(t, "copy", b.files(), want)
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
	a.call(func() { wantFiles(t, "first host", a.files(), want) })
}

func TestARemovalDoesNotTakeANewerVersion(t *testing.T) {
	s3test.Each(t, "files", aRemovalDoesNotTakeANewerVersion)
}

func aRemovalDoesNotTakeANewerVersion(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), newHost(t, s.URL, "w/")
	a.call(func() { a.write("x", "one"); a.write("y", "one") })
	ub := b.begin()
	b.remove("x")
	b.write("z", "new of b")
	a.call(func() { a.write("x", "two"); a.write("later", "never seen by b") })
	b.end(ub)
	want := map[string]string{"x": "two", "y": "one", "z": "new of b", "later": "never seen by b"}
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
	wantFiles(t, "copy", b.files(), want)
}

func TestOneHostsCallsShareACopy(t *testing.T) { s3test.Each(t, "files", oneHostsCallsShareACopy) }

func oneHostsCallsShareACopy(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.call(func() { a.write("x", "one"); a.write("y", "one") })
	first := a.begin()
	a.remove("x")
	a.write("y", "two")
	second := a.begin() // brings nothing back that the first has removed
	wantFiles(t, "copy", a.files(), map[string]string{"y": "two"})
	a.end(second)
	a.end(first)
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"y": "two"})
}

//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestALostCopyRemovesNothing(t *testing.T) { s3test.Each(t, "files", aLostCopyRemovesNothing) }

func aLostCopyRemovesNothing(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.call(func() { a.write("x", "one"); a.write("dir/y", "one") })
	want := a.files()
	a.remove("")
	a.call(func() { wantFiles(t, "copy", a.files(), want) })
	u := a.begin() // and also when its process died
	u.Leave()
	if err := os.Rename(a.path(""), a.path("")+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	a.call(func() { wantFiles(t, "copy", a.files(), want) })
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
	if err := os.WriteFile(filepath.Join(a.Dir, schemas.Namespace(a.w.Account, a.w.ID), baseFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.call(func() { wantFiles(t, "copy", a.files(), want) })
}

func TestWhatCannotBeStoredIsNamed(t *testing.T) { s3test.Each(t, "files", whatCannotBeStoredIsNamed) }

func whatCannotBeStoredIsNamed(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.Limits.FileSize, a.Limits.Files = 100, 4
	r := a.call(func() {
		a.write("a", "x")
		a.write(`b\c`, "x")
		a.write("big", strings.Repeat("x", 101))
		a.write("c", "x")
		a.write("d", "x")
		a.write("e", "x")
		a.write("f", "x")
		if err := os.Symlink("a", a.path("link")); err != nil {
			t.Fatal(err)
		}
	})
	told := strings.Join(r.Notices, "\n")
	for _, want := range []string{leftLink + ": link", leftLarge + ": big", leftName + `: b\c`, leftMany + ": f"} {
		if !strings.Contains(told, want) {
			t.Errorf("%q is not told: %s", want, told)
		}
	}
	if len(objects(t, bucketAt(t, s.URL, "w/"))) != 4 {
		t.Error("the limit does not hold")
	}
	if r := a.call(func() {}); len(r.Notices) != 1 { // a workspace at the limit is reported until there is room
		t.Errorf("told again: %v", r.Notices)
	}
	fresh := newHost(t, s.URL, "w/") // whose calls could remove nothing
	fresh.Limits.Files = 3
	_, _, err := fresh.Begin(t.Context(), fresh.w, true)
	if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "--s3-files") {
		t.Errorf("got %v", err)
	}
}

// dead is how many uses of a host's copy are not written out.
func (h *host) dead() int {
	h.t.Helper()
	dead, live, err := deadMarks(filepath.Join(h.Dir, schemas.Namespace(h.w.Account, h.w.ID)))
	if live || err != nil {
		h.t.Errorf("somebody has the copy: %t, %v", live, err)
	}
	for _, m := range dead {
		m.leave()
	}
	return len(dead)
}

// TestACopyOverItsLimitsStarts fills a copy as an installation of packages does: the next calls start and say why nothing is stored, until
// one has removed enough, also what was removed meanwhile.
//
//guarantee:bounds
func TestACopyOverItsLimitsStarts(t *testing.T) { s3test.Each(t, "files", aCopyOverItsLimitsStarts) }

func aCopyOverItsLimitsStarts(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), bucketAt(t, s.URL, "w/")
	a.Limits.Files = 4
	a.call(func() { a.write("x", "one"); a.write("y", "one") })
	wantHeld := func(r Report) {
		t.Helper()
		if told := strings.Join(r.Notices, "\n"); !r.Held || strings.Count(told, "over its limits") != 1 || !strings.Contains(told, "--s3-files") {
			t.Errorf("%+v", r)
		}
	}
	wantHeld(a.call(func() {
		a.write("x", "two")
		a.write("p/0", "")
		for n := range a.Limits.entries() {
			if err := os.Symlink("0", a.path(fmt.Sprint("p/link", n))); err != nil {
				t.Fatal(err)
			}
		}
	}))
	wantHeld(a.call(func() { a.remove("y") }))
	wantHeld(a.call(func() {}))
	a.sweep(t.Context())
	if n := a.dead(); n != 1 {
		t.Errorf("%d marks", n)
	}
	wantFiles(t, "bucket", objects(t, b), map[string]string{"x": "one", "y": "one"})
	if r := a.call(func() { a.remove("p") }); r.Held || a.dead() != 0 {
		t.Errorf("%+v, %d marks", r, a.dead())
	}
	wantFiles(t, "bucket", objects(t, b), map[string]string{"x": "two"})
	wantFiles(t, "copy", a.files(), map[string]string{"x": "two"})
}

// TestABucketOverItsLimitsTakesRemovals has two hosts bring a bucket over the limits together: what a call of one removes goes out, but
// for a version that it has not seen.
//
//guarantee:bounds
func TestABucketOverItsLimitsTakesRemovals(t *testing.T) {
	s3test.Each(t, "files", aBucketOverItsLimitsTakesRemovals)
}

func aBucketOverItsLimitsTakesRemovals(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), newHost(t, s.URL, "w/")
	a.Limits.Files, b.Limits.Files = 4, 4
	a.call(func() { a.write("x", "one"); a.write("y", "one"); a.write("z", "one") })
	ub := b.begin()
	a.call(func() { a.write("of a", "one") })
	b.write("y", "of b")
	b.end(ub)
	s3test.Write(t, s, "files", "w/of b", "one", nil) // as b does when both have listed the bucket before they write
	u, r, err := a.Begin(t.Context(), a.w, true)
	if err != nil || !r.Held {
		t.Fatalf("%+v, %v", r, err)
	}
	a.write("new", "one")
	a.remove("x")
	a.remove("y")
	if r := a.end(u); !r.Held || !strings.Contains(strings.Join(r.Notices, "\n"), "y was removed here and changed on S3") {
		t.Errorf("%+v", r)
	}
	want := map[string]string{"y": "of b", "z": "one", "of a": "one", "of b": "one"}
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
	r = a.call(func() { a.remove("z") })
	if r.Held || a.dead() != 0 {
		t.Errorf("%+v, %d marks", r, a.dead())
	}
	delete(want, "z")
	want["new"] = "one"
	a.call(func() {})
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
	wantFiles(t, "copy", a.files(), want)
}

func TestKeysThatAreNoNamesAreLeftAlone(t *testing.T) {
	s := s3test.Start(t, "files")
	root := bucketAt(t, s.URL, "")
	for _, key := range []string{"w/ok", `w/back\slash`} {
		if strings.Contains(key, `\`) {
			if err := os.WriteFile(filepath.Join(s.Folder, "files", key), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		sum := "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
		if _, err := root.Put(t.Context(), key, "", sum, strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Folder, "files", "w", "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := newHost(t, s.URL, "w/")
	u, r, err := a.Begin(t.Context(), a.w, true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(r.Notices, "\n"), `back\slash`) {
		t.Errorf("told: %v", r.Notices)
	}
	wantFiles(t, "copy", a.files(), map[string]string{"ok": "x"})
	a.end(u)
	if _, err := os.Stat(filepath.Join(s.Folder, "files", `w/back\slash`)); err != nil {
		t.Error("it is gone from the bucket:", err)
	}
}

// closed is a folder whose directory dir cannot be read, as of a worker that is not root.
type closed struct{ *safefs.Root }

func (c closed) ReadDir(ctx context.Context, name string, follow bool, each func(workspacefs.Entry) error) error {
	if strings.HasPrefix(name, "dir") {
		return workspacefs.ErrDenied
	}
	return c.Root.ReadDir(ctx, name, follow, each)
}

func (c closed) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if strings.HasPrefix(name, "dir/") {
		return nil, workspacefs.ErrDenied
	}
	return c.Root.Stat(ctx, name)
}

type closedFolders struct{ folders }

func (f closedFolders) OpenWorkspace(ctx context.Context, a schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	root, err := f.folders.OpenWorkspace(ctx, a, m)
	if err != nil {
		return nil, err
	}
	return closed{root.(*safefs.Root)}, nil
}

// TestAFileMadeDuringADownloadStays lets another call of the host write names at the moment when the large files of these names are put in
// their places: one that the copy did not have, and one that it had.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestAFileMadeDuringADownloadStays(t *testing.T) {
	s3test.Each(t, "files", aFileMadeDuringADownloadStays)
}

func aFileMadeDuringADownloadStays(t *testing.T, s s3test.Server) {
	large := strings.Repeat("x", bucket.PartSize+7)
	a, b := newHost(t, s.URL, "w/"), bucketAt(t, s.URL, "w/")
	a.call(func() { a.write("old", "small") })
	was, err := b.Head(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	for name, etag := range map[string]string{"new": "", "old": was.ETag} {
		if _, err := b.Put(t.Context(), name, etag, hashOf(large), strings.NewReader(large), int64(len(large))); err != nil {
			t.Fatal(err)
		}
	}
	a.at = func(what, name string) error {
		if what == "place" {
			a.write(name, "of another call")
		}
		return nil
	}
	u := a.begin()
	want := map[string]string{"old": "of another call", "new": "of another call"}
	wantFiles(t, "copy", a.files(), want)
	a.at = nil
	r := a.end(u)
	if told := strings.Join(r.Notices, "\n"); !strings.Contains(told, "new.conflict-") || !strings.Contains(told, "old.conflict-") {
		t.Errorf("told: %s", told)
	}
	kept := map[string]int{}
	for _, text := range objects(t, b) {
		kept[text[:1]]++
	}
	if kept["o"] != 2 || kept["x"] != 2 {
		t.Errorf("the bucket has %v", kept)
	}
}

// TestAnEditedConflictStays makes the same conflict twice, and edits the file beside in between.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestAnEditedConflictStays(t *testing.T) { s3test.Each(t, "files", anEditedConflictStays) }

func anEditedConflictStays(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), newHost(t, s.URL, "w/")
	conflict := func(theirs string) string {
		ub := b.begin()
		b.write("x", "mine")
		a.call(func() { a.write("x", theirs) })
		_, said, _ := strings.Cut(strings.Join(b.end(ub).Notices, "\n"), "the version of this workspace is ")
		return said
	}
	beside := conflict("theirs")
	b.call(func() { b.write(beside, "edited") })
	second := conflict("theirs again")
	if files := b.files(); files[beside] != "edited" || files[second] != "mine" || beside == second {
		t.Errorf("%s and %s: %v", beside, second, files)
	}
	if third := conflict("theirs once more"); third != second || len(b.files()) != 3 {
		t.Errorf("an equal one is kept twice: %v", b.files())
	}
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), b.files())
}

// TestAForeignRewriteWithCopiedMetadataIsSeen loses the base of a copy while another program writes a file of the same size: the two are
// not equal, and a change of the file in the copy does not replace what it has not seen.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestAForeignRewriteWithCopiedMetadataIsSeen(t *testing.T) {
	s3test.Each(t, "files", aForeignRewriteWithCopiedMetadataIsSeen)
}

func aForeignRewriteWithCopiedMetadataIsSeen(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.call(func() { a.write("x", "one") })
	s3test.Write(t, s, "files", "w/x", "ONE", map[string]string{"sandjet-sha256": hashOf("one")})
	if err := os.Remove(filepath.Join(a.Dir, schemas.Namespace(a.w.Account, a.w.ID), baseFile)); err != nil {
		t.Fatal(err)
	}
	a.call(func() {})
	a.call(func() { a.write("y", "two") })
	want := map[string]string{"x": "ONE", "y": "two", "x.conflict-" + hashOf("one")[:8]: "one"}
	wantFiles(t, "copy", a.files(), want)
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), want)
}

// TestOneObjectStopsNothing has one object that cannot be read. The others are brought in and out, and that one is named and left alone,
// whatever is done with its name in the copy.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestOneObjectStopsNothing(t *testing.T) { s3test.Each(t, "files", oneObjectStopsNothing) }

func oneObjectStopsNothing(t *testing.T, s s3test.Server) {
	for name, c := range map[string]struct {
		fault   s3test.Fault
		methods string
		left    string
	}{
		"archived": {s3test.Archived, "GET", leftObject},
		"denied":   {s3test.Denied, "GET HEAD PUT DELETE", leftObject},
		"stale":    {s3test.None, "", leftStale},
	} {
		t.Run(name, func(t *testing.T) {
			p := s3test.Front(t, s)
			p.Judge(func(r *http.Request) s3test.Fault {
				if strings.HasSuffix(r.URL.Path, "/bad") && strings.Contains(c.methods, r.Method) {
					return c.fault
				}
				return s3test.None
			})
			s3test.Upload(t, s, "files", name+"/bad", "of another", map[string]string{"sandjet-sha256": hashOf("an older one")})
			s3test.Write(t, s, "files", name+"/good", "one", nil)
			a := newHost(t, p.URL, name+"/")
			u, r, err := a.Begin(t.Context(), a.w, true)
			if err != nil {
				t.Fatal(err)
			}
			if told := strings.Join(r.Notices, "\n"); !strings.Contains(told, c.left+": bad") {
				t.Errorf("told: %s", told)
			}
			wantFiles(t, "copy", a.files(), map[string]string{"good": "one"})
			a.write("good", "two")
			a.end(u)
			want := map[string]string{"good": "two", "bad": "of another"}
			wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, name+"/")), want)
			if name == "stale" { // whose content may be read, so that it is a conflict like others
				return
			}
			a.call(func() { a.write("bad", "of this host") })
			wantFiles(t, "copy", a.files(), map[string]string{"good": "two", "bad": "of this host"})
			a.call(func() { a.remove("bad") })
			wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, name+"/")), want)
			if a.call(func() {}); len(a.files()) != 1 {
				t.Errorf("the copy has %v", a.files())
			}
		})
	}
}

// TestFilesThatMayOnlyBeListed: a copy without the files that its credentials may not read would look as if they were not there.
func TestFilesThatMayOnlyBeListed(t *testing.T) { s3test.Each(t, "files", filesThatMayOnlyBeListed) }

func filesThatMayOnlyBeListed(t *testing.T, s s3test.Server) {
	p := s3test.Front(t, s)
	list := func(r *http.Request) bool { return r.URL.Query().Has("list-type") }
	p.Judge(func(r *http.Request) s3test.Fault {
		if r.Method == http.MethodGet && !list(r) {
			return s3test.Denied
		}
		return s3test.None
	})
	s3test.Write(t, s, "files", "w/one", "1", nil)
	s3test.Write(t, s, "files", "w/two", "2", nil)
	a := newHost(t, p.URL, "w/")
	_, _, err := a.Begin(t.Context(), a.w, true)
	if schemas.CodeOf(err) != schemas.Denied || !strings.Contains(err.Error(), "s3:GetObject") || !strings.Contains(err.Error(), "2 files") {
		t.Fatalf("it begins with %v", err)
	}
	p.Judge(nil)
	a.call(func() {})
	wantFiles(t, "copy", a.files(), map[string]string{"one": "1", "two": "2"})
}

// TestObjectsWithoutAnETag are files that were put below the folder of a server without it. Each call reads them again, and no
// version of the copy takes the place of a version that has no name.
func TestObjectsWithoutAnETag(t *testing.T) {
	s := s3test.Start(t, "files")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(s.Folder, "files", "w", "laid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Folder, "files", "w"), 0o700); err != nil {
		t.Fatal(err)
	}
	put("one")
	a := newHost(t, s.URL, "w/")
	u, r, err := a.Begin(t.Context(), a.w, true)
	if err != nil || !strings.Contains(strings.Join(r.Notices, "\n"), leftNoETag+": laid") {
		t.Fatalf("notices: %q, %v", r.Notices, err)
	}
	wantFiles(t, "copy", a.files(), map[string]string{"laid": "one"})
	a.write("other", "x")
	a.end(u)
	for range 2 { // what one call has noted, the next can read
		put("two, and longer")
		a.call(func() {})
		wantFiles(t, "copy", a.files(), map[string]string{"laid": "two, and longer", "other": "x"})
	}
	a.call(func() { a.write("laid", "three") })
	if got := objects(t, bucketAt(t, s.URL, "w/")); got["laid"] != "two, and longer" || got["laid.conflict-"+hashOf("three")[:8]] != "three" {
		t.Errorf("the bucket has %q", got)
	}
}

// TestARefusedWriteStopsNothing has one name that the service does not take.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestARefusedWriteStopsNothing(t *testing.T) { s3test.Each(t, "files", aRefusedWriteStopsNothing) }

func aRefusedWriteStopsNothing(t *testing.T, s s3test.Server) {
	p := s3test.Front(t, s)
	p.Judge(func(r *http.Request) s3test.Fault {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/locked") {
			return s3test.Denied
		}
		return s3test.None
	})
	a := newHost(t, p.URL, "w/")
	long := strings.Repeat(strings.Repeat("x", 200)+"/", 5) + strings.Repeat("x", 18) // a name, and no key behind the prefix
	for range 2 {
		r := a.call(func() { a.write("locked", "x"); a.write("open", "x"); a.write(long, "x") })
		if told := strings.Join(r.Notices, "\n"); !strings.Contains(told, leftRefused+": locked") {
			t.Errorf("told: %s", told)
		}
	}
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"open": "x"})
}

// TestOnlyOwnTemporaryFilesAreRemoved has a file of the workspace's users with a name as files have that are on their way in, and a crash
// while one is.
func TestOnlyOwnTemporaryFilesAreRemoved(t *testing.T) {
	s3test.Each(t, "files", onlyOwnTemporaryFilesAreRemoved)
}

func onlyOwnTemporaryFilesAreRemoved(t *testing.T, s s3test.Server) {
	a, b := newHost(t, s.URL, "w/"), bucketAt(t, s.URL, "w/")
	a.call(func() { a.write(temporary+"notes", "mine") })
	s3test.Write(t, s, "files", "w/"+temporary+"theirs", "theirs", nil)
	want := map[string]string{temporary + "notes": "mine", temporary + "theirs": "theirs"}
	a.call(func() {})
	wantFiles(t, "copy", a.files(), want)
	wantFiles(t, "bucket", objects(t, b), want)
	large := strings.Repeat("x", bucket.PartSize+7)
	s3test.Write(t, s, "files", "w/large", large, nil)
	a.Files = failing{folders(a.folder)}
	if _, _, err := a.Begin(t.Context(), a.w, true); err == nil {
		t.Fatal("it did not fail")
	}
	if n := len(a.files()); n != 3 {
		t.Fatalf("the copy has %d files: nothing stays, so that nothing is shown", n)
	}
	a.Files = folders(a.folder)
	a.call(func() {})
	want["large"] = large
	if got := a.files(); len(got) != 3 || got["large"] != large {
		t.Errorf("the copy has %v", slices.Collect(maps.Keys(got)))
	}
	if got := objects(t, b); len(got) != 3 {
		t.Errorf("the bucket has %v", slices.Collect(maps.Keys(got)))
	}
	if notes, err := arrivals(filepath.Join(a.Dir, schemas.Namespace(a.w.Account, a.w.ID))); len(notes) != 0 || err != nil {
		t.Errorf("notes stay: %v, %v", notes, err)
	}
}

// failing opens files of which none that is on its way in gets its place or is removed, as of a process that dies then.
type failing struct{ folders }

type dying struct{ *safefs.Root }

func (f failing) OpenWorkspace(ctx context.Context, a schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	root, err := f.folders.OpenWorkspace(ctx, a, m)
	if err != nil {
		return nil, err
	}
	return dying{root.(*safefs.Root)}, nil
}

func (dying) Place(context.Context, string, string, fs.FileInfo) error { return errors.New("it died") }
func (dying) Remove(context.Context, string) error                     { return errors.New("it died") }

// TestAnotherPlaceGetsNoFilesOfTheFormer gives a workspace another prefix: its copy is emptied, if all of it is stored.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestAnotherPlaceGetsNoFilesOfTheFormer(t *testing.T) {
	s3test.Each(t, "files", anotherPlaceGetsNoFilesOfTheFormer)
}

func anotherPlaceGetsNoFilesOfTheFormer(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "old/")
	prefix := "old/"
	a.Bucket = func(context.Context, schemas.Workspace) (*bucket.Bucket, error) {
		return bucketAt(t, s.URL, prefix), nil
	}
	old, next := bucketAt(t, s.URL, "old/"), bucketAt(t, s.URL, "new/")
	a.call(func() { a.write("x", "one"); a.write("dir/y", "one") })
	s3test.Write(t, s, "files", "new/z", "of the new place", nil)
	prefix = "new/"
	a.at = func(what, name string) error { // a crash in the middle
		if what == "drop copy" && name == "x" {
			return errors.New("crash")
		}
		return nil
	}
	if _, _, err := a.Begin(t.Context(), a.w, true); err == nil {
		t.Fatal("it did not crash")
	}
	a.at = nil
	a.call(func() {
		wantFiles(t, "copy", a.files(), map[string]string{"z": "of the new place"})
		if _, err := os.Stat(a.path("dir")); err == nil {
			t.Error("an empty folder stays")
		}
	})
	wantFiles(t, "former place", objects(t, old), map[string]string{"x": "one", "dir/y": "one"})
	wantFiles(t, "new place", objects(t, next), map[string]string{"z": "of the new place"})

	u := a.begin()
	a.write("unsaved", "one")
	prefix = "old/"
	_, _, err := a.Begin(t.Context(), a.w, true)
	if schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("in use: got %v", err)
	}
	u.Leave()
	_, _, err = a.Begin(t.Context(), a.w, true)
	if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "unsaved") {
		t.Errorf("not stored: got %v", err)
	}
	wantFiles(t, "copy", a.files(), map[string]string{"z": "of the new place", "unsaved": "one"})
	wantFiles(t, "former place", objects(t, old), map[string]string{"x": "one", "dir/y": "one"})
	prefix = "new/"
	a.call(func() {})
	prefix = "old/"
	a.call(func() { wantFiles(t, "copy", a.files(), map[string]string{"x": "one", "dir/y": "one"}) })
	wantFiles(t, "new place", objects(t, next), map[string]string{"z": "of the new place", "unsaved": "one"})
}

func TestADirectoryThatCannotBeReadRemovesNothing(t *testing.T) {
	s3test.Each(t, "files", aDirectoryThatCannotBeReadRemovesNothing)
}

func aDirectoryThatCannotBeReadRemovesNothing(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.call(func() { a.write("dir/x", "one") })
	a.call(func() { a.Files = closedFolders{folders(a.folder)} })
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"dir/x": "one"})
}

func TestSameSizeAndTimeIsStillSeen(t *testing.T) {
	s3test.Each(t, "files", sameSizeAndTimeIsStillSeen)
}

func sameSizeAndTimeIsStillSeen(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	then := time.Now().Add(-time.Hour)
	write := func(name, text string) {
		a.write(name, text)
		if err := os.Chtimes(a.path(name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	a.call(func() { write("x", "one"); write("y", "two") })
	a.call(func() {
		if err := os.Rename(a.path("y"), a.path("x")); err != nil {
			t.Fatal(err)
		}
	})
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"x": "two"})
}

// TestFaults holds a whole use against a service that fails once at each kind of request.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestFaults(t *testing.T) {
	s := s3test.Start(t, "files")
	p := s3test.Front(t, s)
	for _, f := range []s3test.Fault{s3test.Busy, s3test.Dropped, s3test.AnswerLost, s3test.Raced, s3test.HalfAnswer} {
		for _, m := range []string{http.MethodPut, http.MethodDelete, http.MethodGet, http.MethodHead} {
			if f == s3test.Raced && m != http.MethodPut && m != http.MethodDelete {
				continue // only writes race
			}
			t.Run(fmt.Sprint(f, m), func(t *testing.T) {
				prefix := fmt.Sprintf("w%d%s/", f, m)
				a, b := newHost(t, p.URL, prefix), newHost(t, p.URL, prefix)
				p.Judge(nil)
				a.call(func() { a.write("x", "one"); a.write("y", "one") })
				p.Judge(s3test.Once(f, func(r *http.Request) bool { return r.Method == m }))
				a.call(func() { a.write("x", "two"); a.remove("y"); a.write("z", "new") })
				p.Judge(s3test.Once(f, func(r *http.Request) bool { return r.Method == m }))
				want := map[string]string{"x": "two", "z": "new"}
				r := b.call(func() { wantFiles(t, "second host", b.files(), want) })
				p.Judge(nil)
				wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, prefix)), want)
				if len(r.Notices) != 0 {
					t.Errorf("told: %v", r.Notices)
				}
			})
		}
	}
}

// TestAwayInTheMiddle leaves a use whose bucket cannot be reached any more: what it has changed is written out by the next, or by Run.
func TestAwayInTheMiddle(t *testing.T) { s3test.Each(t, "files", awayInTheMiddle) }

func awayInTheMiddle(t *testing.T, s s3test.Server) {
	a := newHost(t, s.URL, "w/")
	a.call(func() { a.write("x", "one"); a.write("y", "one") })
	u := a.begin()
	a.write("x", "two")
	a.remove("y")
	a.at = func(what, _ string) error { return errors.New("crash at " + what) }
	if _, err := u.End(t.Context()); err == nil {
		t.Fatal("it did not crash")
	}
	a.at = nil
	a.sweep(t.Context())
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"x": "two"})
	dead, live, err := deadMarks(filepath.Join(a.Dir, schemas.Namespace(a.w.Account, a.w.ID)))
	if len(dead) != 0 || live || err != nil {
		t.Errorf("marks stay: %d, %t, %v", len(dead), live, err)
	}
}

// TestTwoWritersAndCrashes lets two hosts change files at random, and die at random, and holds them to what must be true of any run: each
// written version is in the bucket under its name or beside it, unless a host that had seen it has replaced or removed it; and in the end
// all have the same files.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestTwoWritersAndCrashes(t *testing.T) { s3test.Each(t, "files", twoWritersAndCrashes) }

func twoWritersAndCrashes(t *testing.T, s s3test.Server) {
	seeds := uint64(6)
	if !longtest.Asked() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			prefix := fmt.Sprintf("w%d/", seed)
			hosts := []*host{newHost(t, s.URL, prefix), newHost(t, s.URL, prefix)}
			open := []*Use{nil, nil}
			seen := map[string]bool{} // versions that were replaced or removed by a host that had them
			written := map[string]bool{}
			for step := range 60 {
				n := random.IntN(2)
				h := hosts[n]
				var crashAt atomic.Int64 // files are copied side by side
				crashAt.Store(-1)
				if random.IntN(3) == 0 {
					crashAt.Store(random.Int64N(5))
				}
				h.at = func(string, string) error {
					if crashAt.Add(-1) == -1 {
						return errors.New("crash")
					}
					return nil
				}
				if open[n] == nil {
					u, _, err := h.Begin(t.Context(), h.w, true)
					if err != nil {
						continue
					}
					open[n] = u
				}
				for range 1 + random.IntN(3) {
					name := []string{"a", "b", "d/c", "d/e"}[random.IntN(4)]
					if old, ok := h.files()[name]; ok {
						seen[old] = true
					}
					if random.IntN(3) == 0 {
						h.remove(name)
						continue
					}
					text := fmt.Sprintf("version %d-%d-%d", seed, step, random.IntN(1_000_000))
					h.write(name, text)
					written[text] = true
				}
				if random.IntN(2) == 0 { // it is suspended, and ends some time later
					continue
				}
				if _, err := open[n].End(t.Context()); err != nil && random.IntN(2) == 0 {
					h.at = nil
					h.sweep(t.Context())
				}
				open[n] = nil
			}
			for range 2 {
				for n, h := range hosts {
					h.at = nil
					if open[n] != nil {
						h.end(open[n])
						open[n] = nil
					}
					h.call(func() {})
				}
			}
			all := objects(t, bucketAt(t, s.URL, prefix))
			wantFiles(t, "first host", hosts[0].files(), all)
			wantFiles(t, "second host", hosts[1].files(), all)
			there := slices.Collect(maps.Values(all))
			for text := range written {
				if !seen[text] && !slices.Contains(there, text) {
					t.Errorf("%q is lost: there is %v", text, all)
				}
			}
		})
	}
}

func FuzzDecodeBase(f *testing.F) {
	f.Add([]byte(`{"version":1,"where":"x","root":"","left":"","files":{"a":{"etag":"\"e\"","hash":"` + strings.Repeat("0", 64) +
		`","size":1}}}`))
	f.Add([]byte(`{"version":1,"files":{"../x":{"etag":"e","hash":"","size":-1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeBase(data)
		for name := range b.Files {
			if err != nil || bucket.Problem(name) != "" {
				t.Errorf("%q came in: %v", name, err)
			}
		}
	})
}

func FuzzDecodeMark(f *testing.F) {
	f.Add([]byte(`{"account":"acct_1","workspace":"ws_1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if of, err := decodeMark(data); err == nil && (of.Account.Validate() != nil || of.Workspace.Validate() != nil) {
			t.Errorf("%+v came in", of)
		}
	})
}
