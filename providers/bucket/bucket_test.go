package bucket_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
)

func open(t *testing.T, url, prefix string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open(bucket.Options{
		Bucket: "files", Prefix: prefix, Endpoint: url, PathStyle: true,
		Credentials: bucket.Static(s3test.Key, s3test.Secret, ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func put(t *testing.T, b *bucket.Bucket, name, etag string, data []byte) (bucket.Object, error) {
	t.Helper()
	sum := sha256.Sum256(data)
	return b.Put(t.Context(), name, etag, hex.EncodeToString(sum[:]), bytes.NewReader(data), int64(len(data)))
}

func mustPut(t *testing.T, b *bucket.Bucket, name, etag, text string) bucket.Object {
	t.Helper()
	o, err := put(t, b, name, etag, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func names(t *testing.T, b *bucket.Bucket) []string {
	t.Helper()
	var all []string
	if err := b.List(t.Context(), "", func(o bucket.Object) error {
		all = append(all, o.Name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantCode(t *testing.T, err error, code schemas.Code) {
	t.Helper()
	if schemas.CodeOf(err) != code {
		t.Errorf("got %v (%s), want %s", err, schemas.CodeOf(err), code)
	}
}

func TestAVersionIsReplacedOnlyByWhoeverKnowsIt(t *testing.T) {
	s3test.Each(t, "files", aVersionIsReplacedOnlyByWhoeverKnowsIt)
}

func aVersionIsReplacedOnlyByWhoeverKnowsIt(t *testing.T, s s3test.Server) {
	b := open(t, s.URL, "sandbox/a/")
	first := mustPut(t, b, "dir/x", "", "one")
	_, err := put(t, b, "dir/x", "", []byte("two"))
	wantCode(t, err, schemas.Conflict)
	second := mustPut(t, b, "dir/x", first.ETag, "three")
	_, err = put(t, b, "dir/x", first.ETag, []byte("four"))
	wantCode(t, err, schemas.Conflict)
	_, err = put(t, b, "dir/none", first.ETag, []byte("five"))
	wantCode(t, err, schemas.Conflict)
	if o := mustPut(t, b, "dir/x", first.ETag, "three"); o.ETag != second.ETag { // what is there already is no conflict
		t.Errorf("got version %s, want %s", o.ETag, second.ETag)
	}
	wantCode(t, b.Remove(t.Context(), "dir/x", first.ETag), schemas.Conflict)
	data, o, err := b.Get(t.Context(), "dir/x", second.ETag, 1, 2)
	if err != nil || string(data) != "hr" || o.Size != 5 {
		t.Errorf("got %q of %d, %v", data, o.Size, err)
	}
	_, _, err = b.Get(t.Context(), "dir/x", first.ETag, 0, 2)
	wantCode(t, err, schemas.Conflict)
	if err := b.Remove(t.Context(), "dir/x", second.ETag); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), "dir/x", second.ETag); err != nil {
		t.Error("removed twice:", err)
	}
	_, err = b.Head(t.Context(), "dir/x")
	wantCode(t, err, schemas.NotFound)
}

// TestCopiedMetadataIsNotBelieved replaces a file by another of the same size with the metadata of the first, as programs do that keep
// metadata: a write of the first content is a conflict then.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestCopiedMetadataIsNotBelieved(t *testing.T) {
	s3test.Each(t, "files", copiedMetadataIsNotBelieved)
}

func copiedMetadataIsNotBelieved(t *testing.T, s s3test.Server) {
	b := open(t, s.URL, "w/")
	first := mustPut(t, b, "x", "", "one")
	s3test.Write(t, s, "files", "w/x", "ONE", map[string]string{"sandjet-sha256": first.Hash})
	for _, etag := range []string{"", first.ETag} {
		_, err := put(t, b, "x", etag, []byte("one"))
		wantCode(t, err, schemas.Conflict)
	}
}

func TestSumsAreThoseOfServices(t *testing.T) { s3test.Each(t, "files", sumsAreThoseOfServices) }

func sumsAreThoseOfServices(t *testing.T, s s3test.Server) {
	b := open(t, s.URL, "w/")
	sizes := []int{0, 3}
	if longtest.Asked() {
		sizes = append(sizes, bucket.PartSize, bucket.PartSize+1, 2*bucket.PartSize)
	}
	for _, size := range sizes {
		data := bytes.Repeat([]byte("x"), size)
		o, err := put(t, b, fmt.Sprint(size), "", data)
		if err != nil {
			t.Fatal(err)
		}
		sum, other := bucket.NewSum(), bucket.NewSum()
		for part := range slices.Chunk(data, bucket.PartSize/2+3) {
			_, _ = sum.Write(part)
		}
		_, _ = other.Write(append(data, 'y')[min(size, 1):])
		o.Hash = strings.Repeat("0", 64) // it is not believed
		is, err := b.Holds(t.Context(), o, sum, 0)
		if !is || err != nil || !sum.Is(o.ETag) || sum.Size() != int64(size) {
			t.Errorf("%d bytes: %s is not known: %t, %v", size, o.ETag, is, err)
		}
		if is, err := b.Holds(t.Context(), o, other, 1<<30); is || err != nil {
			t.Errorf("%d bytes: another content is said to be equal: %v", size, err)
		}
	}
}

// TestContentIsReadWhereTheETagSaysNothing compares by reading, up to a limit.
func TestContentIsReadWhereTheETagSaysNothing(t *testing.T) {
	s := s3test.Memory(t, "files")
	p := s3test.Front(t, s)
	b := open(t, p.URL, "w/")
	s3test.Upload(t, s, "files", "w/x", "one", nil)
	o, err := b.Head(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	sum := bucket.NewSum()
	_, _ = sum.Write([]byte("one"))
	if sum.Is(o.ETag) {
		t.Fatal("the ETag of an upload in one part is that of a plain write")
	}
	if is, err := b.Holds(t.Context(), o, sum, 3); !is || err != nil {
		t.Errorf("an equal content is not seen: %v", err)
	}
	before := p.Asked()
	if is, err := b.Holds(t.Context(), o, sum, 2); is || err != nil || p.Asked() != before {
		t.Errorf("beyond the limit: %t, %v, %d requests", is, err, p.Asked()-before)
	}
}

func TestSixteenWritersOneWins(t *testing.T) { s3test.Each(t, "files", sixteenWritersOneWins) }

func sixteenWritersOneWins(t *testing.T, s s3test.Server) {
	b := open(t, s.URL, "")
	var wg sync.WaitGroup
	won := make(chan string, 16)
	for i := range 16 {
		wg.Go(func() {
			text := strings.Repeat("x", i+1)
			if _, err := put(t, b, "same", "", []byte(text)); err == nil {
				won <- text
			} else if schemas.CodeOf(err) != schemas.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	close(won)
	data, _, err := b.Get(t.Context(), "same", "", 0, 100)
	if text := <-won; err != nil || text != string(data) || len(won) != 0 {
		t.Errorf("%q won, %q is there, %d more won: %v", text, data, len(won), err)
	}
}

func TestLargeFilesGoInParts(t *testing.T) {
	longtest.Only(t, "files of 16 MiB")
	s3test.Each(t, "files", largeFilesGoInParts)
}

func largeFilesGoInParts(t *testing.T, s s3test.Server) {
	b := open(t, s.URL, "p/")
	data := bytes.Repeat([]byte("0123456789abcdef"), (2*bucket.PartSize+5*16)/16)
	o, err := put(t, b, "large", "", data)
	if err != nil {
		t.Fatal(err)
	}
	_, err = put(t, b, "large", "", data[1:])
	wantCode(t, err, schemas.Conflict)
	files := b.Reader()
	got, info, err := workspacefs.ReadFile(t.Context(), files, "large", 1<<30)
	if err != nil || !bytes.Equal(got, data) || info.Size() != int64(len(data)) || o.Size != info.Size() {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	torn := sha256.Sum256([]byte("another"))
	_, err = b.Put(t.Context(), "torn", "", hex.EncodeToString(torn[:]), bytes.NewReader(data), int64(len(data)))
	if !errors.Is(err, bucket.ErrTorn) {
		t.Errorf("a file that has changed was written: %v", err)
	}
	if all := names(t, b); !slices.Equal(all, []string{"large"}) {
		t.Errorf("there is %v", all)
	}
}

func TestNothingOutsideOfThePrefix(t *testing.T) {
	s := s3test.Start(t, "files")
	other := open(t, s.URL, "sandbox/ab/")
	mustPut(t, other, "secret", "", "of another")
	b := open(t, s.URL, "sandbox/a/")
	for _, name := range []string{
		"../ab/secret", "/x", "a//b", "a/./b", "a/..", "..", "", "x/", `a\b`, "a\x00b", "a\nb", "\xff", strings.Repeat("x", 256),
		strings.Repeat("x/", 600) + "y",
	} {
		_, err := b.Head(t.Context(), name)
		wantCode(t, err, schemas.Invalid)
		_, _, err = b.Get(t.Context(), name, "", 0, 10)
		wantCode(t, err, schemas.Invalid)
		_, err = put(t, b, name, "", []byte("x"))
		wantCode(t, err, schemas.Invalid)
		wantCode(t, b.Remove(t.Context(), name, "x"), schemas.Invalid)
	}
	if all := names(t, b); len(all) != 0 {
		t.Errorf("it sees %v", all)
	}
	if _, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: "sandbox/a", Credentials: bucket.Static("a", "b", "")}); err == nil {
		t.Error("a prefix without a slash would be that of others too")
	}
}

// TestServicesFail holds every request against a service that is busy, breaks and loses answers.
func TestServicesFail(t *testing.T) {
	p := s3test.Front(t, s3test.Start(t, "files"))
	b := open(t, p.URL, "w/")
	method := func(m string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == m }
	}
	for _, c := range []struct {
		name  string
		fault s3test.Fault
		of    string
	}{
		{"busy", s3test.Busy, http.MethodPut},
		{"broken", s3test.Dropped, http.MethodPut},
		{"lost", s3test.AnswerLost, http.MethodPut},
		{"raced", s3test.Raced, http.MethodPut},
		{"busy reading", s3test.Busy, http.MethodGet},
		{"broken reading", s3test.Dropped, http.MethodGet},
		{"half", s3test.HalfAnswer, http.MethodGet},
		{"lost removal", s3test.AnswerLost, http.MethodDelete},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.Judge(s3test.Once(c.fault, method(c.of)))
			o := mustPut(t, b, c.name, "", "first")
			o = mustPut(t, b, c.name, o.ETag, "second")
			data, _, err := b.Get(t.Context(), c.name, "", 0, 100)
			if err != nil || string(data) != "second" {
				t.Fatalf("got %q, %v", data, err)
			}
			if err := b.Remove(t.Context(), c.name, o.ETag); err != nil {
				t.Fatal(err)
			}
			if all := names(t, b); len(all) != 0 {
				t.Errorf("there is %v", all)
			}
		})
	}
	t.Run("parts", func(t *testing.T) {
		data := bytes.Repeat([]byte("x"), bucket.PartSize+10)
		p.Judge(s3test.Once(s3test.AnswerLost, func(r *http.Request) bool { // the one that completes
			return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
		}))
		if _, err := put(t, b, "parts", "", data); err != nil {
			t.Error(err)
		}
	})
	t.Run("away", func(t *testing.T) {
		p.Judge(func(*http.Request) s3test.Fault { return s3test.Raced })
		_, err := put(t, b, "never", "", []byte("x"))
		wantCode(t, err, schemas.Unavailable)
	})
}

func TestCheckFindsServicesThatIgnoreConditions(t *testing.T) {
	s := s3test.Start(t, "files")
	p := s3test.Front(t, s)
	b := open(t, p.URL, "sandbox/")
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	p.Judge(func(*http.Request) s3test.Fault { return s3test.Unconditional })
	if err := b.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "ignores If-None-Match") {
		t.Errorf("got %v", err)
	}
	if all := names(t, b); len(all) != 0 {
		t.Errorf("it leaves %v", all)
	}
	p.Judge(nil)
	good, bad := bucket.Static(s3test.Key, s3test.Secret, ""), bucket.Static(s3test.Key, "wrong", "")
	absent, err := bucket.Open(bucket.Options{Bucket: "none", Endpoint: s.URL, PathStyle: true, Credentials: good})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, absent.Check(t.Context()), schemas.Invalid)
	wrong, err := bucket.Open(bucket.Options{Bucket: "files", Endpoint: s.URL, PathStyle: true, Credentials: bad})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, wrong.Check(t.Context()), schemas.Denied)
}

func TestReaderSeesFolders(t *testing.T) {
	s := s3test.Start(t, "files")
	b := open(t, s.URL, "w/")
	mustPut(t, b, "a/b/c.txt", "", "deep")
	mustPut(t, b, "top.txt", "", "at the top")
	mustPut(t, b, "empty", "", "")
	if err := os.MkdirAll(filepath.Join(s.Folder, "files", "w", `back\slash`), 0o700); err != nil {
		t.Fatal(err)
	}
	files := b.Reader()
	var seen []string
	bounds := workspacefs.Bounds{Entries: 100, Bytes: 10_000}
	err := workspacefs.WalkSorted(t.Context(), files, ".", bounds, func(name string, e workspacefs.Entry) error {
		if e.Type.IsDir() {
			name += "/"
		}
		seen = append(seen, name)
		return nil
	})
	if want := []string{"a/", "a/b/", "a/b/c.txt", "empty", "top.txt"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("got %v, %v, want %v", seen, err, want)
	}
	for name, want := range map[string]workspacefs.Code{
		"a": workspacefs.ErrIsDirectory, "none": workspacefs.ErrNotFound, "top.txt/x": workspacefs.ErrNotDirectory,
		"a/../top.txt": workspacefs.ErrBadName, `x\y`: workspacefs.ErrBadName,
	} {
		if _, err := files.Open(t.Context(), name); workspacefs.CodeOf(err) != want {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	for _, change := range []error{
		files.Write(t.Context(), "new", nil, workspacefs.Create, nil), files.Remove(t.Context(), "top.txt"),
		files.Rename(t.Context(), "top.txt", "b"), files.MkdirAll(t.Context(), "d"),
	} {
		if workspacefs.CodeOf(change) != workspacefs.ErrReadOnly {
			t.Errorf("got %v", change)
		}
	}
	f, err := files.Open(t.Context(), "top.txt")
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 3)
	if _, err := f.ReadAt(part, 3); err != nil || string(part) != "the" {
		t.Errorf("got %q, %v", part, err)
	}
	o, err := b.Head(t.Context(), "top.txt")
	if err != nil {
		t.Fatal(err)
	}
	mustPut(t, b, "top.txt", o.ETag, "AT THE TOP")
	if _, err := io.ReadAll(f); workspacefs.CodeOf(err) != workspacefs.ErrChanged {
		t.Errorf("two versions in one read: %v", err)
	}
}
