//go:build linux

package box

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reap waits for every child process of init, forever. No other goroutine calls wait.
func (i *server) reap() {
	seen := 0
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		i.mu.Lock()
		if errors.Is(err, unix.ECHILD) {
			for i.count == seen {
				i.woken.Wait()
			}
			seen = i.count
		}
		r := i.runs[pid]
		if err == nil && r != nil {
			delete(i.runs, pid)
		}
		i.mu.Unlock()
		if err == nil && r != nil {
			if r.file != "" {
				_ = os.Remove(r.file)
			}
			i.send(kindExit, Exit{ID: r.id, Status: exitStatus(status), Left: i.left(), OOM: r.oom})
		}
	}
}

func exitStatus(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// left reports whether there may be other processes in the box.
func (i *server) left() bool {
	if i.state.setup.Mode != Isolated {
		return true
	}
	return unix.Kill(-1, 0) == nil
}
