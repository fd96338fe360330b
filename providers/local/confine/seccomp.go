//go:build linux

package confine

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SeccompOptions are refusals of the filter beyond its fixed table.
type SeccompOptions struct {
	// DenyInet refuses AF_INET, AF_INET6 and AF_UNIX sockets: deny-all without a network namespace.
	// Pairs of unix sockets stay, they lead nowhere.
	DenyInet bool
	// DenyUnseen makes memfd_create and the semaphores and message queues of System V absent. Set it where memory is watched and not limited
	// by a cgroup: the watchdog sees neither files without a name that are not mapped nor what the kernel holds.
	DenyUnseen bool
	// DenySysV makes all of System V's shared memory, semaphores and message queues absent. Set it where the box
	// has no ipc namespace of its own: they would be the host's, and stay there.
	DenySysV bool
	// DenyTruncate refuses to empty or cut a file by way of its path alone. Set it where the rules of [Landlock] are of an ABI below
	// [LandlockTruncate], which do not keep files from that: also such that can only be read, and such that are out of reach. Who may write
	// a file can still cut it: by ftruncate, or when it opens it for writing.
	DenyTruncate bool
}

// Architectures as the kernel's audit interface names them. Both are 64-bit and little-endian.
const (
	archAMD64 uint32 = 0xc000003e
	archARM64 uint32 = 0xc00000b7
)

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // six of 8 bytes; the low half comes first
)

// Answers of the filter.
const (
	retAllow = unix.SECCOMP_RET_ALLOW
	retEPERM = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retNoSys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	retKill  = unix.SECCOMP_RET_KILL_PROCESS
)

// x32 marks a call of the x32 interface of amd64: the same calls under other numbers.
const x32 = 0x40000000

// cloneNamespaces are the CLONE_NEW* flags that clone takes.
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// ErrArch says that there is no system call table for this processor.
var ErrArch = errors.New("no seccomp table for " + runtime.GOARCH)

