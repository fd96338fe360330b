//go:build linux

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/embedded"
	"github.com/sandjet/sandjet/streams/fair"
)

// small is an empty file system of a size.
func small(t *testing.T, size string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		longtest.Missing(t, "only root mounts a small file system")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
		longtest.Missing(t, "a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestAFullDiskLeavesTheLogItsReserve: the disk of the log is filled to its last byte, faster than anything looks. The log works with what it had
// set aside, also when its process is started again, and sets it aside again when there is room.
//
//guarantee:pauses-cuts-and-full-disks
func TestAFullDiskLeavesTheLogItsReserve(t *testing.T) {
	dir := small(t, "size=160m")
	start := func() (b *streams.Bus, stop func()) {
		t.Helper()
		s := testwait.Must(streams.StartServer(t.Context(), embedded.Options{DataDir: filepath.Join(dir, "log")}, fair.Shares{}))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var runs sync.WaitGroup
		runs.Go(func() { testwait.OK(t, s.Run(ctx)) })
		b = testwait.Must(streams.Open(t.Context(), streams.Options{Server: s, Shards: 1}))(t)
		return b, func() {
			testwait.OK(t, b.Close(context.WithoutCancel(t.Context())))
			cancel()
			runs.Wait()
			s.Shutdown()
		}
	}
	reserve, filler := filepath.Join(dir, "log", "reserve"), filepath.Join(dir, "filler")
	held := func() bool { _, err := os.Lstat(reserve); return err == nil }
	fill := func() {
		t.Helper()
		f := testwait.Must(os.Create(filler))(t)
		_, err := io.Copy(f, zeros{})
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		testwait.OK(t, f.Close())
	}
	n := 0
	works := func(b *streams.Bus) {
		t.Helper()
		testwait.Eventually(t, "the log takes a call", func() bool {
			n++
			return streams.Calls.Publish(t.Context(), b, callOf(fmt.Sprint("c", n))) == nil
		})
	}

	b, stop := start()
	testwait.Eventually(t, "there is a reserve", held)
	fill()
	works(b)
	if held() {
		t.Error("the reserve is still there")
	}
	testwait.OK(t, os.Remove(filler))
	testwait.Eventually(t, "there is a reserve again", held)
	works(b)
	stop()

	fill()
	b, stop = start()
	works(b)
	if held() {
		t.Error("the reserve is still there after a start")
	}
	stop()
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// A log starts where one that runs would heal: else a full disk would be no fault until the next restart. With less it says how much is missing.
//
//guarantee:pauses-cuts-and-full-disks
func TestALogStartsWithTheRoomInWhichItHeals(t *testing.T) {
	for size, starts := range map[string]bool{"size=24m": true, "size=12m": false} {
		dir := small(t, size)
		s, err := streams.StartServer(t.Context(), embedded.Options{DataDir: dir}, fair.Shares{})
		if !starts {
			if !errors.Is(err, schemas.ErrExhausted) {
				t.Errorf("%s: %v", size, err)
			}
			continue
		}
		testwait.OK(t, err)
		b := testwait.Must(streams.Open(t.Context(), streams.Options{Server: s, Shards: 1}))(t)
		c := callOf("c1")
		testwait.OK(t, streams.Calls.Publish(t.Context(), b, c))
		testwait.OK(t, b.Close(t.Context()))
		s.Shutdown()
	}
}
