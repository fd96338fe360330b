//go:build linux

package box

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// denyWrites keeps a run and all that it starts from making any file longer or writing to one. The run can neither raise nor replace it,
// but it comes a moment after the shell was executed: a run that is given a processor before init continues may have written until then.
// What it writes counts, and a run that writes beyond the bound of a full workspace is ended.
func denyWrites(pid int) error {
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	_ = unix.Kill(pid, unix.SIGKILL) // it is reaped with the others
	return err
}

// lowerProcesses lowers the soft limit that a child inherits, and returns what raises init's again.
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

// limitProcesses gives a run a lower limit on processes and threads than init has, whose runtime ends
// the process when it cannot make a thread.
//
// The run is born under the soft limit; the hard one comes a moment after its shell was executed, for limits are a process's and not a
// thread's: init has no child to set them in before. A run that is given a processor before init continues may raise its soft limit to
// init's own, and what it has forked by then keeps that: [OwnThreads] above what it may have instead of usedThreads, so 48 processes more.
// If it uses them all init may fail to make a thread, and ends with its box. Where a cgroup counts the box's processes that holds from the
// beginning.
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

// watch is the limit on memory where no cgroup keeps it. It rests while nothing runs.
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
