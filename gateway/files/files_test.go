package files_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/files"
	"github.com/sandjet/sandjet/gateway/quota"
	"github.com/sandjet/sandjet/gateway/web"
	"github.com/sandjet/sandjet/internal/filesclient"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"

	worker "github.com/sandjet/sandjet/workers/files"
)

// folders are workspaces below a folder. Lost is how many of their answers are lost, after their work was done.
type folders struct {
	dir  string
	lost func() bool
	open func() // before each is opened; nil: nothing
}

func (f folders) OpenWorkspace(_ context.Context, _ schemas.AccountID, m providers.Mount) (workspacefs.FS, error) {
	if f.open != nil {
		f.open()
	}
	dir := filepath.Join(f.dir, m.Namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := safefs.Open(dir, safefs.Options{})
	if err != nil {
		return nil, err
	}
	return lossy{root, f.lost}, nil
}

// lossy is files whose worker seems to its caller to die when it has done its work.
type lossy struct {
	workspacefs.FS

	lost func() bool
}

func (l lossy) after(err error) error {
	if err == nil && l.lost != nil && l.lost() {
		return schemas.Errorf(schemas.Unavailable, "the worker died")
	}
	return err
}

func (l lossy) Write(ctx context.Context, name string, content []byte, mode workspacefs.Mode, was os.FileInfo) error {
	return l.after(l.FS.Write(ctx, name, content, mode, was))
}

func (l lossy) Rename(ctx context.Context, from, to string) error {
	return l.after(l.FS.Rename(ctx, from, to))
}

func (l lossy) Remove(ctx context.Context, name string) error { return l.after(l.FS.Remove(ctx, name)) }

func (l lossy) Mark(ctx context.Context, name string, executable *bool, modified time.Time) error {
	return l.FS.(workspacefs.Marker).Mark(ctx, name, executable, modified)
}

const workspace = "ws_1"

// plane is a gateway's file plane over HTTP, and its workers.
type plane struct {
	t   *testing.T
	url string
	dir string // of the workspace

	transfers *quota.Ledger
}

func start(t *testing.T, workers int, lost func() bool) *plane {
	t.Helper()
	dir := t.TempDir()
	var servers []*worker.Server
	for range workers {
		servers = append(servers, &worker.Server{Place: streams.FilesInFolders("local"), Open: worker.InFolders(folders{dir: dir, lost: lost})})
	}
	p := startWith(t, schemas.Workspace{}, servers...)
	p.dir = filepath.Join(dir, schemas.Namespace("acct_1", workspace))
	return p
}

// startWith starts a gateway that finds a workspace of this kind, and its workers.
func startWith(t *testing.T, found schemas.Workspace, servers ...*worker.Server) *plane {
	t.Helper()
	bus := natstest.Start(t).Bus
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	for _, s := range servers {
		s.Bus, s.Log = bus, slog.New(slog.DiscardHandler)
		running.Go(func() { s.Run(ctx) })
	}
	f := files.New(files.Options{
		Bus: bus,
		Workspace: func(_ context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.WorkspaceFiles, error) {
			if a != "acct_1" || id != workspace {
				return schemas.WorkspaceFiles{}, schemas.Errorf(schemas.NotFound, "there is no such workspace")
			}
			found := found
			found.ID, found.Account = id, a
			return schemas.WorkspaceFiles{Workspace: found, Provider: "local"}, nil
		},
		Stream: func(_ http.ResponseWriter, r *http.Request, _ schemas.AccountID) (context.Context, func(), error) {
			ctx, end := context.WithCancelCause(r.Context())
			if d, err := time.ParseDuration(r.Header.Get("Key-Ends")); err == nil { // as a key that is taken back
				time.AfterFunc(d, func() { end(schemas.Errorf(schemas.Denied, "the key has ended")) })
			}
			return ctx, func() { end(nil) }, nil
		},
	})
	edge := &web.Edge{Log: slog.New(slog.DiscardHandler), Stall: time.Minute, Answered: func(string, int, time.Duration) {},
		Holds: web.NewHolds(web.HoldLimits{})}
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, schemas.AccountID) error{
		"GET /v1/workspaces/{id}/files":               f.List,
		"GET /v1/workspaces/{id}/files/{path...}":     f.Get,
		"PUT /v1/workspaces/{id}/files/{path...}":     f.Put,
		"DELETE /v1/workspaces/{id}/files/{path...}":  f.Delete,
		"GET /v1/workspaces/{id}/archive":             f.GetArchive,
		"PUT /v1/workspaces/{id}/archive":             f.PutArchive,
		"GET /v1/workspaces/{id}/uploads/{upload}":    f.GetUpload,
		"DELETE /v1/workspaces/{id}/uploads/{upload}": f.DeleteUpload,
		"POST /v1/workspaces/{id}/move":               f.PostMove,
		"POST /v1/workspaces/{id}/mkdir":              f.PostMkdir,
	} {
		mux.HandleFunc(pattern, edge.Handle(func(w http.ResponseWriter, r *http.Request) error {
			return h(w, r, schemas.AccountID(r.Header.Get("Account")))
		}))
	}
	server := httptest.NewServer(edge.Middleware(mux))
	t.Cleanup(server.Close)
	return &plane{t: t, url: server.URL + "/v1/workspaces/", transfers: f.Transfers()}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the body
}

