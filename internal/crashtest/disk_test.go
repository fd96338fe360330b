package crashtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// smallDisk has all roles keep their files on a disk of their own.
func smallDisk(t *testing.T, size string) option {
	t.Helper()
	dir, err := os.MkdirTemp("", "disk") // short: the path of a socket is below it
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		_ = os.Remove(dir)
		longtest.Missing(t, "missing: the right to mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return func(c *cluster, worker []string) []string {
		former := c.data
		c.data = filepath.Join(dir, "d")
		for _, p := range c.roles { // that of the log is there already
			p.args[slices.Index(p.args, former)] = c.data
		}
		return worker
	}
}

// fill takes all the room of a disk, and gives it back when free is called.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // there is no room for anything
	for _, piece := range []int{1 << 20, 4 << 10, 1} {
		for {
			if _, err := f.Write(make([]byte, piece)); err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				break
			}
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// TestEveryAcceptedCallEndsAfterADiskWasFull: the disk of the log is filled while calls run and more come, and freed after a while.
// Health reports the true state meanwhile. Afterwards, without a restart of any process, every call that was accepted has its result.
//
//guarantee:a-log-that-could-not-write-continues-when-it-can
//guarantee:pauses-cuts-and-full-disks
func TestEveryAcceptedCallEndsAfterADiskWasFull(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "a whole installation on a disk that is filled; what the log does then is in streams")
	if os.Getuid() != 0 {
		longtest.Missing(t, "only root may mount the small disk")
	}
	s := sizeOf()
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	disk := smallDisk(t, "112m")
	c := startCluster(ctx, t, disk)
	var (
		mu       sync.Mutex
		accepted []wanted
		n        int
	)
	send := func(until func() bool) { // like clients that stop trying
		var all sync.WaitGroup
		for range submitters {
			all.Go(func() {
				for !until() && ctx.Err() == nil {
					mu.Lock()
					w := wanted{id: fmt.Sprintf("disk-%04d", n), conversation: fmt.Sprintf("disk-%d", n%10)}
					n++
					mu.Unlock()
					input, err := json.Marshal(schemas.BashInput{Command: "echo done"})
					if err != nil {
						t.Error(err)
						return
					}
					body, err := json.Marshal(schemas.Request{
						ID: schemas.CallID(w.id), Conversation: schemas.ConversationID(w.conversation), Tool: schemas.ToolBash, Input: input,
					})
					if err != nil {
						t.Error(err)
						return
					}
					status, _, err := c.askOnce(ctx, http.MethodPost, "/v1/calls", body)
					if err == nil && (status == http.StatusAccepted || status == http.StatusOK) {
						mu.Lock()
						accepted = append(accepted, w)
						mu.Unlock()
					} else {
						pause(ctx, 100*time.Millisecond)
					}
				}
			})
		}
		all.Wait()
	}
	health := func(path string) int {
		status, _, err := c.askOnce(ctx, http.MethodGet, path, nil)
		if err != nil {
			return 0
		}
		return status
	}
	enough := func(more int) func() bool {
		mu.Lock()
		defer mu.Unlock()
		most := len(accepted) + more
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(accepted) >= most }
	}

	send(enough(s.calls / 2))
	free := fill(t, filepath.Dir(c.data))
	// With no room at all nothing that is being written can stay unnoticed for long.
	ready := func() bool { return health("/readyz") == http.StatusOK }
	send(func() bool { return !ready() })
	if ctx.Err() != nil {
		t.Fatalf("the log cannot write, and /readyz says 200\n%s", c.log)
	}
	full := time.Now()
	send(func() bool { return time.Since(full) > 3*time.Second })
	free()
	for !ready() {
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("there is room, and /readyz does not say 200 again\n%s", c.log)
		}
	}
	send(enough(s.calls / 2))
	t.Logf("%d of %d calls were accepted", len(accepted), n)
	results := c.results(ctx, t, accepted)
	unknown := 0
	for _, w := range accepted {
		if results[w.id].Status == schemas.StatusFailed {
			unknown++
		}
	}
	t.Logf("%d have a result, %d of them failed", len(results), unknown)
	for _, p := range c.roles {
		if !p.alive() {
			t.Errorf("%s has ended", p.name)
		}
	}
}