// Seccomp installs the filter on every thread, with or without cgo. [NoNewPrivs] must have been called. The filter adds to existing ones
// and can never be removed.
func Seccomp(o SeccompOptions) error {
	if nativeArch == 0 {
		return ErrArch
	}
	return install(program(nativeArch, o), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// SeccompLimitsThread adds a filter to the calling thread, which must be locked to its goroutine, and to the processes that it forks from
// then on. They cannot set resource limits of other processes, nor RLIMIT_RTTIME, whose value marks the processes of a run. Reading limits
// stays allowed. Call [Seccomp] before: it cannot add a filter to threads whose filters differ.
func SeccompLimitsThread() error {
	if nativeArch == 0 {
		return ErrArch
	}
	return install(limitsProgram(nativeArch), 0)
}

func install(prog []unix.SockFilter, flags uintptr) error {
	if len(prog) > math.MaxUint16 {
		return fmt.Errorf("filter of %d instructions is too long", len(prog))
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	r, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		flags, uintptr(unsafe.Pointer(&fprog))) // a system call takes an address
	switch {
	case errno != 0:
		return fmt.Errorf("install seccomp filter: %w", errno)
	case r != 0:
		return fmt.Errorf("install seccomp filter: thread %d has a filter of its own", r)
	default:
		return nil
	}
}

// limitsProgram returns the filter of [SeccompLimitsThread]. It ignores other system call interfaces of the processor, which the filter of
// [Seccomp] refuses.
func limitsProgram(arch uint32) []unix.SockFilter {
	setrlimit, prlimit := uint32(unix.SYS_SETRLIMIT), uint32(unix.SYS_PRLIMIT64)
	switch arch {
	case archAMD64:
		setrlimit, prlimit = 160, 302
	case archARM64:
		setrlimit, prlimit = 164, 261
	}
	set := only0(arg(2), // the new limit: an address, both halves count
		load(arg(0)), jump(unix.BPF_JEQ, 0, 1, 0), ret(retEPERM), // of the caller itself
		load(arg(1)), jump(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 0, 1), ret(retEPERM), ret(retAllow))
	p := []unix.SockFilter{
		load(offNumber),
		jump(unix.BPF_JEQ, setrlimit, 0, 4),
		load(arg(0)), jump(unix.BPF_JEQ, unix.RLIMIT_RTTIME, 0, 1), ret(retEPERM), ret(retAllow),
		jump(unix.BPF_JEQ, prlimit, 0, uint8(len(set))), // a few instructions
	}
	return append(append(p, set...), ret(retAllow))
}

// only0 allows the call if the 64-bit word at off is 0, and otherwise continues with follows.
func only0(off uint32, follows ...unix.SockFilter) []unix.SockFilter {
	return append([]unix.SockFilter{
		load(off), jump(unix.BPF_JEQ, 0, 0, 3),
		load(off + 4), jump(unix.BPF_JEQ, 0, 0, 1), ret(retAllow),
	}, follows...)
}

// program compiles the table for one architecture into classic BPF. It reads the call number and the architecture before any argument, so
// that the kernel can decide most calls from its cache.
func program(arch uint32, o SeccompOptions) []unix.SockFilter {
	p := []unix.SockFilter{
		load(offArch),
		jump(unix.BPF_JEQ, arch, 1, 0),
		ret(retKill),
		load(offNumber),
	}
	if arch == archAMD64 {
		p = append(p, jump(unix.BPF_JSET, x32, 0, 1), ret(retEPERM))
	}
	p = append(p, jump(unix.BPF_JGT, newest, 0, 1), ret(retNoSys))
	table := rules()
	table = append(table, o.rows()...)
	for _, r := range table {
		n := r.number(arch)
		if n == none {
			continue
		}
		body := answer(r, o)
		p = append(p, jump(unix.BPF_JEQ, uint32(n), 0, uint8(len(body)))) // bodies have less than 20 instructions
		p = append(p, body...)
	}
	return append(p, ret(retAllow))
}

// answer returns the instructions for a call of rule r. Each path through them ends in a return.
func answer(r rule, o SeccompOptions) []unix.SockFilter {
	switch r.action {
	case refuse:
		return []unix.SockFilter{ret(retEPERM)}
	case absent:
		return []unix.SockFilter{ret(retNoSys)}
	default:
		return condition(r.name, o)
	}
}

// condition returns the instructions for calls that are refused depending on their arguments. These arguments are 32 bits wide in the
// kernel, which ignores the upper half; the filter ignores it too, or it would be a way around.
func condition(name string, o SeccompOptions) []unix.SockFilter {
	switch name {
	case "clone":
		return []unix.SockFilter{load(arg(0)), jump(unix.BPF_JSET, cloneNamespaces, 0, 1), ret(retEPERM), ret(retAllow)}
	case "personality":
		return only(arg(0), 0, math.MaxUint32)
	case "ioctl":
		return except(arg(1), unix.TIOCSTI, tiocLinux, unix.TIOCSETD)
	case "open":
		return truncating(arg(1))
	case "openat":
		return truncating(arg(2))
	case "socketpair":
		return only(arg(0), unix.AF_UNIX)
	case "socket":
		p := []unix.SockFilter{load(arg(0))}
		if !o.DenyInet {
			// Of the internet's protocols the default one, TCP and UDP: the others are rarely tested parts.
			inet := only(arg(2), 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP)
			p = append(p, jump(unix.BPF_JEQ, unix.AF_UNIX, 0, 1), ret(retAllow))
			p = append(p, jump(unix.BPF_JEQ, unix.AF_INET, 1, 0), jump(unix.BPF_JEQ, unix.AF_INET6, 0, uint8(len(inet)))) // 8 instructions
			p = append(p, inet...)
		}
		// Of netlink only what lists addresses and routes: getifaddrs needs it.
		p = append(p, jump(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0), ret(retEPERM))
		return append(p, only(arg(2), unix.NETLINK_ROUTE)...)
	default: // a row without a condition: a test finds it; no call is let through until then
		return []unix.SockFilter{ret(retEPERM)}
	}
}

// truncating refuses open flags that truncate the file without opening it for writing: read-only, or the access mode 3 (neither).
func truncating(flags uint32) []unix.SockFilter {
	return []unix.SockFilter{
		load(flags),
		jump(unix.BPF_JSET, unix.O_TRUNC, 1, 0), ret(retAllow),
		jump(unix.BPF_JSET, unix.O_WRONLY, 0, 3),
		jump(unix.BPF_JSET, unix.O_RDWR, 0, 1), ret(retEPERM), ret(retAllow),
		jump(unix.BPF_JSET, unix.O_RDWR, 0, 1), ret(retAllow), ret(retEPERM),
	}
}

// tiocLinux is TIOCLINUX, which pastes into virtual consoles.
const tiocLinux = 0x541c

// only allows the call if the word at off is one of values.
func only(off uint32, values ...uint32) []unix.SockFilter {
	return match(off, retAllow, retEPERM, values)
}

// except allows the call unless the word at off is one of values.
func except(off uint32, values ...uint32) []unix.SockFilter {
	return match(off, retEPERM, retAllow, values)
}

func match(off, hit, miss uint32, values []uint32) []unix.SockFilter {
	p := []unix.SockFilter{load(off)}
	for _, v := range values {
		p = append(p, jump(unix.BPF_JEQ, v, 0, 1), ret(hit))
	}
	return append(p, ret(miss))
}

// arg returns the offset of the lower half of argument n.
func arg(n uint32) uint32 { return offArgs + 8*n }

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

// jump compares the loaded word with k by op and skips yes or no instructions.
func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func ret(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}
