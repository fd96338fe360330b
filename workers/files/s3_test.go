package files_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/providertest"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/files"
)

func onS3(t *testing.T, url, prefix string) workspacefs.FS {
	t.Helper()
	b, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: prefix, Endpoint: url, PathStyle: true,
		Credentials: bucket.Static(s3test.Key, s3test.Secret, "")})
	if err != nil {
		t.Fatal(err)
	}
	fsys := b.Files()
	t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// TestFilesOnS3KeepTheContract of files of a workspace, as far as S3 has what it speaks of.
func TestFilesOnS3KeepTheContract(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		n := 0
		except := []string{
			"names are sequences of bytes",                                                      // those that are no keys are refused
			"directories are made, listed and removed", "files and directories get other names", // a folder is there while something is in it
			"a replaced file is whole at every moment", // or its readers get the error that it was replaced
		}
		if !longtest.Asked() { // TestFilesOfSeveralPages has fewer, written by another program
			except = append(except, "a long directory is listed to its end")
		}
		providertest.RunFS(t, func(*testing.T) providertest.Workspace {
			n++
			prefix := strings.Repeat("w", n) + "/"
			return providertest.Workspace{Open: func(t *testing.T, readOnly bool) workspacefs.FS {
				if readOnly {
					b, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: prefix, Endpoint: s.URL, PathStyle: true,
						Credentials: bucket.Static(s3test.Key, s3test.Secret, "")})
					if err != nil {
						t.Fatal(err)
					}
					return b.Reader()
				}
				return onS3(t, s.URL, prefix)
			}}
		}, except...)
	})
}

// TestFilesOfSeveralPages are all listed, counted and removed, whichever process wrote them.
func TestFilesOfSeveralPages(t *testing.T) {
	t.Parallel()
	s := s3test.Memory(t, "files")
	fsys := onS3(t, s.URL, "w/")
	const most = 250
	for n := range most {
		s3test.Write(t, s, "files", fmt.Sprintf("w/d/%03d", n), "x", nil)
	}
	r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileList, Path: "d", Limit: 1000}, "")
	if err != nil || len(r.Entries) != most || r.Entries[most-1].Path != "d/249" {
		t.Errorf("%d are listed, %v", len(r.Entries), err)
	}
	if n, bytes, err := used(t, fsys); n != most || bytes != most || err != nil {
		t.Errorf("%d files with %d bytes, %v", n, bytes, err)
	}
	if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRemove, Path: "d", Recursive: true}, ""); err != nil {
		t.Error(err)
	}
	if n, _, err := used(t, fsys); n != 0 || err != nil {
		t.Errorf("%d files are left, %v", n, err)
	}
}

// TestFoldersOnS3 are there while something is in them, or they were made.
func TestFoldersOnS3(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		fsys := onS3(t, s.URL, "w/")
		for _, c := range []struct {
			q    schemas.FileRequest
			code workspacefs.Code
		}{
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "a/b/f"}, ""},
			{schemas.FileRequest{Op: schemas.FileStat, Path: "a"}, ""},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "a/b"}, workspacefs.ErrIsDirectory},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "a/b/f/g"}, workspacefs.ErrNotDirectory},
			{schemas.FileRequest{Op: schemas.FileMkdir, Path: "a/b/f"}, workspacefs.ErrNotDirectory},
			{schemas.FileRequest{Op: schemas.FileMkdir, Path: "a/b/f/g"}, workspacefs.ErrNotDirectory},
			{schemas.FileRequest{Op: schemas.FileRemove, Path: "a/b/f"}, ""},
			{schemas.FileRequest{Op: schemas.FileStat, Path: "a"}, workspacefs.ErrNotFound},
			{schemas.FileRequest{Op: schemas.FileMkdir, Path: "made/deep"}, ""},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "made/deep/x"}, ""},
			{schemas.FileRequest{Op: schemas.FileMove, Path: "made", To: "moved"}, ""},
			{schemas.FileRequest{Op: schemas.FileStat, Path: "made"}, workspacefs.ErrNotFound},
			{schemas.FileRequest{Op: schemas.FileRemove, Path: "moved/deep/x"}, ""},
			{schemas.FileRequest{Op: schemas.FileStat, Path: "moved/deep"}, ""},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "old"}, ""},
			{schemas.FileRequest{Op: schemas.FileMove, Path: "moved", To: "old"}, workspacefs.ErrExists},
			{schemas.FileRequest{Op: schemas.FileMove, Path: "old", To: "moved"}, workspacefs.ErrIsDirectory},
			{schemas.FileRequest{Op: schemas.FileMove, Path: "none", To: "x"}, workspacefs.ErrNotFound},
			{schemas.FileRequest{Op: schemas.FileMove, Path: "old", To: "new/x"}, ""},
			{schemas.FileRequest{Op: schemas.FileRemove, Path: "moved", Recursive: true}, ""},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: "a\\b"}, workspacefs.ErrBadName},
			{schemas.FileRequest{Op: schemas.FileWrite, Path: strings.Repeat("long/", 250)}, workspacefs.ErrBadName},
		} {
			if _, _, err := do(t, fsys, c.q, "x"); workspacefs.CodeOf(err) != c.code || c.code == "" && err != nil {
				t.Errorf("%s of %s: %v, want %q", c.q.Op, c.q.Path, err, c.code)
			}
		}
		r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileList, Recursive: true, Limit: 10}, "")
		if err != nil || len(r.Entries) != 2 || r.Entries[1].Path != "new/x" {
			t.Errorf("it has %+v, %v", r.Entries, err)
		}
	})
}

