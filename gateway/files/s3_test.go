package files_test

import (
	"archive/tar"
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"

	worker "github.com/sandjet/sandjet/workers/files"
)

// startOnS3 starts a gateway and workers that reach a bucket.
func startOnS3(t *testing.T, workers int, room *worker.Room) *plane {
	t.Helper()
	s := s3test.Memory(t, "files")
	open := func(context.Context, schemas.AccountID, schemas.WorkspaceID) (workspacefs.FS, error) {
		b, err := bucket.Open(bucket.Options{Bucket: "files", Prefix: "w/", Endpoint: s.URL, PathStyle: true,
			Credentials: bucket.Static(s3test.Key, s3test.Secret, "")})
		if err != nil {
			return nil, err
		}
		return b.Files(), nil
	}
	var servers []*worker.Server
	for range workers {
		servers = append(servers, &worker.Server{Place: streams.FilesInBucket, Open: open, Room: room})
	}
	return startWith(t, schemas.Workspace{Storage: "s3"}, servers...)
}

func (p *plane) client() *client.Client {
	c := client.New(strings.TrimSuffix(p.url, "/v1/workspaces/"), "key")
	c.HTTP, c.Pause = &http.Client{Transport: asAccount{}}, time.Millisecond
	return c
}

// TestFilesOnS3ComeAndGo over a network that loses requests and answers, by two workers.
func TestFilesOnS3ComeAndGo(t *testing.T) {
	t.Parallel()
	p := startOnS3(t, 2, nil)
	network := &broken{chance: chance(2)}
	c := p.client()
	c.HTTP = &http.Client{Transport: network}
	for _, size := range []int{0, 3, schemas.MaxFileChunk + 1, 9<<20 + 5} {
		content := random(size)
		f, err := c.Files(workspace).Upload(t.Context(), "dir/a b.bin", bytes.NewReader(content), client.UploadOptions{})
		if err != nil || f.Size != int64(size) {
			t.Fatalf("%d bytes: %+v, %v", size, f, err)
		}
		var back bytes.Buffer
		n, err := c.Files(workspace).Download(t.Context(), "dir/a b.bin", &back)
		if err != nil || n != int64(size) || !bytes.Equal(back.Bytes(), content) {
			t.Fatalf("%d bytes: %d came back, %v", size, n, err)
		}
	}
	if list, err := c.Files(workspace).List(t.Context(), client.FilesQuery{Recursive: true}); err != nil || len(list.Entries) != 4 { // .sandjet
		t.Errorf("%+v %v", list, err)
	}
	got := p.ask(http.MethodPut, workspace+"/archive?path=d", bytes.NewReader(packed(t, file("a/b", "1", 0o755), file("c", "2", 0o644))))
	if got.status != http.StatusOK {
		t.Errorf("%d %s", got.status, got.body)
	}
	got = p.ask(http.MethodGet, workspace+"/archive?path=d", nil)
	if text := members(t, strings.NewReader(got.body)); got.status != http.StatusOK || !strings.Contains(text, "a/b") {
		t.Errorf("%d %s", got.status, text)
	}
}

// TestLimitsOfFilesAreFinal: what a limit of the files refuses is answered so that no client repeats it, and it says which limit that is.
//
//guarantee:bounds
func TestLimitsOfFilesAreFinal(t *testing.T) {
	t.Parallel()
	p := startOnS3(t, 1, &worker.Room{Files: 4, Bytes: 2<<20 + 10, FileSize: 1 << 20})
	c := p.client()
	put := func(path string, size int) error {
		_, err := c.Files(workspace).Upload(t.Context(), path, bytes.NewReader(make([]byte, size)), client.UploadOptions{})
		return err
	}
	wants := func(what string, err error, code schemas.Code, text string) {
		t.Helper()
		if schemas.CodeOf(err) != code || code != "" && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %s with %q", what, err, code, text)
		}
	}
	wants("a file of the most", put("a", 1<<20), "", "")
	wants("one byte more", put("b", 1<<20+1), schemas.Invalid, "--s3-file-size")
	wants("a large one in parts", put("b", 17<<20), schemas.Invalid, "--s3-file-size")
	if got := p.ask(http.MethodPut, workspace+"/files/c", strings.NewReader(strings.Repeat("x", 1<<20+1))); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
	wants("all that the workspace may have", put("b", 1<<20), "", "")
	wants("more", put("c", 100), schemas.Exhausted, "--s3-bytes")
	if got := p.ask(http.MethodPut, workspace+"/files/c", strings.NewReader(strings.Repeat("x", 100))); got.status != http.StatusInsufficientStorage ||
		got.header.Get("Retry-After") != "" {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	got := p.ask(http.MethodPut, workspace+"/archive", bytes.NewReader(packed(t, file("c", strings.Repeat("1", 100), 0o644))))
	if got.status != http.StatusInsufficientStorage || !strings.Contains(got.body, "--s3-bytes") || !strings.Contains(got.body, "0 files") {
		t.Errorf("an archive: %d %s", got.status, got.body)
	}
	var many bytes.Buffer
	w := tar.NewWriter(&many)
	for range schemas.MaxFilesListed + 1 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := p.ask(http.MethodPut, workspace+"/archive", &many); got.status != http.StatusInsufficientStorage {
		t.Errorf("too many entries: %d %s", got.status, got.body)
	}
}
