package files_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/runfs"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"

	worker "github.com/sandjet/sandjet/workers/files"
)

// startByRuns starts a gateway and two workers that reach files by runs of bash, which are in no sandbox here. Where dies says so, a worker
// dies after a run: what it was asked for is done, and its answer is lost.
func startByRuns(t *testing.T, dies func() bool) *plane {
	t.Helper()
	dir := t.TempDir()
	open := func(_ context.Context, a schemas.AccountID, w schemas.WorkspaceID) (workspacefs.FS, error) {
		root := filepath.Join(dir, schemas.Namespace(a, w))
		if err := os.MkdirAll(root, 0o755); err != nil {
			return nil, err
		}
		return runfs.New(runfs.Options{Run: func(ctx context.Context, c providers.Command) (r providers.Result, err error) {
			cmd := exec.CommandContext(ctx, "bash", "-c", c.Script)
			cmd.Dir, cmd.Stdin = root, bytes.NewReader(c.Stdin)
			r.Stdout, err = cmd.Output()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				r.ExitCode, r.Stderr, err = exit.ExitCode(), exit.Stderr, nil
			}
			if err == nil && dies() {
				return r, schemas.Errorf(schemas.Interrupted, "the worker died")
			}
			return r, err
		}}), nil
	}
	place := streams.FilesInFolders("local")
	p := startWith(t, schemas.Workspace{}, &worker.Server{Place: place, Open: open}, &worker.Server{Place: place, Open: open})
	p.dir = filepath.Join(dir, schemas.Namespace("acct_1", workspace))
	return p
}

// TestFilesByRunsComeAndGo over HTTP, beside workers that die after each seventh run.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesByRunsComeAndGo(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	p := startByRuns(t, func() bool { return n.Add(1)%7 == 0 })
	files := workspace + "/files/"
	content := random(3 << 20)
	a := p.ask("PUT", files+"a%20b/%C3%A9.bin", bytes.NewReader(content))
	if a.status != http.StatusCreated { // that it is new may have been in an answer that was lost
		p.want(http.StatusOK, a)
	}
	got := p.want(http.StatusOK, p.ask("GET", files+"a%20b/%C3%A9.bin", nil))
	if got.body != string(content) || got.header.Get("ETag") != a.header.Get("ETag") {
		t.Errorf("%d bytes came back, %s and %s", len(got.body), got.header.Get("ETag"), a.header.Get("ETag"))
	}
	part := p.want(http.StatusPartialContent, p.ask("GET", files+"a%20b/%C3%A9.bin", nil, "Range", "bytes=1000000-1000009"))
	if part.body != string(content[1000000:1000010]) {
		t.Errorf("the range is %q", part.body)
	}
	p.want(http.StatusPreconditionFailed, p.ask("PUT", files+"a%20b/%C3%A9.bin", strings.NewReader("x"), "If-Match", `"another"`))
	p.want(http.StatusPreconditionFailed, p.ask("PUT", files+"a%20b/%C3%A9.bin", bytes.NewReader(content), "If-None-Match", "*"))
	p.want(http.StatusOK, p.ask("PUT", files+"a%20b/%C3%A9.bin", strings.NewReader("x"), "If-Match", a.header.Get("ETag")))
	p.want(http.StatusNotFound, p.ask("GET", files+"a%20b/%C3%A9.bin", nil, "Account", "acct_2"))

	move := `{"from":"a b/é.bin","to":"new/name"}`
	p.want(http.StatusOK, p.ask("POST", workspace+"/move", strings.NewReader(move), "Content-Type", "application/json"))
	var list struct{ Entries []schemas.FileInfo }
	listed := p.want(http.StatusOK, p.ask("GET", workspace+"/files?recursive=true", nil))
	if err := json.Unmarshal([]byte(listed.body), &list); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range list.Entries {
		if !strings.HasPrefix(e.Path, ".sandjet") {
			paths = append(paths, e.Path)
		}
	}
	if strings.Join(paths, " ") != "a b new new/name" {
		t.Errorf("listed %q", paths)
	}
	p.want(http.StatusNoContent, p.ask("DELETE", files+"new?recursive=true", nil))
	p.want(http.StatusNotFound, p.ask("GET", files+"new/name", nil))
}

// TestFilesByRunsStayInside of their workspace, and what is no file is not opened.
//
//guarantee:an-uploaded-file-is-there-whole-or-not-at-all
func TestFilesByRunsStayInside(t *testing.T) {
	t.Parallel()
	p := startByRuns(t, func() bool { return false })
	outside := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600),
		os.MkdirAll(p.dir, 0o755),
		os.Symlink(outside, filepath.Join(p.dir, "out")),
		os.Symlink("../"+schemas.Namespace("acct_2", workspace), filepath.Join(p.dir, "beside")),
		syscall.Mkfifo(filepath.Join(p.dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"out/secret", "beside/x", "fifo"} {
		for method, body := range map[string]io.Reader{"GET": nil, "PUT": strings.NewReader("written")} {
			p.want(http.StatusBadRequest, p.ask(method, workspace+"/files/"+name, body))
		}
	}
	if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != "secret" {
		t.Errorf("%q %v", b, err)
	}
}