// TestFilesOnS3AgainstAModel is [TestFilesAgainstAModel] there.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesOnS3AgainstAModel(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		filesAgainstAModel(t, onS3(t, s.URL, "w/"), longtest.Scale(150, 1000))
		conditionsOfFiles(t, onS3(t, s.URL, "c/"))
	})
}

// upload sends a file in pieces, as gateways do, and gives it a name. What a request changes for a while is its caller's.
func upload(t *testing.T, fsys workspacefs.FS, id, to string, content []byte, piece int) schemas.FileReply {
	t.Helper()
	at := schemas.UploadsFolder + "/" + id
	var last schemas.FileReply
	for n := 0; n < len(content); n += piece {
		var err error
		if last, _, err = do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: int64(n)}, string(content[n:min(n+piece, len(content))])); err != nil {
			t.Fatalf("at %d: %v", n, err)
		}
	}
	r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileCommit, Path: at, To: to, Size: int64(len(content)), Was: last.File}, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func noise(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // it never fails
	return data
}

func wantContent(t *testing.T, fsys workspacefs.FS, name string, want []byte) {
	t.Helper()
	got, _, err := workspacefs.ReadFile(t.Context(), fsys, name, int64(len(want))+1)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, %v; want the %d that were sent", name, len(got), err, len(want))
	}
}

// TestLargeFilesOnS3: pieces are merged as they come, what is put together is what was sent, and nothing of the upload stays.
func TestLargeFilesOnS3(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		fsys := onS3(t, s.URL, "w/")
		for name, c := range map[string]struct {
			size, piece int
			long        bool // in the long form alone
		}{
			"one byte":                     {1, schemas.MaxFileChunk, false},
			"one part":                     {bucket.PartSize, schemas.MaxFileChunk, true},
			"one byte more":                {bucket.PartSize + 1, schemas.MaxFileChunk, false},
			"many parts":                   {3*bucket.PartSize + 12_345, schemas.MaxFileChunk, true},
			"small pieces":                 {50_000, 999, false},
			"many small pieces":            {200_000, 999, true},
			"pieces of no size in general": {bucket.PartSize + 1_000_000, 300_001, true},
		} {
			if c.long && !longtest.Asked() {
				continue
			}
			content := noise(c.size)
			r := upload(t, fsys, "n-1", "dir/file", content, c.piece) // the id is used again
			wantContent(t, fsys, "dir/file", content)
			at := schemas.FileRequest{Op: schemas.FileStat, Path: "dir/file"}
			if there, _, err := do(t, fsys, at, ""); err != nil || there.File.ETag != r.File.ETag || there.File.Size != int64(c.size) {
				t.Errorf("%s: it is %+v, %v; the commit said %+v", name, there.File, err, r.File)
			}
			moved := schemas.FileRequest{Op: schemas.FileMove, Path: "dir", To: "moved"}
			if _, _, err := do(t, fsys, moved, ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			wantContent(t, fsys, "moved/file", content)
			if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRemove, Path: "moved", Recursive: true}, ""); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n, bytes, err := used(t, fsys); err != nil || n > 1 || bytes > 1000 { // the notes of uploads, and .gitignore
			t.Errorf("%d files with %d bytes are left, %v", n, bytes, err)
		}
	})
}