func (p *plane) ask(method, path string, body io.Reader, header ...string) answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Account", "acct_1")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b), err}
}

func (p *plane) want(status int, a answer) answer {
	p.t.Helper()
	if a.status != status || a.err != nil {
		p.t.Errorf("%d %.200q %v, want %d", a.status, a.body, a.err, status)
	}
	return a
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// TestEachProviderHasItsOwnFiles: workers of another one, whose folders are others, are not asked.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestEachProviderHasItsOwnFiles(t *testing.T) {
	t.Parallel()
	mine, others := t.TempDir(), t.TempDir()
	var servers []*worker.Server
	for range 3 {
		servers = append(servers,
			&worker.Server{Place: streams.FilesInFolders("local"), Open: worker.InFolders(folders{dir: mine})},
			&worker.Server{Place: streams.FilesInFolders("docker"), Open: worker.InFolders(folders{dir: others})})
	}
	p := startWith(t, schemas.Workspace{}, servers...)
	large := random(3*schemas.MaxFileChunk + 7)
	p.want(http.StatusCreated, p.ask("PUT", workspace+"/files/large", bytes.NewReader(large)))
	if a := p.want(http.StatusOK, p.ask("GET", workspace+"/files/large", nil)); a.body != string(large) {
		t.Error("another file came back")
	}
	if left, err := os.ReadDir(others); err != nil || len(left) != 0 {
		t.Errorf("workers of another provider have %v, %v", left, err)
	}
}

// TestASuspendedWorkerChangesNothing: its caller has timed out meanwhile.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestASuspendedWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	dir, bus := t.TempDir(), natstest.Start(t).Bus
	opened, goOn := make(chan struct{}, 10), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	s := &worker.Server{
		Bus: bus, Log: slog.New(slog.DiscardHandler), Place: streams.FilesInFolders("local"),
		Open: worker.InFolders(folders{dir: dir, open: func() { opened <- struct{}{}; <-goOn }}),
	}
	running.Go(func() { s.Run(ctx) })
	of := &filesclient.Workspace{
		Bus: bus, Account: "acct_1", Files: schemas.WorkspaceFiles{Workspace: schemas.Workspace{ID: workspace}, Provider: "local"},
	}
	asked, giveUp := context.WithCancel(ctx)
	running.Go(func() {
		<-opened
		time.Sleep(300 * time.Millisecond) // the process is suspended
		close(goOn)
	})
	within, done := context.WithTimeout(asked, 200*time.Millisecond)
	defer done()
	for {
		_, _, err := of.Do(within, schemas.FileRequest{Op: schemas.FileMkdir, Path: "late"}, nil)
		if len(opened) > 0 || within.Err() != nil {
			if err == nil {
				t.Error("it was answered in time")
			}
			break
		}
	}
	giveUp()
	<-goOn
	if _, _, err := of.Do(ctx, schemas.FileRequest{Op: schemas.FileMkdir, Path: "d"}, nil); err != nil {
		t.Error(err)
	}
	r, _, err := of.Do(ctx, schemas.FileRequest{Op: schemas.FileList, Path: ".", Limit: 10}, nil)
	if err != nil || len(r.Entries) != 1 || r.Entries[0].Path != "d" {
		t.Errorf("%+v, %v", r, err)
	}
	cancel()
	running.Wait()
}

