//go:build linux

package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LandlockRules lists the files that may be used. All other files are inaccessible.
type LandlockRules struct {
	ReadOnly  []string // files and directories: list, read, execute
	ReadWrite []string // the same and write, make, remove, rename
	// FreeSignals leaves signals to processes outside alone. Without it (ABI 6 and later) no process here can signal one that is not under the
	// same rules: see [Landlock] on threads.
	FreeSignals bool
	// MaxABI is for tests: the rules are those of a kernel with this ABI, where it has a later one. 0: those of the kernel.
	MaxABI int
}

// LandlockTruncate is the first ABI whose rules keep files from being emptied and cut. With an earlier one [SeccompOptions.DenyTruncate]
// has to.
const LandlockTruncate = 3

const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	// landlockFile is what may be granted on something that is not a directory.
	landlockFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// Landlock restricts every thread, and all processes started from now on, to the rules. From ABI 6 on it also forbids abstract unix
// sockets of processes outside and, unless FreeSignals is set, signals to them. It returns the kernel's ABI; 0 without an error means that
// the kernel has no landlock and nothing was restricted. A missing path is an error. [NoNewPrivs] must have been called.
//
// Before ABI 8 the kernel restricts one thread at a time, so that each thread has a domain of its own with equal rules. A process that one
// thread has forked is then outside of the domains of all other threads, which can neither signal it nor read the protected parts of its
// /proc entry. A caller that needs that for its children sets FreeSignals and reads from the thread that forked, or uses [LandlockThread].
func Landlock(r LandlockRules) (abi int, err error) { return landlock(r, true) }

// LandlockThread is [Landlock] for the calling thread, which must be locked to its goroutine, and for its children.
func LandlockThread(r LandlockRules) (abi int, err error) { return landlock(r, false) }

// LandlockABI returns the version of landlock that the kernel offers, 0 for none.
func LandlockABI() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return int(v), nil
	case unix.ENOSYS, unix.EOPNOTSUPP: // not built in, or switched off at boot
		return 0, nil
	default:
		return 0, fmt.Errorf("ask for landlock: %w", errno)
	}
}

func landlock(r LandlockRules, every bool) (int, error) {
	abi, err := LandlockABI()
	if err != nil || abi == 0 {
		return 0, err
	}
	if r.MaxABI > 0 {
		abi = min(abi, r.MaxABI)
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockAccess(abi), Scoped: landlockScopes(abi, r.FreeSignals)}
	// A longer struct is fine for an older kernel as long as what it does not know is 0.
	// a system call takes an address
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return 0, fmt.Errorf("make landlock rules: %w", errno)
	}
	defer unix.Close(int(fd)) //nolint:errcheck // the rules are in force or not, whatever closing says
	for _, path := range r.ReadOnly {
		if err := landlockAllow(int(fd), path, landlockRead); err != nil {
			return 0, err
		}
	}
	for _, path := range r.ReadWrite {
		if err := landlockAllow(int(fd), path, attr.Handled_access_fs); err != nil {
			return 0, err
		}
	}
	call, flags := thisThread, uintptr(0)
	switch {
	case every && abi >= landlockTogether:
		flags = unix.LANDLOCK_RESTRICT_SELF_TSYNC
	case every:
		call = everyThread
	}
	if err := call(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, flags, 0); err != nil {
		return 0, fmt.Errorf("enforce landlock rules: %w", err)
	}
	return abi, nil
}

// landlockTogether is the first ABI that takes all threads at once.
const landlockTogether = 8

// landlockAccess returns the rights that a kernel of this ABI can control. Rights of ABIs that this package does not know stay
// uncontrolled.
func landlockAccess(abi int) uint64 {
	access := uint64(unix.LANDLOCK_ACCESS_FS_REFER - 1) // ABI 1: all bits below
	if abi >= 2 {
		access |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= LandlockTruncate {
		access |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		access |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 9 {
		access |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return access
}

func landlockScopes(abi int, freeSignals bool) uint64 {
	switch {
	case abi < 6:
		return 0
	case freeSignals:
		return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	default:
		return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
}

func landlockAllow(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("landlock rule for %s: %w", path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // opened for its name only
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock rule for %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= landlockFile
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)), 0, 0, 0) // a system call takes an address
	runtime.KeepAlive(&beneath)
	if errno != 0 {
		return fmt.Errorf("landlock rule for %s: %w", path, errno)
	}
	return nil
}
