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

// adopt makes this process the parent of all below it whose own parent has ended: what a command leaves behind stays known.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	return nil
}

// endAll kills all processes below this one and waits for them, but for the first, for which another goroutine waits. It reports whether
// none is left: then this process has no child, and since orphans become its children, nothing is below it.
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

// childless asks the kernel, without waiting for any process.
func childless() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
	}
}
