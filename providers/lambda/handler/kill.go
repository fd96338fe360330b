//go:build linux

package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers/local/confine"
)

// endPatience is how long the kernel may take to end what was killed.
const endPatience = 5 * time.Second

// adopt makes this process the parent of all orphans among its descendants, so that processes which a command leaves behind can be found.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// endAll kills all descendants of this process and waits for them, except for first, for which another goroutine waits. It reports whether
// none is left, i.e. this process has no child: orphans become its children.
func endAll(first int) bool {
	again := wait.Backoff{First: time.Millisecond, Most: 50 * time.Millisecond}
	for began, n := time.Now(), 1; ; n++ {
		for _, pid := range confine.Below(os.Getpid()) {
			if pid == os.Getpid() {
				continue
			}
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			if pid != first {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it may be another's child yet
			}
		}
		if childless() {
			return true
		}
		if time.Since(began) > endPatience {
			return false
		}
		again.Sleep(context.Background(), n)
	}
}

// childless reports whether this process has no child, without waiting for one.
func childless() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
	}
}