func used(t *testing.T, fsys workspacefs.FS) (int, int64, error) {
	t.Helper()
	u, ok := fsys.(interface {
		Used(ctx context.Context, files int, bytes int64) (int, int64, error)
	})
	if !ok {
		t.Fatal("it does not say how much it has")
	}
	return u.Used(t.Context(), 1000, 1<<40)
}

// TestUploadsOnS3ThroughFaults: whatever happens to requests, asked again an upload becomes the file that was sent.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestUploadsOnS3ThroughFaults(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		p := s3test.Front(t, s)
		fsys := onS3(t, p.URL, "w/")
		r := rand.New(rand.NewPCG(3, 4))
		p.Judge(func(*http.Request) s3test.Fault {
			switch r.IntN(40) {
			case 0:
				return s3test.AnswerLost
			case 1:
				return s3test.Dropped
			case 2:
				return s3test.HalfAnswer
			}
			return s3test.None
		})
		content := noise(longtest.Scale(1, 3)*bucket.PartSize + 777)
		at := schemas.UploadsFolder + "/n-1"
		ask := func(q schemas.FileRequest, data []byte) schemas.FileReply {
			t.Helper()
			for n := 0; ; n++ {
				reply, _, err := do(t, fsys, q, string(data))
				if err == nil {
					return reply
				}
				if q.Again = true; n == 20 {
					t.Fatalf("%s at %d: %v", q.Op, q.Offset, err)
				}
			}
		}
		var last schemas.FileReply
		for n := 0; n < len(content); n += schemas.MaxFileChunk {
			last = ask(schemas.FileRequest{Op: schemas.FileAppend, Path: at, Offset: int64(n)}, content[n:min(n+schemas.MaxFileChunk, len(content))])
		}
		ask(schemas.FileRequest{Op: schemas.FileCommit, Path: at, To: "f", Size: int64(len(content)), Was: last.File}, nil)
		p.Judge(nil)
		wantContent(t, fsys, "f", content)
	})
}

// largeOnS3 is the content of a file that the service puts together.
var largeOnS3 = noise(bucket.PartSize + schemas.MaxFileChunk + 7)

// dying answers the requests of a worker until it dies at one of them: before the service has it, or before its answer is there.
type dying struct {
	at, n int
	fault s3test.Fault
	end   context.CancelFunc
}

func (d *dying) judge(*http.Request) s3test.Fault {
	if d.n++; d.n < d.at {
		return s3test.None
	}
	d.end()
	if d.n == d.at {
		return d.fault
	}
	return s3test.Dropped
}

