//go:build linux

package box

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// denyWrites forbids a run and all its descendants to write to files, by a file size limit of 0 that they cannot raise. The limit is set a
// moment after the shell was executed: a run that is scheduled before init continues may have written by then. Such writes are counted,
// and a run that exceeds the limit of a full workspace is ended.
func denyWrites(pid int) error {
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	_ = unix.Kill(pid, unix.SIGKILL) // it is reaped with the others
	return err
}

// lowerProcesses lowers init's soft limit on processes, which the next child inherits, and returns a function that restores it.
func (i *server) lowerProcesses() (raise func()) {
	var own unix.Rlimit
	most := uint64(i.state.setup.Pids) + usedThreads
	if i.state.setup.Pids <= 0 || i.state.setup.Mode != Isolated || unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &own) != nil || own.Cur <= most {
		return func() {}
	}
	if unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: own.Max}, nil) != nil {
		return func() {}
	}
	return func() { _ = unix.Prlimit(0, unix.RLIMIT_NPROC, &own, nil) } // to what it was: that is never refused
}

// limitProcesses gives a run a lower limit on processes and threads than init has: init's Go runtime aborts when it cannot create a
// thread.
//
// The run inherits the soft limit; its hard limit is set a moment after its shell was executed, because limits belong to a process and
// before the fork there is none but init. A run that is scheduled before init continues may raise its soft limit to init's, and its
// children of that time keep it: they get [OwnThreads] instead of usedThreads above the limit, which is 48 processes more. If they use
// them all, init may fail to create a thread and end with its box. A limit by a cgroup holds from the beginning.
func (i *server) limitProcesses(pid int) error {
	if i.state.setup.Pids <= 0 || i.state.setup.Mode != Isolated {
		return nil
	}
	most := uint64(i.state.setup.Pids) + usedThreads
	err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended already
	}
	return err
}

// watch runs the memory watchdog, which limits memory where no cgroup does. It pauses while nothing runs.
func (i *server) watch() {
	w := confine.Watchdog{Limit: i.state.setup.Memory}
	if i.state.setup.Mode != Isolated {
		w.Root = os.Getpid()
	} else {
		w.Mounts = []string{"/tmp", "/home", "/dev/shm"}
	}
	seen := 0
	for {
		i.mu.Lock()
		for i.count == seen && len(i.runs) == 0 && !i.left() {
			i.woken.Wait()
		}
		seen = i.count
		i.mu.Unlock()
		if w.Used() > w.Limit {
			i.mu.Lock()
			for _, r := range i.runs {
				r.oom = true
			}
			i.mu.Unlock()
			i.killThose(func(uint64) bool { return true })
		}
		time.Sleep(100 * time.Millisecond)
	}
}
