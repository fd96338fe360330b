package bucket

import (
	"bytes"
	"testing"

	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

const upload = schemas.UploadsFolder + "/n-1"

// twoWorkers are the files of one workspace, as two workers have them.
func twoWorkers(t *testing.T, s s3test.Server) (a, b files) {
	t.Helper()
	open := func() files {
		b, err := Open(Options{Bucket: "files", Prefix: "w/", Endpoint: s.URL, PathStyle: true, Credentials: Static(s3test.Key, s3test.Secret, "")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return files{reader{b}}
	}
	return open(), open()
}

// send sends an upload in pieces.
func send(t *testing.T, f files, content []byte) {
	t.Helper()
	for n := 0; n < len(content); n += schemas.MaxFileChunk {
		mode := workspacefs.Append
		if n == 0 {
			mode = workspacefs.Create
		}
		if err := f.Write(t.Context(), upload, content[n:min(n+schemas.MaxFileChunk, len(content))], mode, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, f files, name string, want []byte) {
	t.Helper()
	got, _, err := workspacefs.ReadFile(t.Context(), f, name, int64(len(want))+1)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, %v; want %d", name, len(got), err, len(want))
	}
}

// TestASuspendedWorkerReplacesNothing: it read an upload and what the upload replaces, and continues when another worker has given the
// upload its name and another writer has replaced the file.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestASuspendedWorkerReplacesNothing(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		for name, content := range map[string][]byte{"small": []byte("of the upload"), "large": make([]byte, PartSize+1)} {
			for _, there := range []string{"", "before"} {
				a, b := twoWorkers(t, s)
				to := name + there
				etag := ""
				if there != "" {
					must(t, b.Write(t.Context(), to, []byte(there), workspacefs.Create, nil))
					was, err := a.find(t.Context(), to)
					must(t, err)
					etag = was.(info).object.ETag
				}
				send(t, b, content)
				u, err := a.lookUp(t.Context(), upload, true)
				must(t, err)
				must(t, b.b.put(t.Context(), to, anyVersion, []byte("another's"), nil))
				if err := a.assembleUpload(t.Context(), u, to, etag); schemas.CodeOf(err) != schemas.Conflict {
					t.Errorf("%s over %q, while the upload is there: %v", name, there, err)
				}
				must(t, b.Rename(t.Context(), upload, to))
				has(t, b, to, content)
				must(t, b.b.put(t.Context(), to, anyVersion, []byte("another's"), nil))
				if err := a.assembleUpload(t.Context(), u, to, etag); err == nil {
					t.Errorf("%s over %q: it was written", name, there)
				}
				has(t, b, to, []byte("another's"))
			}
		}
	})
}

// TestASuspendedWorkerSparesTheNextUpload: it continues to remove or extend an upload when the id has become that of another one.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestASuspendedWorkerSparesTheNextUpload(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		a, b := twoWorkers(t, s)
		send(t, b, []byte("the first"))
		u, err := a.lookUp(t.Context(), upload, true)
		must(t, err)
		must(t, b.Rename(t.Context(), upload, "f"))
		send(t, b, []byte("the second"))
		must(t, a.discard(t.Context(), u))
		must(t, a.b.put(t.Context(), u.pieceAt(u.size), "", []byte("a late piece"), nil))
		if i, err := b.Stat(t.Context(), upload); err != nil || i.Size() != int64(len("the second")) {
			t.Errorf("%+v, %v", i, err)
		}
		must(t, b.Rename(t.Context(), upload, "g"))
		has(t, b, "f", []byte("the first"))
		has(t, b, "g", []byte("the second"))
		if n, sum, err := b.Used(t.Context(), 100, 1000); n != 2 || sum != int64(len("the first"+"the second")) || err != nil {
			t.Errorf("%d files, %d bytes, %v", n, sum, err)
		}
	})
}

// TestLatePiecesAreRemoved: those of an upload that is gone are seen as an upload, which the next ones remove once it is old, and nothing else
// is seen of them.
func TestLatePiecesAreRemoved(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		a, b := twoWorkers(t, s)
		send(t, b, []byte("the first"))
		u, err := a.lookUp(t.Context(), upload, true)
		must(t, err)
		must(t, b.Rename(t.Context(), upload, "f"))
		must(t, a.b.put(t.Context(), u.pieceAt(u.size), "", []byte("a late piece"), nil))
		if _, err := b.Stat(t.Context(), upload); workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
			t.Errorf("an upload that is gone: %v", err)
		}
		var seen []string
		must(t, b.ReadDir(t.Context(), schemas.UploadsFolder, false, func(e workspacefs.Entry) error {
			if i, err := e.Info(); err != nil || i.ModTime.IsZero() {
				t.Errorf("%s: %+v, %v", e.Name, i, err)
			}
			seen = append(seen, e.Name)
			return nil
		}))
		if len(seen) != 1 || seen[0] != "n-1" {
			t.Errorf("it has %q", seen)
		}
		must(t, b.Remove(t.Context(), upload))
		if err := b.Remove(t.Context(), upload); workspacefs.CodeOf(err) != workspacefs.ErrNotFound {
			t.Errorf("once more: %v", err)
		}
		if n, sum, err := b.Used(t.Context(), 100, 1000); n != 1 || sum != int64(len("the first")) || err != nil {
			t.Errorf("%d files, %d bytes, %v", n, sum, err)
		}
	})
}

// TestASlowMergeChangesNothing: pieces that another worker has merged are not merged again.
func TestASlowMergeChangesNothing(t *testing.T) {
	s3test.Each(t, "files", func(t *testing.T, s s3test.Server) {
		a, b := twoWorkers(t, s)
		var want []byte
		must(t, b.Write(t.Context(), upload, []byte("0"), workspacefs.Create, nil))
		want = append(want, '0')
		for n := range manyPieces - 2 {
			piece := []byte{byte('a' + n%26)}
			want = append(want, piece...)
			must(t, b.Write(t.Context(), upload, piece, workspacefs.Append, nil))
		}
		u, err := a.lookUp(t.Context(), upload, true)
		must(t, err)
		if len(u.pieces) != manyPieces-1 {
			t.Fatalf("%d pieces", len(u.pieces))
		}
		must(t, b.merge(t.Context(), u.pieces, nil))
		must(t, b.Write(t.Context(), upload, []byte("!"), workspacefs.Append, nil))
		want = append(want, '!')
		_ = a.merge(t.Context(), u.pieces, nil) // it finds that they are gone, or that another one was faster
		must(t, b.Rename(t.Context(), upload, "f"))
		has(t, b, "f", want)
	})
}
