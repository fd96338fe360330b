//go:build linux

package streams_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/testwait"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// A log starts where one that runs would heal: else a full disk would be no fault until the next restart. With less it says how much is missing.
func TestALogStartsWithTheRoomInWhichItHeals(t *testing.T) {
	if os.Geteuid() != 0 {
		longtest.Missing(t, "only root mounts a small file system")
	}
	for size, starts := range map[string]bool{"size=24m": true, "size=12m": false} {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, size); err != nil {
			longtest.Missing(t, "a small file system cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		s, err := streams.StartServer(t.Context(), streams.ServerOptions{DataDir: dir})
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
