//go:build linux

package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DropCapabilities empties the bounding, ambient, effective, permitted and inheritable sets of
// every thread. A process without CAP_SETPCAP cannot empty the bounding set; that set only limits
// what an exec may give, so call [NoNewPrivs] too, under which an exec gives nothing.
//
// The bounding set goes one capability at a time, and each time every thread has to stop: about 2
// ms in all. Where that counts, let one locked thread do all the forking, and there call
// [DropCapabilitiesThread] first and then this: it then leaves the other threads' bounding sets, which they
// cannot use, and takes everything else from them.
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

// emptyBoundingSet asks the kernel for the highest capability it knows by asking until it refuses: /proc, which has it too, need not be
// there.
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

// capabilities returns the sets of the calling thread.
func capabilities() ([2]unix.CapUserData, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&hdr, &data[0])
	return data, err
}

// NoNewPrivs makes every exec from any thread give no rights that the thread does not have: set-user-id
// bits and file capabilities are without effect. [Seccomp] and [Landlock] need it.
func NoNewPrivs() error { return noNewPrivs(everyThread) }

// NoNewPrivsThread is [NoNewPrivs] for the calling thread, which must be locked to its goroutine.
func NoNewPrivsThread() error { return noNewPrivs(thisThread) }

func noNewPrivs(call caller) error {
	if err := call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// Dumpable says whether other processes of the same user may look into this one: its memory, its environment, its open files. It belongs to
// the process, not to a thread, and an exec sets it again.
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
