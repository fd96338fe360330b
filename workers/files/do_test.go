package files_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/files"
)

func open(t *testing.T) (workspacefs.FS, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func do(t *testing.T, fsys workspacefs.FS, q schemas.FileRequest, data string) (schemas.FileReply, string, error) {
	t.Helper()
	q.Account, q.Workspace = "acct_1", "ws_1"
	if err := q.Validate(); err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	r, body, err := files.Do(t.Context(), fsys, q, []byte(data))
	return r, string(body), err
}

// TestFilesAgainstAModel: operations by chance, ten thousand in the gate, of which answers are lost and which are then asked for again,
// leave the files that a map has.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesAgainstAModel(t *testing.T) {
	t.Parallel()
	fsys, _ := open(t)
	operations := 1000
	if longtest.Asked() {
		operations = 10_000
	}
	filesAgainstAModel(t, fsys, operations)
}

func filesAgainstAModel(t *testing.T, fsys workspacefs.FS, operations int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	name := func() string { return fmt.Sprintf("d%d/f%d", r.IntN(3), r.IntN(4)) }
	again := func(q schemas.FileRequest, data string) (schemas.FileReply, error) {
		reply, _, err := do(t, fsys, q, data)
		for err == nil && r.IntN(4) == 0 { // the answer was lost
			q.Again = true
			reply, _, err = do(t, fsys, q, data)
		}
		return reply, err
	}
	for n := range operations {
		p := name()
		_, there := model[p]
		content := strings.Repeat(string(rune('a'+n%26)), r.IntN(40))
		switch r.IntN(6) {
		case 0, 1:
			q := schemas.FileRequest{Op: schemas.FileWrite, Path: p, IfNone: r.IntN(3) == 0}
			if _, err := again(q, content); (err != nil) != (q.IfNone && there) {
				t.Fatalf("%d: write %s, there: %v: %v", n, p, there, err)
			} else if err == nil {
				model[p] = content
			}
		case 2: // in pieces
			at := schemas.UploadsFolder + "/n-" + fmt.Sprint(n)
			cut := 0
			if len(content) > 0 {
				cut = r.IntN(len(content))
			}
			_, err1 := again(schemas.FileRequest{Op: schemas.FileAppend, Path: at}, content[:cut])
			back := 0 // the second piece may begin in the first
			if cut > 0 {
				back = r.IntN(cut)
			}
			staged, err2 := again(schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: int64(back)}, content[back:])
			if err1 != nil || err2 != nil {
				t.Fatalf("%d: append: %v, %v", n, err1, err2)
			}
			if _, err := again(schemas.FileRequest{
				Op: schemas.FileCommit, Path: at, To: p, Size: int64(len(content)), Was: staged.File,
			}, ""); err != nil {
				t.Fatalf("%d: commit: %v", n, err)
			}
			model[p] = content
		case 3:
			if _, err := again(schemas.FileRequest{Op: schemas.FileRemove, Path: p}, ""); (err == nil) != there {
				t.Fatalf("%d: remove %s, there: %v: %v", n, p, there, err)
			}
			delete(model, p)
		case 4:
			to := name()
			if _, err := again(schemas.FileRequest{Op: schemas.FileMove, Path: p, To: to}, ""); (err == nil) != there {
				t.Fatalf("%d: move %s to %s, there: %v: %v", n, p, to, there, err)
			} else if there && p != to {
				model[to] = model[p]
				delete(model, p)
			}
		default:
			reply, body, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRead, Path: p, Length: schemas.MaxFileChunk}, "")
			if (err == nil) != there || body != model[p] || err == nil && reply.File.Size != int64(len(body)) {
				t.Fatalf("%d: read %s, there: %v: %q %v, want %q", n, p, there, body, err, model[p])
			}
		}
	}
	var want []string
	for p := range model {
		want = append(want, p)
	}
	slices.Sort(want)
	var got []string
	for after := ""; ; {
		reply, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileList, Recursive: true, Limit: 3, After: after}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range reply.Entries {
			if after = e.Path; e.Type == schemas.TypeFile && !strings.HasPrefix(e.Path, ".sandjet") {
				got = append(got, e.Path)
			}
		}
		if !reply.More {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed: %v, want %v", got, want)
	}
	err := fsys.ReadDir(t.Context(), schemas.UploadsFolder, false, func(e workspacefs.Entry) error {
		if !strings.HasSuffix(e.Name, ".done") {
			t.Errorf("the upload %s is left", e.Name)
		}
		return nil
	})
	if err != nil && workspacefs.CodeOf(err) != workspacefs.ErrNotFound { // nothing came in pieces
		t.Error(err)
	}
}

// TestConditionsOfFiles: what has changed meanwhile is not replaced, read on or removed.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestConditionsOfFiles(t *testing.T) {
	t.Parallel()
	fsys, _ := open(t)
	conditionsOfFiles(t, fsys)
}