// TestAWorkerOnS3DiesAtAnyRequest of a change, and another one is asked again: the files are as after one change, and nothing stays behind.
// The first worker may also have been suspended: its requests that follow are lost with it, since each change has half a minute.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestAWorkerOnS3DiesAtAnyRequest(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		for name, c := range map[string]struct {
			before func(*testing.T, workspacefs.FS) schemas.FileRequest
			want   map[string][]byte
			step   int // of the short form
		}{
			"a small upload gets its name": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				return staged(t, fsys, "n-1", []byte("in pieces"), 4)
			}, map[string][]byte{"to/f": []byte("in pieces")}, 3},
			"on a condition": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				q := staged(t, fsys, "n-1", []byte("in pieces"), 4)
				q.IfNone = true
				return q
			}, map[string][]byte{"to/f": []byte("in pieces")}, 2},
			"in the place of a version": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				was := write(t, fsys, "to/f", "before")
				q := staged(t, fsys, "n-1", []byte("in pieces"), 4)
				q.If = was.ETag
				return q
			}, map[string][]byte{"to/f": []byte("in pieces")}, 3},
			"a large upload gets its name": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				q := staged(t, fsys, "n-1", largeOnS3, schemas.MaxFileChunk)
				q.IfNone = true
				return q
			}, map[string][]byte{"to/f": largeOnS3}, 13},
			"a file is moved": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				write(t, fsys, "from", "content")
				return schemas.FileRequest{Op: schemas.FileMove, Path: "from", To: "to/f", IfNone: true}
			}, map[string][]byte{"to/f": []byte("content")}, 1},
			"a folder is moved": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				for _, name := range []string{"a", "b", "c/d"} {
					write(t, fsys, "from/"+name, name)
				}
				upload(t, fsys, "u-1", "from/pieces", []byte("in pieces"), 4)
				return schemas.FileRequest{Op: schemas.FileMove, Path: "from", To: "to", IfNone: true}
			}, map[string][]byte{"to/a": []byte("a"), "to/b": []byte("b"), "to/c/d": []byte("c/d"), "to/pieces": []byte("in pieces")}, 5},
			"a folder is removed": {func(t *testing.T, fsys workspacefs.FS) schemas.FileRequest {
				t.Helper()
				for _, name := range []string{"a", "b", "c/d"} {
					write(t, fsys, "from/"+name, name)
				}
				return schemas.FileRequest{Op: schemas.FileRemove, Path: "from", Recursive: true}
			}, map[string][]byte{}, 4},
		} {
			t.Run(name, func(t *testing.T) {
				p := s3test.Front(t, s)
				step := longtest.Scale(c.step, max(1, c.step/4)) // in the long form each request, of a large file each third
				for at := 1; ; at += step {
					faults := []s3test.Fault{s3test.Dropped, s3test.AnswerLost}
					if !longtest.Asked() { // one of them in turn
						faults = faults[(at/step)%2:][:1]
					}
					for _, fault := range faults {
						prefix := fmt.Sprintf("%s/%d-%d/", name, at, fault)
						q := c.before(t, onS3(t, s.URL, prefix))
						q.Account, q.Workspace = "acct_1", "ws_1"
						ctx, end := context.WithCancel(t.Context())
						d := &dying{at: at, fault: fault, end: end}
						p.Judge(d.judge)
						_, _, err := files.Do(ctx, onS3(t, p.URL, prefix), q, nil)
						p.Judge(nil)
						end()
						if d.n < at { // it was not that many
							if err != nil {
								t.Errorf("without a fault: %v", err)
							}
							return
						}
						fsys := onS3(t, s.URL, prefix)
						q.Again = true
						if _, _, err := do(t, fsys, q, ""); err != nil {
							t.Fatalf("%v at request %d, asked again: %v", fault, at, err)
						}
						wantFiles(t, fsys, c.want, fmt.Sprintf("%v at request %d", fault, at))
					}
				}
			})
		}
	})
}

// staged sends a file in pieces, and returns the request that gives it its name.
func staged(t *testing.T, fsys workspacefs.FS, id string, content []byte, piece int) schemas.FileRequest {
	t.Helper()
	q := schemas.FileRequest{Op: schemas.FileCommit, Path: schemas.UploadsFolder + "/" + id, To: "to/f", Size: int64(len(content))}
	for n := 0; n < len(content); n += piece {
		part := string(content[n:min(n+piece, len(content))])
		r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileAppend, Path: q.Path, Offset: int64(n)}, part)
		if err != nil {
			t.Fatal(err)
		}
		q.Was = r.File
	}
	return q
}

func write(t *testing.T, fsys workspacefs.FS, name, content string) *schemas.FileInfo {
	t.Helper()
	r, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileWrite, Path: name}, content)
	if err != nil {
		t.Fatal(err)
	}
	return r.File
}

// wantFiles wants these files and no others, and nothing of an upload but the notes.
func wantFiles(t *testing.T, fsys workspacefs.FS, want map[string][]byte, when string) {
	t.Helper()
	for name, content := range want {
		got, _, err := workspacefs.ReadFile(t.Context(), fsys, name, int64(len(content))+1)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %s has %d bytes, %v; want %d", when, name, len(got), err, len(content))
		}
	}
	bounds := workspacefs.Bounds{Entries: 1000, Bytes: 1 << 20}
	err := workspacefs.Walk(t.Context(), fsys, ".", bounds, func(name string, e workspacefs.Entry) error {
		if _, ok := want[name]; !ok && !e.Type.IsDir() && !strings.HasSuffix(name, ".done") && name != ".sandjet/.gitignore" {
			t.Errorf("%s: %s is left", when, name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAMoveOnS3ReplacesNothingUnseen: a move that broke off and is asked for again copies nothing over what another writer has put there, and
// a folder that was there before is not mixed with another one.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestAMoveOnS3ReplacesNothingUnseen(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		p := s3test.Front(t, s)
		fsys := onS3(t, s.URL, "w/")
		write(t, fsys, "from/a", "a")
		write(t, fsys, "from/b", "b")
		move := schemas.FileRequest{Op: schemas.FileMove, Path: "from", To: "to"}
		p.Judge(func(r *http.Request) s3test.Fault { // the credentials may not copy b
			if strings.HasSuffix(r.Header.Get("X-Amz-Copy-Source"), "/b") {
				return s3test.Denied
			}
			return s3test.None
		})
		if _, _, err := do(t, onS3(t, p.URL, "w/"), move, ""); err == nil {
			t.Error("it was moved")
		}
		wantContent(t, fsys, "from/a", []byte("a"))
		write(t, fsys, "to/a", "another's")
		move.Again = true
		if _, _, err := do(t, fsys, move, ""); workspacefs.CodeOf(err) != workspacefs.ErrChanged {
			t.Errorf("another's file is there: %v", err)
		}
		wantContent(t, fsys, "from/a", []byte("a"))
		wantContent(t, fsys, "to/a", []byte("another's"))
		if _, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileRemove, Path: "to/a"}, ""); err != nil {
			t.Error(err)
		}
		if _, _, err := do(t, fsys, move, ""); err != nil { // it continues where it broke off
			t.Error(err)
		}
		wantContent(t, fsys, "to/b", []byte("b"))
		write(t, fsys, "from/c", "c")
		if _, _, err := do(t, fsys, move, ""); workspacefs.CodeOf(err) != workspacefs.ErrIsDirectory {
			t.Errorf("the folder is there: %v", err)
		}
	})
}