// TestFilesComeAndGoAsTheyAre: of all sizes around a piece, whole and in ranges, beside workers that die after each third thing they do.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesComeAndGoAsTheyAre(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	p := start(t, 2, func() bool { return n.Add(1)%3 == 0 })
	for _, size := range []int{0, 1, schemas.MaxFileChunk - 1, schemas.MaxFileChunk, schemas.MaxFileChunk + 1, 3*schemas.MaxFileChunk + 17} {
		content := random(size)
		sum := sha256.Sum256(content)
		digest := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
		name := fmt.Sprintf("ws_1/files/a%%20b/%d.bin", size)
		a := p.ask("PUT", name, bytes.NewReader(content), "Content-Digest", digest)
		if a.status != http.StatusCreated { // that it is new may have been in an answer that was lost
			p.want(http.StatusOK, a)
		}
		if got := a.header.Get("Repr-Digest"); got != digest {
			t.Errorf("%d bytes: digest %s, want %s", size, got, digest)
		}
		got := p.want(http.StatusOK, p.ask("GET", name, nil))
		if got.body != string(content) || got.header.Get("ETag") != a.header.Get("ETag") {
			t.Errorf("%d bytes: %d came back, %s and %s", size, len(got.body), got.header.Get("ETag"), a.header.Get("ETag"))
		}
		p.want(http.StatusOK, p.ask("PUT", name, bytes.NewReader(content), "If-Match", got.header.Get("ETag")))
		if size > schemas.MaxFileChunk {
			from, to := schemas.MaxFileChunk-5, schemas.MaxFileChunk
			part := p.want(http.StatusPartialContent, p.ask("GET", name, nil, "Range", fmt.Sprintf("bytes=%d-%d", from, to)))
			if part.body != string(content[from:to+1]) {
				t.Errorf("%d bytes: the range has %d", size, len(part.body))
			}
		}
		if on, err := os.ReadFile(filepath.Join(p.dir, "a b", fmt.Sprintf("%d.bin", size))); err != nil || !bytes.Equal(on, content) {
			t.Errorf("%d bytes: %d are in the workspace, %v", size, len(on), err)
		}
	}
	p.want(http.StatusNoContent, p.ask("DELETE", "ws_1/files/a%20b?recursive=true", nil))
	if left, _ := os.ReadDir(filepath.Join(p.dir, schemas.UploadsFolder)); len(left) > 0 {
		t.Errorf("%d uploads are left", len(left))
	}
}

