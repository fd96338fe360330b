//go:build linux

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// within fails the test when work is not done in time.
func within(t *testing.T, what string, work func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s waits for the disk of another", what)
	}
}

// A disk that stalls while the files of an earlier job are read holds up only the start of that job.
func TestStalledReadOfAJobStopsNoOtherCall(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", nil)
	cmd, other := kept(t, p, "stalled", nil), kept(t, p, "other", nil)
	id := schemas.NewJobID()
	dir := p.JobDir(schemas.JobRef{Sandbox: cmd.Sandbox, ID: id})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "start")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Script = "true"
	started := make(chan error, 1)
	go func() {
		_, err := p.StartJob(t.Context(), id, cmd, providers.JobOptions{})
		started <- err
	}()
	var fd int
	until(t, "the read of the job's files", func() (ok bool) {
		var err error
		fd, err = unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		return err == nil // the provider has it open to read
	})
	release := sync.OnceFunc(func() {
		_, _ = unix.Write(fd, []byte("no start\n"))
		_ = unix.Close(fd)
	})
	defer release()
	other.Script = "true"
	within(t, "a call in another sandbox", func() error {
		_, err := p.Run(t.Context(), other)
		return err
	})
	within(t, "a new sandbox", func() error {
		_, err := p.Reserve(t.Context(), "third", other.Spec)
		return err
	})
	within(t, "another job", func() error {
		_, err := p.StartJob(t.Context(), schemas.NewJobID(), other, providers.JobOptions{})
		return err
	})
	release()
	if err := <-started; schemas.CodeOf(err) != schemas.Unavailable {
		t.Errorf("the job whose files cannot be read: %v", err)
	}
}

// A disk that stalls while the directory of a workspace is made holds up only the calls of that workspace.
func TestStalledWorkspaceStopsNoOtherCall(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", nil)
	const account = schemas.AccountID("acct_local")
	release := sync.OnceFunc(p.StallMaking(account, "ws_stalled"))
	defer release()
	opened := make(chan error, 1)
	go func() {
		_, err := p.OpenWorkspace(t.Context(), account, providers.Mount{Namespace: schemas.Namespace(account, "ws_stalled")})
		opened <- err
	}()
	within(t, "a call in another workspace", func() error {
		_, err := p.Run(t.Context(), command("true"))
		return err
	})
	select {
	case err := <-opened:
		t.Fatalf("the workspace was opened while its directory is being made: %v", err)
	default:
	}
	release()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// However many start one id at the same time, and however soon its job ends, it runs once.
func TestStartsOfOneIDRunOnce(t *testing.T) {
	t.Parallel()
	p := open(t, "L3", nil)
	cmd := kept(t, p, "one", nil)
	for round := range 20 {
		id := schemas.NewJobID()
		cmd.Script = fmt.Sprintf("echo x >> /workspace/round-%d", round)
		var starts sync.WaitGroup
		refs := make(chan schemas.JobRef, 16)
		for range cap(refs) {
			starts.Go(func() {
				ref, err := p.StartJob(t.Context(), id, cmd, providers.JobOptions{})
				if err != nil {
					t.Error(err)
				}
				refs <- ref
			})
		}
		starts.Wait()
		first := <-refs
		for range cap(refs) - 1 {
			if ref := <-refs; ref != first {
				t.Fatalf("two starts of one id are jobs %s and %s", first.Instance, ref.Instance)
			}
		}
		until(t, "the end of the job", func() bool {
			st, err := p.JobStatus(t.Context(), first)
			return err == nil && !st.Running
		})
		check := command(fmt.Sprintf("wc -l < /workspace/round-%d", round))
		if res, err := p.Run(t.Context(), check); err != nil || string(res.Stdout) != "1\n" {
			t.Fatalf("the job ran %q times: %v", res.Stdout, err)
		}
	}
}