func conditionsOfFiles(t *testing.T, fsys workspacefs.FS) {
	t.Helper()
	first, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileWrite, Path: "f"}, "one")
	if err != nil || !first.Created {
		t.Fatal(first, err)
	}
	second, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileWrite, Path: "f", If: first.File.ETag}, "three")
	if err != nil || second.Created {
		t.Fatal(second, err)
	}
	for what, q := range map[string]schemas.FileRequest{
		"write":                 {Op: schemas.FileWrite, Path: "f", If: first.File.ETag},
		"write what is missing": {Op: schemas.FileWrite, Path: "g", If: "*"},
		"read":                  {Op: schemas.FileRead, Path: "f", Length: 9, If: first.File.ETag},
		"remove":                {Op: schemas.FileRemove, Path: "f", If: first.File.ETag},
	} {
		if _, _, err := do(t, fsys, q, "no"); workspacefs.CodeOf(err) != workspacefs.ErrChanged {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: schemas.UploadsFolder + "/n-x"}, "no"); err != nil {
		t.Fatal(err)
	}
	commit := schemas.FileRequest{Op: schemas.FileCommit, Path: schemas.UploadsFolder + "/n-x", To: "f", Size: 2, IfNone: true}
	if _, _, err := do(t, fsys, commit, ""); workspacefs.CodeOf(err) != workspacefs.ErrExists {
		t.Errorf("commit: %v", err)
	}
	commit.IfNone, commit.If, commit.Size = false, second.File.ETag, 3
	if _, _, err := do(t, fsys, commit, ""); schemas.CodeOf(err) != schemas.Conflict {
		t.Errorf("commit of another size: %v", err)
	}
	_, body, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRead, Path: "f", Offset: 1, Length: 2}, "")
	if err != nil || body != "hr" {
		t.Errorf("%q %v", body, err)
	}
}

// TestNothingOutsideOfAWorkspace is read, listed, written, moved or removed, by whichever name; nor is what is no file opened.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestNothingOutsideOfAWorkspace(t *testing.T) {
	t.Parallel()
	fsys, dir := open(t)
	outside := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "out")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "file")),
		os.Symlink("../"+filepath.Base(outside), filepath.Join(dir, "up")),
		os.MkdirAll(filepath.Join(dir, "dir"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"out/secret", "file", "up/secret", "../" + filepath.Base(outside) + "/secret", "dir/../../x", "a\x00b", "a\nb",
	} {
		for _, q := range []schemas.FileRequest{
			{Op: schemas.FileRead, Path: name, Length: 10},
			{Op: schemas.FileWrite, Path: name},
			{Op: schemas.FileList, Path: name, Limit: 10},
			{Op: schemas.FileCommit, Path: schemas.UploadsFolder + "/n-x", To: name},
			{Op: schemas.FileAppend, Path: name},
		} {
			if q.Op == schemas.FileCommit {
				if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: q.Path}, ""); err != nil {
					t.Fatal(err)
				}
			}
			if r, body, err := do(t, fsys, q, "written"); err == nil {
				t.Errorf("%s of %q: %+v %q", q.Op, name, r, body)
			}
		}
	}
	if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRemove, Path: "out", Recursive: true}, ""); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
		t.Errorf("%q %v", b, err)
	}
	for what, q := range map[string]schemas.FileRequest{
		"the root":              {Op: schemas.FileRemove, Path: "/", Recursive: true},
		"a folder into itself":  {Op: schemas.FileMove, Path: "dir", To: "dir/dir"},
		"a folder that is full": {Op: schemas.FileRemove, Path: ".sandjet"},
	} {
		if _, _, err := do(t, fsys, q, ""); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// TestUploadsAreBounded: parts of abandoned uploads are removed, and no workspace has too many others.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestUploadsAreBounded(t *testing.T) {
	t.Parallel()
	fsys, dir := open(t)
	for n := range schemas.MaxUploads {
		part := schemas.FileRequest{Op: schemas.FileAppend, Path: fmt.Sprintf("%s/n-%d", schemas.UploadsFolder, n)}
		if _, _, err := do(t, fsys, part, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{schemas.UploadsFolder, ".sandjet"} {
		r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileList, Path: folder, Recursive: true, Limit: 10}, "")
		if err != nil || len(r.Entries) > 1 { // .gitignore
			t.Errorf("%s lists %+v, %v", folder, r.Entries, err)
		}
	}
	one := schemas.FileRequest{Op: schemas.FileAppend, Path: schemas.UploadsFolder + "/n-more"}
	if _, _, err := do(t, fsys, one, "x"); schemas.CodeOf(err) != schemas.Exhausted {
		t.Errorf("one too many: %v", err)
	}
	old := time.Now().Add(-schemas.UploadLifetime - time.Hour)
	if err := os.Chtimes(filepath.Join(dir, schemas.UploadsFolder, "n-7"), old, old); err != nil {
		t.Fatal(err)
	}
	if _, _, err := do(t, fsys, one, "x"); err != nil {
		t.Errorf("once one is old: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, schemas.UploadsFolder, "n-7")); !os.IsNotExist(err) {
		t.Errorf("the old one: %v", err)
	}
}

// TestASuspendedWorkerAddsNothing: it continues with a piece when other workers have come further.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestASuspendedWorkerAddsNothing(t *testing.T) {
	t.Parallel()
	fsys, _ := open(t)
	at := schemas.UploadsFolder + "/n-1"
	pieces := []string{"one", "two", "three"}
	offset := int64(0)
	for _, p := range pieces {
		if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: offset}, p); err != nil {
			t.Fatal(err)
		}
		offset += int64(len(p))
	}
	late := &stood{FS: fsys}
	if _, _, err := files.Do(t.Context(), late, schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: 3}, []byte("two")); err != nil {
		t.Error(err)
	}
	got, _, err := workspacefs.ReadFile(t.Context(), fsys, at, 100)
	if want := "onetwothree"; err != nil || !bytes.Equal(got, []byte(want)) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	_, _, err = do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: 12}, "x")
	if schemas.CodeOf(err) != schemas.Conflict {
		t.Errorf("behind the end: %v", err)
	}
}

