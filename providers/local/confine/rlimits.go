//go:build linux

package confine

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// RlimitSpec are the resource limits of each process that is started from now on. For NProc, NoFile, FSize, CPU and Stack 0 leaves the
// limit unchanged; for MemLock and MsgQueue it forbids all use. Core dumps are always off: see [NoCore].
type RlimitSpec struct {
	NProc    uint64 // processes and threads of this user in this user namespace
	NoFile   uint64 // open files of a process
	FSize    uint64 // bytes of the largest file that can be written
	CPU      uint64 // seconds of processor time of a process
	Stack    uint64 // bytes of the main thread's stack
	MemLock  uint64 // bytes of memory that cannot be swapped out
	MsgQueue uint64 // bytes of POSIX message queues of this user
}

// NoCore is the limit on core dumps under which nothing is dumped and no program is started for it. A limit of 0
// would still have the host's own handler run, as its root, where core_pattern names one.
const NoCore = 1

// RaiseCore raises this process's hard limit on core dumps, so that [Rlimits] can lower it to [NoCore]. Without the right to raise it the
// limit stays.
func RaiseCore() {
	var now syscall.Rlimit
	if syscall.Getrlimit(unix.RLIMIT_CORE, &now) == nil && now.Max < NoCore {
		_ = syscall.Setrlimit(unix.RLIMIT_CORE, &syscall.Rlimit{Cur: now.Cur, Max: NoCore})
	}
}

// Rlimits sets the soft and hard limits of the whole process, which its children inherit. A hard limit that is lower already stays: limits
// are never raised.
func Rlimits(s RlimitSpec) error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
		always   bool
	}{
		{"processes", unix.RLIMIT_NPROC, s.NProc, false},
		{"open files", unix.RLIMIT_NOFILE, s.NoFile, false},
		{"file size", unix.RLIMIT_FSIZE, s.FSize, false},
		{"processor time", unix.RLIMIT_CPU, s.CPU, false},
		{"stack", unix.RLIMIT_STACK, s.Stack, false},
		{"core dump", unix.RLIMIT_CORE, NoCore, true},
		{"locked memory", unix.RLIMIT_MEMLOCK, s.MemLock, true},
		{"message queues", unix.RLIMIT_MSGQUEUE, s.MsgQueue, true},
	} {
		if l.value == 0 && !l.always {
			continue
		}
		if err := lower(l.resource, l.value); err != nil {
			return fmt.Errorf("limit %s to %d: %w", l.name, l.value, err)
		}
	}
	return nil
}

// lower lowers one limit. It uses package syscall on purpose: the Go runtime raises the limit on open files at its start and restores it
// in children, unless it was set through package syscall.
func lower(resource int, value uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return syscall.Setrlimit(resource, &syscall.Rlimit{Cur: value, Max: value})
}
