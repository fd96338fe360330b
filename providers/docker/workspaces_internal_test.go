//go:build linux

package docker

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// TestFilesOfARemovedAccountStayInContainers: no folder is removed that a container on the engine has, or while the engine does not say;
// that of an account that exists stays in any case, and the others go after a week.
//
//guarantee:bounds
func TestFilesOfARemovedAccountStayInContainers(t *testing.T) {
	t.Parallel()
	const account = schemas.AccountID("acct_docker")
	var containers atomic.Value // of all on the engine, as JSON; empty: it fails
	containers.Store("")
	var late atomic.Bool // a container appears between the first list of a sweep and the next
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text, _ := containers.Load().(string)
		switch {
		case !strings.HasSuffix(r.URL.Path, "/containers/json") || text == "":
			w.WriteHeader(http.StatusInternalServerError)
		case late.CompareAndSwap(true, false):
			fmt.Fprint(w, "[]")
		default:
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(s.Close)
	engine, err := client.New(client.WithHost("tcp://"+s.Listener.Addr().String()), client.WithAPIVersion("1.44"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := Options{Workspaces: dir, UID: os.Geteuid(), GID: os.Getegid(), Log: slog.New(slog.DiscardHandler)}
	p := &FolderProvider{Provider: assemble(o, engine, facts{}, &image{})}
	held := providers.Mount{Namespace: schemas.Namespace(account, "ws_1")}
	free := providers.Mount{Namespace: schemas.Namespace(account, "ws_2")}
	for _, m := range []providers.Mount{held, free} {
		fs, err := p.OpenWorkspace(t.Context(), account, m)
		if err != nil {
			t.Fatal(err)
		}
		if err := fs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	there := func(m providers.Mount) bool {
		_, err := os.Lstat(filepath.Join(dir, m.Namespace))
		return err == nil
	}
	look := func(removed bool, passed time.Duration) (int, error) {
		return p.SweepWorkspaces(t.Context(), providers.WorkspaceSweep{
			Passed: passed, Held: func() error { return nil }, Removed: func(context.Context, schemas.AccountID) (bool, error) { return removed, nil },
		})
	}
	week := providers.WorkspacesKept + time.Hour
	if n, err := look(true, week); schemas.CodeOf(err) != schemas.Unavailable || n != 0 || !there(held) || !there(free) {
		t.Errorf("without an engine: %d, %v", n, err)
	}
	containers.Store(fmt.Sprintf(`[{"Id":"box","State":"exited","Mounts":[{"Type":"bind","Source":"/elsewhere","Destination":%q}]}]`, held.Path()))
	if n, err := look(false, week); err != nil || n != 0 || !there(held) || !there(free) {
		t.Errorf("of an account that exists: %d, %v", n, err)
	}
	if n, err := look(true, time.Hour); err != nil || n != 0 || !there(free) {
		t.Errorf("after an hour: %d, %v", n, err)
	}
	late.Store(true)
	if n, err := look(true, week); err != nil || n != 1 || !there(held) || there(free) {
		t.Errorf("after a week: %d, %v", n, err)
	}
	containers.Store("[]")
	if n, err := look(true, week); err != nil || n != 1 || there(held) {
		t.Errorf("without the container: %d, %v", n, err)
	}
}

// TestAWorkspaceThatIsOpenedIsNotRemoved: from the folder on until the engine knows the container, a sweep leaves the folder alone.
//
//guarantee:bounds
func TestAWorkspaceThatIsOpenedIsNotRemoved(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") }))
	t.Cleanup(s.Close)
	engine, err := client.New(client.WithHost("tcp://"+s.Listener.Addr().String()), client.WithAPIVersion("1.44"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	provider := func() *FolderProvider { // of a worker
		o := Options{Workspaces: dir, UID: os.Geteuid(), GID: os.Getegid(), Log: slog.New(slog.DiscardHandler)}
		return &FolderProvider{Provider: assemble(o, engine, facts{}, &image{})}
	}
	m := providers.Mount{Namespace: schemas.Namespace("acct_docker", "ws_1")}
	p := provider()
	done, err := p.workspaces.open(t.Context(), "acct_docker", []providers.Mount{m})
	if err != nil {
		t.Fatal(err)
	}
	look := func() int {
		n, err := provider().SweepWorkspaces(t.Context(), providers.WorkspaceSweep{
			Passed: providers.WorkspacesKept, Held: func() error { return nil },
			Removed: func(context.Context, schemas.AccountID) (bool, error) { return true, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := look(); n != 0 {
		t.Error("it was removed under a container that is being made")
	}
	done()
	if n := look(); n != 1 {
		t.Errorf("%d were removed", n)
	}
	if _, other := providers.As[providers.WorkspaceRemover](p.Provider); other {
		t.Error("volumes of an engine are not looked after")
	}
}
