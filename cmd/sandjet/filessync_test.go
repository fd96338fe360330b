package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

// tree is a folder in a test: the content of each file, "/" of a folder, "@" of a link.
type tree map[string]string

// randomTree makes a folder of few names, so that two of them have many in common.
func randomTree(r *rand.Rand) tree {
	t := tree{}
	for range r.IntN(12) {
		name := ""
		for range 1 + r.IntN(3) {
			name = path.Join(name, []string{"a", "b", "a-b"}[r.IntN(3)])
			if kind, is := t[name]; is && kind != "/" {
				break
			}
			t[name] = "/"
		}
		if !holdsAny(t, name) {
			t[name] = []string{"/", "x", "y", "long", "@"}[r.IntN(5)]
		}
	}
	return t
}

func (t tree) local() (list []treeFile, left []string) {
	for name, content := range t {
		if content == "@" {
			left = append(left, name)
			continue
		}
		list = append(list, treeFile{path: name, folder: content == "/", size: int64(len(content))})
	}
	return list, left
}

func (t tree) remote() (list []schemas.FileInfo) {
	for name, content := range t {
		kind := map[string]schemas.FileType{"/": schemas.TypeDirectory, "@": schemas.TypeLink}[content]
		if kind == "" {
			kind = schemas.TypeFile
		}
		list = append(list, schemas.FileInfo{Path: name, Type: kind, Size: int64(len(content))})
	}
	return list
}

// apply changes the tree as the plan says, and fails where a real file system would: for example, when a folder that is not empty is
// removed.
func (t tree) apply(p syncPlan, from tree, up bool) error {
	remove := func(list []string) (stay error) {
		for _, name := range list {
			if holdsAny(t, name) {
				stay = fmt.Errorf("%s is not empty", name)
				continue
			}
			delete(t, name)
		}
		return stay
	}
	put := func(name, content string) error {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			if t[above] != "" && t[above] != "/" {
				return fmt.Errorf("%s is no folder", above)
			}
			t[above] = "/"
		}
		if there := t[name]; there != "" && (there == "/") != (content == "/") {
			return fmt.Errorf("%s is of another kind", name)
		}
		t[name] = content
		return nil
	}
	if err := remove(p.first); err != nil {
		return err
	}
	for _, f := range p.folders {
		if err := put(f.path, "/"); err != nil {
			return err
		}
	}
	for _, c := range slices.Concat(p.copies, p.pairs) {
		name := c.local.path
		if !up {
			name = c.remote.Path
		}
		if err := put(name, from[name]); err != nil {
			return err
		}
	}
	_ = remove(p.last) // what something left alone lies in stays
	return nil
}

func holdsAny(t tree, folder string) bool {
	for name := range t {
		if below(map[string]bool{folder: true}, name) {
			return true
		}
	}
	return false
}

// linked reports whether there is a link anywhere.
func linked(trees ...tree) bool {
	return slices.ContainsFunc(trees, func(t tree) bool { return slices.Contains(slices.Collect(maps.Values(t)), "@") })
}

// TestAPlanMakesFoldersAlike: after a sync with --delete both folders are equal, except for symbolic links and what is in their place;
// without --delete, nothing that only the target has is lost. The folders are random, with a fixed seed.
func TestAPlanMakesFoldersAlike(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 14))
	conflicts, removed := 0, 0
	for n := range 20_000 {
		from, to, up := randomTree(r), randomTree(r), n%2 == 0
		for _, remove := range []bool{true, false} {
			here, there := from, to
			if !up {
				here, there = to, from
			}
			local, left := here.local()
			p, err := planSync(local, left, there.remote(), up, remove)
			if err != nil {
				if conflicts++; remove && !linked(from, to) || schemas.CodeOf(err) != schemas.Conflict {
					t.Fatalf("%v to %v: %v", from, to, err)
				}
				continue
			}
			got := maps.Clone(to)
			if err := got.apply(p, from, up); err != nil {
				t.Fatalf("%v to %v, up %v, remove %v: %v", from, to, up, remove, err)
			}
			odd := map[string]bool{}
			for _, side := range []tree{from, to} {
				for name, content := range side {
					odd[name] = odd[name] || content == "@"
				}
			}
			alone := func(name string) bool { return odd[name] || below(odd, name) }
			for name, content := range from {
				if !alone(name) && got[name] != content {
					t.Fatalf("%v to %v, up %v: %s is %q", from, to, up, name, got[name])
				}
			}
			for name, content := range to {
				_, stays := from[name]
				switch {
				case alone(name) || !remove && !stays:
					if got[name] != content {
						t.Fatalf("%v to %v, up %v: %s is %q", from, to, up, name, got[name])
					}
				case !stays && got[name] != "":
					if !holds(odd, name) {
						t.Fatalf("%v to %v, up %v: %s is still there", from, to, up, name)
					}
				}
			}
			removed += len(p.first) + len(p.last)
		}
	}
	if conflicts < 100 || removed < 100 {
		t.Errorf("%d conflicts and %d removals prove little", conflicts, removed)
	}
}