// TestAnUploadThatBrokeOffContinues where it had come to, and is not there before it is whole.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestAnUploadThatBrokeOffContinues(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	content := random(2*schemas.MaxFileChunk + 100)
	cut := schemas.MaxFileChunk + 50
	broken := io.MultiReader(bytes.NewReader(content[:cut]), failing{})
	if a := p.ask("PUT", "ws_1/files/big?upload=mine", broken); a.err == nil && a.status < 400 {
		t.Errorf("the broken request: %d %s", a.status, a.body)
	}
	var u files.Upload
	testwait.Eventually(t, "all that arrived", func() bool { // the gateway notices by and by
		a := p.ask("GET", "ws_1/uploads/mine", nil)
		return a.status == http.StatusOK && json.Unmarshal([]byte(a.body), &u) == nil && u.Offset == int64(cut)
	})
	p.want(http.StatusNotFound, p.ask("GET", "ws_1/files/big", nil))
	p.want(http.StatusConflict, p.ask("PUT", fmt.Sprintf("ws_1/files/big?upload=mine&offset=%d", cut+1000), strings.NewReader("x")))
	rest := bytes.NewReader(content[schemas.MaxFileChunk:]) // from before where it is: what is there is not added again
	p.want(http.StatusCreated, p.ask("PUT", fmt.Sprintf("ws_1/files/big?upload=mine&offset=%d", schemas.MaxFileChunk), rest))
	if a := p.want(http.StatusOK, p.ask("GET", "ws_1/files/big", nil)); a.body != string(content) {
		t.Errorf("%d bytes came back of %d", len(a.body), len(content))
	}
	p.want(http.StatusNotFound, p.ask("GET", "ws_1/uploads/mine", nil))
	again := bytes.NewReader(content[schemas.MaxFileChunk:]) // the answer was lost
	p.want(http.StatusOK, p.ask("PUT", fmt.Sprintf("ws_1/files/big?upload=mine&offset=%d", schemas.MaxFileChunk), again))
	p.want(http.StatusCreated, p.ask("PUT", "ws_1/files/next?upload=mine", strings.NewReader("another upload of that id")))
	if a := p.want(http.StatusOK, p.ask("GET", "ws_1/files/next", nil)); a.body != "another upload of that id" {
		t.Errorf("%q", a.body)
	}
	p.want(http.StatusAccepted, p.ask("PUT", "ws_1/files/big?upload=other&complete=false", strings.NewReader("x")))
	p.want(http.StatusNoContent, p.ask("DELETE", "ws_1/uploads/other", nil))
	p.want(http.StatusNotFound, p.ask("GET", "ws_1/uploads/other", nil))
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }

// TestAFileThatChangesIsNotMixed: who reads it gets an error, never one half of each.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestAFileThatChangesIsNotMixed(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	first := bytes.Repeat([]byte("a"), 40*schemas.MaxFileChunk)
	p.want(http.StatusCreated, p.ask("PUT", "ws_1/files/f", bytes.NewReader(first)))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"ws_1/files/f", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Account", "acct_1")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.CopyN(io.Discard, res.Body, 10); err != nil {
		t.Fatal(err)
	}
	p.want(http.StatusOK, p.ask("PUT", "ws_1/files/f", bytes.NewReader(bytes.Repeat([]byte("b"), len(first)))))
	rest, err := io.ReadAll(res.Body)
	if err == nil || bytes.ContainsRune(rest, 'b') {
		t.Errorf("%d bytes more and %v", len(rest), err)
	}
}

// TestATransferEndsWithItsKey: nothing of the file is there, and no more of it is sent.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestATransferEndsWithItsKey(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	body, feed := io.Pipe()
	go func() {
		piece := make([]byte, schemas.MaxFileChunk)
		for { // until the gateway takes no more
			if _, err := feed.Write(piece); err != nil {
				return
			}
		}
	}()
	if a := p.ask("PUT", "ws_1/files/f", body, "Key-Ends", "50ms"); a.err == nil && a.status != http.StatusForbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
	_ = body.Close()
	p.want(http.StatusNotFound, p.ask("GET", "ws_1/files/f", nil))
	p.want(http.StatusCreated, p.ask("PUT", "ws_1/files/f", bytes.NewReader(make([]byte, 200*schemas.MaxFileChunk))))
	if a := p.ask("GET", "ws_1/files/f", nil, "Key-Ends", "5ms"); a.err == nil {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
}