// TestFoldersThatAreMovedOnS3AreBounded says what does not fit before anything is copied.
//
//guarantee:bounds
func TestFoldersThatAreMovedOnS3AreBounded(t *testing.T) {
	t.Parallel()
	s := s3test.Memory(t, "files")
	fsys := onS3(t, s.URL, "w/")
	for n := range 1001 {
		s3test.Write(t, s, "files", fmt.Sprintf("w/from/%d", n), "", nil)
	}
	_, _, err := do(t, fsys, schemas.FileRequest{Op: schemas.FileMove, Path: "from", To: "to"}, "")
	if schemas.CodeOf(err) != schemas.Exhausted || !strings.Contains(err.Error(), "1000") {
		t.Errorf("a folder of 1001 files: %v", err)
	}
	if _, err := fsys.Stat(t.Context(), "to"); workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
		t.Errorf("something was copied: %v", err)
	}
}

// TestWritersOfOnePathOnS3: of many that write a file at the same time, whole or in pieces, each sees its own outcome: the file is one of
// theirs as it was sent, of those on a condition exactly one succeeds, and nothing of the others stays.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestWritersOfOnePathOnS3(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		fsys := onS3(t, s.URL, "w/")
		const writers = 8
		for round := range longtest.Scale(2, 20) {
			to := fmt.Sprintf("f%d", round)
			sent := map[string]bool{}
			requests := make([]schemas.FileRequest, writers)
			contents := make([]string, writers)
			for n := range requests {
				contents[n] = fmt.Sprintf("%d %d", round, n)
				sent[contents[n]] = true
				requests[n] = schemas.FileRequest{Op: schemas.FileWrite, Path: to, IfNone: true}
				if n%2 == 0 {
					requests[n] = staged(t, fsys, fmt.Sprintf("u-%d", n), []byte(contents[n]), 2)
					requests[n].To, requests[n].IfNone = to, true
				}
			}
			var done sync.WaitGroup
			errs := make([]error, writers)
			for n, q := range requests {
				q.Account, q.Workspace = "acct_1", "ws_1"
				data := []byte(contents[n])
				if q.Op == schemas.FileCommit {
					data = nil
				}
				done.Go(func() { _, _, errs[n] = files.Do(t.Context(), fsys, q, data) })
			}
			done.Wait()
			won := 0
			for n, err := range errs {
				switch code := workspacefs.CodeOf(err); {
				case err == nil:
					won++
					wantContent(t, fsys, to, []byte(contents[n]))
				case code != workspacefs.ErrExists && code != workspacefs.ErrChanged:
					t.Errorf("writer %d: %v", n, err)
				}
			}
			if won != 1 {
				t.Errorf("%d have won", won)
			}
			for n := range requests { // as gateways do
				_, _, _ = do(t, fsys, schemas.FileRequest{Op: schemas.FileRemove, Path: fmt.Sprintf("%s/u-%d", schemas.UploadsFolder, n), Again: true}, "")
			}
		}
		if n, _, err := used(t, fsys); err != nil || n != longtest.Scale(2, 20)+1 { // .gitignore
			t.Errorf("%d files, %v", n, err)
		}
	})
}