// stood is files of which the first look is from long ago.
type stood struct {
	workspacefs.FS

	looked bool
}

func (s *stood) Stat(ctx context.Context, name string) (os.FileInfo, error) {
	info, err := s.FS.Stat(ctx, name)
	if err == nil && !s.looked {
		s.looked = true
		return shorter{info}, nil
	}
	return info, err
}

type shorter struct{ os.FileInfo }

func (shorter) Size() int64 { return 3 }

// byRuns opens a folder by runs of bash, which are in no sandbox here.
func byRuns(t *testing.T) (fsys workspacefs.FS, dir string, runs *int) {
	t.Helper()
	dir, runs = t.TempDir(), new(int)
	fsys = runfs.New(runfs.Options{Run: func(ctx context.Context, c providers.Command) (r providers.Result, err error) {
		*runs++
		cmd := exec.CommandContext(ctx, "bash", "-c", c.Script)
		cmd.Dir, cmd.Stdin = dir, bytes.NewReader(c.Stdin)
		r.Stdout, err = cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			r.ExitCode, r.Stderr, err = exit.ExitCode(), exit.Stderr, nil
		}
		return r, err
	}})
	return fsys, dir, runs
}

// TestFilesByRunsAgainstAModel is TestFilesAgainstAModel where files are reached by runs.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesByRunsAgainstAModel(t *testing.T) {
	t.Parallel()
	fsys, _, _ := byRuns(t)
	operations := 15
	if longtest.Asked() {
		operations = 2000
	}
	filesAgainstAModel(t, fsys, operations)
}

// TestConditionsOfFilesByRuns is TestConditionsOfFiles where files are reached by runs.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestConditionsOfFilesByRuns(t *testing.T) {
	t.Parallel()
	fsys, _, _ := byRuns(t)
	conditionsOfFiles(t, fsys)
}

// TestFewRunsAnswerAQuestion, whatever it is about.
func TestFewRunsAnswerAQuestion(t *testing.T) {
	t.Parallel()
	fsys, dir, runs := byRuns(t)
	for n := range 300 {
		name := filepath.Join(dir, "tree", fmt.Sprint(n%7), fmt.Sprint(n))
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	upload := schemas.UploadsFolder + "/n-1"
	for _, c := range []struct {
		what string
		q    schemas.FileRequest
		most int
	}{
		{"a first piece", schemas.FileRequest{Op: schemas.FileAppend, Path: upload}, 4},
		{"another piece", schemas.FileRequest{Op: schemas.FileAppend, Path: upload, Offset: 4}, 2},
		{"its name", schemas.FileRequest{Op: schemas.FileCommit, Path: upload, To: "tree/f", Size: 8}, 3},
		{"a whole file", schemas.FileRequest{Op: schemas.FileWrite, Path: "tree/g"}, 2},
		{"a description", schemas.FileRequest{Op: schemas.FileStat, Path: "tree/g"}, 1},
		{"a piece", schemas.FileRequest{Op: schemas.FileRead, Path: "tree/f", Length: 10}, 1},
		{"a folder", schemas.FileRequest{Op: schemas.FileList, Path: "tree", Limit: 10}, 1},
		{"a tree", schemas.FileRequest{Op: schemas.FileList, Path: "tree", Limit: 1000, Recursive: true}, 1},
		{"another name", schemas.FileRequest{Op: schemas.FileMove, Path: "tree/f", To: "new/f"}, 2},
		{"the end of a tree", schemas.FileRequest{Op: schemas.FileRemove, Path: "tree", Recursive: true}, 2},
	} {
		*runs = 0
		if _, _, err := do(t, fsys, c.q, "text"); err != nil || *runs > c.most {
			t.Errorf("%s: %d runs, want %d at most, %v", c.what, *runs, c.most, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "new/f")); err != nil || string(got) != "texttext" {
		t.Errorf("%q, %v", got, err)
	}
}