// TestSumsAreOfWhatWasRead: a cached checksum is used only for a file with the same size and time. A file that was modified just before it
// was read is read again next time.
func TestSumsAreOfWhatWasRead(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	s, at := openSums("ws_1", "d", "/x"), time.Now()
	old := treeFile{path: "old", size: 3, modified: at.Add(-settled)}
	s.setLocal(old, "sum", at)
	s.setLocal(treeFile{path: "new", size: 3, modified: at.Add(-settled + 1)}, "sum", at)
	s.setRemote(schemas.FileInfo{Path: "r", Size: 3, Modified: at}, "theirs")
	s.save()
	s = openSums("ws_1", "d", "/x")
	if sum, ok := s.local(old); !ok || sum != "sum" {
		t.Errorf("%q %v", sum, ok)
	}
	if sum, ok := s.remote(schemas.FileInfo{Path: "r", Size: 3, Modified: at}); !ok || sum != "theirs" {
		t.Errorf("%q %v", sum, ok)
	}
	for _, f := range []treeFile{
		{path: "new", size: 3, modified: at.Add(-settled + 1)},
		{path: "old", size: 4, modified: old.modified},
		{path: "old", size: 3, modified: at},
	} {
		if _, ok := s.local(f); ok {
			t.Errorf("%+v is taken for known", f)
		}
	}
	if _, ok := s.remote(schemas.FileInfo{Path: "r", Size: 3, Modified: at.Add(1)}); ok {
		t.Error("another version is taken for known")
	}
	if other := openSums("ws_2", "d", "/x"); len(other.Local) != 0 {
		t.Error("what is known of another workspace is taken")
	}
}

// uploads is a gateway that receives uploads in parts, and calls stop after each part.
type uploads struct {
	stored map[string][]byte // by upload
	sent   int
	stop   func(parts int)
	parts  int
}

func (u *uploads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("upload")
	switch {
	case r.Method == http.MethodPut:
		b, err := io.ReadAll(r.Body)
		at, err2 := strconv.Atoi(r.URL.Query().Get("offset"))
		if err != nil || err2 != nil || at != len(u.stored[id]) {
			http.Error(w, "wrong", http.StatusBadRequest)
			return
		}
		u.stored[id] = append(u.stored[id], b...)
		u.sent += len(b)
		u.parts++
		u.stop(u.parts)
		fmt.Fprintf(w, `{"path":"big","type":"file","size":%d}`, len(u.stored[id]))
	case strings.Contains(r.URL.Path, "/uploads/"):
		fmt.Fprintf(w, `{"offset":%d}`, len(u.stored[path.Base(r.URL.Path)]))
	default:
		_, _ = w.Write([]byte(`{"entries":[]}`))
	}
}

// TestAStoppedSyncContinues: a sync that was stopped in the middle of a large file sends only the rest of it when it is started again.
func TestAStoppedSyncContinues(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	const size = 20 << 20
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	u := &uploads{stored: map[string][]byte{}, stop: func(parts int) {
		if parts == 2 {
			cancel()
		}
	}}
	server := httptest.NewServer(u)
	defer server.Close()
	run := func(ctx context.Context) (string, string, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		var out, said bytes.Buffer
		s := &syncing{c: &filesSyncCommand{}, t: terminal{out: &out, err: &said}, cl: client.New(server.URL, "k"), w: "ws_1", root: root,
			up: true, known: openSums("ws_1", "", dir)}
		err = s.finish(ctx)
		return out.String(), said.String(), err
	}
	_, said, err := run(ctx)
	if e, ok := errors.AsType[*exitError](err); !ok || e.code != exitCancelled || !strings.Contains(said, "the same command continues") {
		t.Fatalf("%v %s", err, said)
	}
	before := u.sent
	if before < 8<<20 || before >= size {
		t.Fatalf("%d bytes were sent before it stopped", before)
	}
	out, _, err := run(t.Context())
	if err != nil || u.sent != size || !strings.Contains(out, "Copied 1 file (20.0 MiB)") {
		t.Errorf("%d bytes were sent afterwards: %v %s", u.sent-before, err, out)
	}
}

// TestPatternsOfNames: a pattern without a slash matches a name in any folder; one with a slash matches a path from the top.
func TestPatternsOfNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a.log": true, "x/y/a.log": true, "node_modules": true, "x/node_modules/y": true, "build/x": true, "build/x/y": true, "x/build/y": false,
		"logs": false, "build": false,
	} {
		if got := (patterns{"*.log", "node_modules", "build/*"}).matchAny(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := (patterns{"["}).check(); schemas.CodeOf(err) != schemas.Invalid {
		t.Error(err)
	}
}

// TestNamesThatWorkspacesCannotHaveAreLeftAlone, with what is below them, and keep nothing else from being copied.
func TestNamesThatWorkspacesCannotHaveAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "odd\nname", "odd\nfolder/b", "latin\xe9"} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	list, left, err := localTree(root, nil)
	slices.Sort(left)
	if err != nil || len(list) != 1 || list[0].path != "a" || !slices.Equal(left, []string{"latin\xe9", "odd\nfolder", "odd\nname"}) {
		t.Errorf("%v, left %q, %v", list, left, err)
	}
}
