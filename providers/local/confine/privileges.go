//go:build linux

package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropCapabilities empties the bounding, ambient, effective, permitted and inheritable sets of every thread. A process without CAP_SETPCAP
// cannot empty the bounding set. That set only limits the rights that an exec may give, so call [NoNewPrivs] too, under which an exec
// gives none.
//
// The bounding set is emptied one capability at a time, and each step stops every thread: about 2 ms in all. To avoid that, fork from one
// locked thread only, and call [DropCapabilitiesThread] on it before DropCapabilities, which then leaves the other threads' bounding sets
// (they are unusable) and empties their other sets.
func DropCapabilities() error { return dropCapabilities(everyThread) }

// DropCapabilitiesThread is [DropCapabilities] for the calling thread, which must be locked to its
// goroutine.
func DropCapabilitiesThread() error { return dropCapabilities(thisThread) }

func dropCapabilities(call caller) error {
	held, err := capabilities()
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if held[0].Effective&(1<<unix.CAP_SETPCAP) != 0 {
		if err := emptyBoundingSet(call); err != nil {
			return err
		}
	}
	if err := call(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	// On the heap: the addresses are handed to a function as numbers.
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	none := &[2]unix.CapUserData{}
	err = call(unix.SYS_CAPSET, uintptr(unsafe.Pointer(hdr)), uintptr(unsafe.Pointer(none)), 0) // a system call takes addresses
	runtime.KeepAlive(hdr)
	runtime.KeepAlive(none)
	if err != nil {
		return fmt.Errorf("clear capabilities: %w", err)
	}
	return nil
}

// emptyBoundingSet drops one capability after another until the kernel refuses, which is beyond the highest that it knows. It does not
// read that number from /proc, which may not be mounted.
func emptyBoundingSet(call caller) error {
	for c := range uintptr(64) {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			return nil //nolint:nilerr // EINVAL: the one before was the last
		}
		if has == 0 {
			continue
		}
		if err := call(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

// capabilities returns the capability sets of the calling thread.
func capabilities() ([2]unix.CapUserData, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&hdr, &data[0])
	return data, err
}

// NoNewPrivs keeps every exec, from any thread, from adding rights: set-user-id bits and file capabilities have no effect. [Seccomp] and
// [Landlock] need it.
func NoNewPrivs() error { return noNewPrivs(everyThread) }

// NoNewPrivsThread is [NoNewPrivs] for the calling thread, which must be locked to its goroutine.
func NoNewPrivsThread() error { return noNewPrivs(thisThread) }

func noNewPrivs(call caller) error {
	if err := call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Dumpable sets whether other processes of the same user may inspect this one: its memory, environment and open files. It applies to the
// whole process, and an exec resets it.
func Dumpable(on bool) error {
	var v uintptr
	if on {
		v = 1
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, v, 0, 0, 0); err != nil {
		return fmt.Errorf("set dumpable: %w", err)
	}
	return nil
}