// TestTransfersHaveABound: uploads and archives that are slow take what one account may, and what is more is refused until some have ended.
//
//guarantee:bounds
func TestTransfersHaveABound(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	var open []*io.PipeWriter
	var all sync.WaitGroup
	begin := func(path string) {
		out, in := io.Pipe()
		open = append(open, in)
		all.Go(func() {
			p.ask(http.MethodPut, path, out)
		})
		if _, err := in.Write([]byte("a")); err != nil {
			t.Error(err)
		}
	}
	const each = 2 * schemas.MaxFileChunk
	for i := range files.TransferBytesOfAccount / each {
		if i%2 == 0 {
			begin(workspace + "/archive")
		} else {
			begin(workspace + fmt.Sprintf("/files/%d", i))
		}
	}
	testwait.Eventually(t, "all of an account's bytes are held", func() bool { return p.transfers.Total() >= files.TransferBytesOfAccount })
	for _, path := range []string{workspace + "/files/more", workspace + "/archive"} {
		if a := p.want(http.StatusTooManyRequests, p.ask(http.MethodPut, path, strings.NewReader("x"))); a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	for _, in := range open {
		if err := in.CloseWithError(errors.New("the client is gone")); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	testwait.Eventually(t, "the bytes are given back", func() bool { return p.transfers.Total() == 0 })
	p.want(http.StatusCreated, p.ask(http.MethodPut, workspace+"/files/more", strings.NewReader("x")))
	if n := p.transfers.Total(); n != 0 {
		t.Errorf("%d bytes are still held", n)
	}
}

// TestBadRequestsForFiles are refused with what to do.
func TestBadRequestsForFiles(t *testing.T) {
	t.Parallel()
	p := start(t, 1, nil)
	p.want(http.StatusCreated, p.ask("PUT", "ws_1/files/f", strings.NewReader("x")))
	another := "sha-256=:" + base64.StdEncoding.EncodeToString(make([]byte, sha256.Size)) + ":"
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		says               string
	}{
		{"GET", "ws_1/files/none", "", nil, 404, "does not exist"},
		{"GET", "ws_2/files/f", "", nil, 404, "no such workspace"},
		{"GET", "ws_1/files/f", "", []string{"Account", "acct_2"}, 404, "no such workspace"},
		{"GET", "ws_1/files/", "", nil, 400, "name a file"},
		{"GET", "ws_1/files/..%2f..%2fetc%2fpasswd", "", nil, 400, "below the root"},
		{"GET", "ws_1/files/a%00b", "", nil, 400, "below the root"},
		{"GET", "ws_1/files/%ff", "", nil, 400, "UTF-8"},
		{"GET", "ws_1/files/f?x=1", "", nil, 400, "x"},
		{"PUT", "ws_1/files/dir/", "x", nil, 400, "mkdir"},
		{"PUT", "ws_1/files/f/g", "x", nil, 400, "not a directory"},
		{"PUT", "ws_1/files/f", "x", []string{"If-None-Match", "*"}, 412, "exists"},
		{"PUT", "ws_1/files/f", "x", []string{"If-Match", `"0"`}, 412, "changed"},
		{"PUT", "ws_1/files/f", "x", []string{"If-Match", "0"}, 400, "in quotes"},
		{"PUT", "ws_1/files/f", "x", []string{"If-None-Match", `"0"`}, 400, "alone"},
		{"PUT", "ws_1/files/f", "x", []string{"Content-Digest", "sha-256=:AAAA:"}, 400, "not a SHA-256"},
		{"PUT", "ws_1/files/f", "x", []string{"Content-Digest", another}, 400, "changed on its way"},
		{"PUT", "ws_1/files/f?offset=3", "x", nil, 400, "must be given"},
		{"PUT", "ws_1/files/f?upload=a/b", "x", nil, 400, "not an id"},
		{"PUT", "ws_1/files/f?upload=a&offset=-1", "x", nil, 400, "offset"},
		{"GET", "ws_1/uploads/none", "", nil, 404, "no such upload"},
		{"DELETE", "ws_1/files/none", "", nil, 404, "does not exist"},
		{"GET", "ws_1/files?path=none", "", nil, 404, "does not exist"},
		{"GET", "ws_1/files?path=f", "", nil, 400, "not a directory"},
		{"GET", "ws_1/files?limit=0", "", nil, 400, "limit"},
		{"POST", "ws_1/move", `{"from":"f","to":""}`, nil, 400, "to"},
		{"POST", "ws_1/move", `{"from":"none","to":"x"}`, nil, 404, "does not exist"},
		{"POST", "ws_1/mkdir", `{"path":"../x"}`, nil, 400, "below the root"},
		{"POST", "ws_1/mkdir", `{"paths":"x"}`, nil, 400, "paths"},
	} {
		a := p.ask(c.method, c.path, strings.NewReader(c.body), c.header...)
		if a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s %s %v: %d %s, want %d and %q", c.method, c.path, c.header, a.status, a.body, c.status, c.says)
		}
	}
}
