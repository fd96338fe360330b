//go:build linux

// The probe tries, inside a box, what a shell cannot: system calls by name, sockets of any family, other
// processes' memory. It prints the kernel's answer as one word per try: "ok" or the name of the errno.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fail("what to try?")
	}
	runtime.LockOSThread()
	args := os.Args[2:]
	switch os.Args[1] {
	case "syscall":
		tryCall(args[0])
	case "socket":
		_, err := unix.Socket(number(args[0]), number(args[1]), number(args[2]))
		say(err)
	case "tcp":
		connectTCP(args[0], number(args[1]))
	case "udp":
		sendUDP(args[0], number(args[1]))
	case "abstract":
		connectUnix("@" + args[0])
	case "unix":
		connectUnix(args[0])
	case "open":
		open(args[0], args[1])
	case "writable":
		for _, name := range args {
			if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0); err == nil {
				fmt.Println(name)
				_ = unix.Close(fd) // nothing was written
			}
		}
	case "kill":
		say(unix.Kill(number(args[0]), unix.Signal(number(args[1]))))
	case "vmread":
		vmRead(number(args[0]))
	case "ptrace":
		say(unix.PtraceAttach(number(args[0])))
	case "terminal":
		terminal()
	case "tasks":
		tasks()
	case "status":
		fmt.Println(status("/proc/self/status"))
	case "memory":
		memory(args[0], number(args[1]))
	case "files":
		files(number(args[0]))
	case "inotify":
		inotify()
	case "limits":
		limits(number(args[0]))
	case "semaphores":
		semaphores(number(args[0]))
	case "foreign":
		foreign(args[0])
	default:
		fail("no probe " + os.Args[1])
	}
}

func fail(what string) {
	fmt.Fprintln(os.Stderr, "probe:", what)
	os.Exit(99)
}

func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		fail(err.Error())
	}
	return int(n)
}

func say(err error) {
	switch errno, ok := err.(unix.Errno); { //nolint:errorlint // straight from the kernel
	case err == nil, ok && errno == 0:
		fmt.Println("ok")
	case ok:
		fmt.Println(unix.ErrnoName(errno))
	default:
		fmt.Println(err)
	}
}

// call is a system call with harmless arguments, such as paths that do not exist or invalid addresses, in case it is allowed.
type call struct {
	nr   uintptr
	args [5]uintptr
}

// What calls point to must stay where it is.
var (
	priority = [1]uint32{10} //nolint:gochecknoglobals // never changed
	group    = [1]uint32{0}  //nolint:gochecknoglobals // never changed
)

const nowhere = ^uintptr(0) // an address or a descriptor that is none

func calls() map[string]call {
	path := uintptr(unsafe.Pointer(unsafe.StringData("/sandjet-does-not-exist\x00")))
	return map[string]call{
		"mount":             {unix.SYS_MOUNT, [5]uintptr{path, path, path, unix.MS_BIND, 0}},
		"remount":           {unix.SYS_MOUNT, [5]uintptr{path, path, path, unix.MS_REMOUNT | unix.MS_BIND, 0}},
		"umount2":           {unix.SYS_UMOUNT2, [5]uintptr{path, unix.MNT_DETACH}},
		"pivot_root":        {unix.SYS_PIVOT_ROOT, [5]uintptr{path, path}},
		"chroot":            {unix.SYS_CHROOT, [5]uintptr{path}},
		"open_tree":         {unix.SYS_OPEN_TREE, [5]uintptr{nowhere, path, unix.OPEN_TREE_CLONE}},
		"move_mount":        {unix.SYS_MOVE_MOUNT, [5]uintptr{nowhere, path, nowhere, path, 0}},
		"fsopen":            {unix.SYS_FSOPEN, [5]uintptr{path, 0}},
		"fsmount":           {unix.SYS_FSMOUNT, [5]uintptr{nowhere, 0, 0}},
		"fspick":            {unix.SYS_FSPICK, [5]uintptr{nowhere, path, 0}},
		"mount_setattr":     {unix.SYS_MOUNT_SETATTR, [5]uintptr{nowhere, path, 0, 0, 0}},
		"setns":             {unix.SYS_SETNS, [5]uintptr{nowhere, 0}},
		"unshare-user":      {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWUSER}},
		"unshare-mount":     {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWNS}},
		"unshare-pid":       {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWPID}},
		"unshare-net":       {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWNET}},
		"unshare-cgroup":    {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWCGROUP}},
		"unshare-time":      {unix.SYS_UNSHARE, [5]uintptr{unix.CLONE_NEWTIME}},
		"clone-newuser":     {unix.SYS_CLONE, [5]uintptr{unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}},
		"clone-newns":       {unix.SYS_CLONE, [5]uintptr{unix.CLONE_NEWNS | uintptr(unix.SIGCHLD) | 1<<32}},
		"clone3":            {unix.SYS_CLONE3, [5]uintptr{nowhere, 88}},
		"ptrace":            {unix.SYS_PTRACE, [5]uintptr{unix.PTRACE_TRACEME}},
		"process_vm_readv":  {unix.SYS_PROCESS_VM_READV, [5]uintptr{1}},
		"process_vm_writev": {unix.SYS_PROCESS_VM_WRITEV, [5]uintptr{1}},
		"kcmp":              {unix.SYS_KCMP, [5]uintptr{1, 1}},
		"pidfd_getfd":       {unix.SYS_PIDFD_GETFD, [5]uintptr{nowhere}},
		"io_uring_setup":    {unix.SYS_IO_URING_SETUP, [5]uintptr{1, nowhere}},
		"io_uring_enter":    {unix.SYS_IO_URING_ENTER, [5]uintptr{nowhere}},
		"io_uring_register": {unix.SYS_IO_URING_REGISTER, [5]uintptr{nowhere}},
		"bpf":               {unix.SYS_BPF, [5]uintptr{0, nowhere, 8}},
		"perf_event_open":   {unix.SYS_PERF_EVENT_OPEN, [5]uintptr{nowhere}},
		"userfaultfd":       {unix.SYS_USERFAULTFD, [5]uintptr{1}},
		"add_key":           {unix.SYS_ADD_KEY, [5]uintptr{path, path, 0, 0, nowhere - 2}},
		"request_key":       {unix.SYS_REQUEST_KEY, [5]uintptr{path, path, 0, 0}},
		"keyctl":            {unix.SYS_KEYCTL, [5]uintptr{0, nowhere - 2, 0}},
		"open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT, [5]uintptr{nowhere, nowhere, 0}},
		"name_to_handle_at": {unix.SYS_NAME_TO_HANDLE_AT, [5]uintptr{nowhere, path, nowhere, nowhere, 0}},
		"fanotify_init":     {unix.SYS_FANOTIFY_INIT, [5]uintptr{0, 0}},
		"kexec_load":        {unix.SYS_KEXEC_LOAD, [5]uintptr{0, 0, 0, 0}},
		"kexec_file_load":   {unix.SYS_KEXEC_FILE_LOAD, [5]uintptr{nowhere, nowhere}},
		"init_module":       {unix.SYS_INIT_MODULE, [5]uintptr{0, 0, path}},
		"finit_module":      {unix.SYS_FINIT_MODULE, [5]uintptr{nowhere, path, 0}},
		"delete_module":     {unix.SYS_DELETE_MODULE, [5]uintptr{path, 0}},
		"reboot":            {unix.SYS_REBOOT, [5]uintptr{0, 0, 0}}, // wrong magic: it could not do it
		"swapon":            {unix.SYS_SWAPON, [5]uintptr{path, 0}},
		"swapoff":           {unix.SYS_SWAPOFF, [5]uintptr{path}},
		"settimeofday":      {unix.SYS_SETTIMEOFDAY, [5]uintptr{nowhere, 0}},
		"clock_settime":     {unix.SYS_CLOCK_SETTIME, [5]uintptr{0, nowhere}},
		"adjtimex":          {unix.SYS_ADJTIMEX, [5]uintptr{nowhere}},
		"acct":              {unix.SYS_ACCT, [5]uintptr{path}},
		"quotactl":          {unix.SYS_QUOTACTL, [5]uintptr{0, path, 0, nowhere}},
		"syslog":            {unix.SYS_SYSLOG, [5]uintptr{10, 0, 0}},
		"sethostname":       {unix.SYS_SETHOSTNAME, [5]uintptr{nowhere, 1}},
		"personality":       {unix.SYS_PERSONALITY, [5]uintptr{0x40000}}, // no address randomisation
		"vhangup":           {unix.SYS_VHANGUP, [5]uintptr{}},
		"move_pages":        {unix.SYS_MOVE_PAGES, [5]uintptr{1}},
		"mbind":             {unix.SYS_MBIND, [5]uintptr{}},
		"future":            {3000, [5]uintptr{}},
		"setuid":            {unix.SYS_SETUID, [5]uintptr{0}},
		"setgid":            {unix.SYS_SETGID, [5]uintptr{0}},
		"setresuid-nobody":  {unix.SYS_SETRESUID, [5]uintptr{65533, 65533, 65533}},
		"setgroups":         {unix.SYS_SETGROUPS, [5]uintptr{1, uintptr(unsafe.Pointer(&group))}},
		"tiocsti":           {unix.SYS_IOCTL, [5]uintptr{0, unix.TIOCSTI, path}},
		"tiocsti-high-bits": {unix.SYS_IOCTL, [5]uintptr{0, 1<<32 | unix.TIOCSTI, path}},
		"tioclinux":         {unix.SYS_IOCTL, [5]uintptr{0, 0x541c, path}},
		"sched-realtime":    {unix.SYS_SCHED_SETSCHEDULER, [5]uintptr{0, 1, uintptr(unsafe.Pointer(&priority))}},
		"mknod-memory": {unix.SYS_MKNODAT, [5]uintptr{nowhere - 99, uintptr(unsafe.Pointer(unsafe.StringData("device\x00"))),
			unix.S_IFCHR | 0o600, uintptr(unix.Mkdev(1, 1))}},
	}
}

func tryCall(name string) {
	c, ok := calls()[name]
	if !ok {
		if c, ok = nativeCalls()[name]; !ok {
			fmt.Println("not on this processor")
			return
		}
	}
	r, _, errno := unix.RawSyscall6(c.nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
	if errno == 0 && r == 0 && strings.HasPrefix(name, "clone-") {
		os.Exit(0) // the child that should not have been born
	}
	say(errno)
}

func connectTCP(host string, port int) {
	var addr unix.Sockaddr = &unix.SockaddrInet4{Port: port, Addr: [4]byte(ip(host))}
	family := unix.AF_INET
	if strings.Contains(host, ":") {
		family, addr = unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 2})
		err = unix.Connect(fd, addr)
	}
	say(err)
}

func ip(s string) []byte {
	var b [4]byte
	for i, part := range strings.SplitN(s, ".", 4) {
		n, _ := strconv.Atoi(part)
		b[i] = byte(n) // an address of the test
	}
	return b[:]
}

func sendUDP(host string, port int) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		err = unix.Sendto(fd, []byte("canary"), 0, &unix.SockaddrInet4{Port: port, Addr: [4]byte(ip(host))})
	}
	say(err)
}

func connectUnix(name string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	}
	say(err)
}

func open(path, how string) {
	flags := map[string]int{"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR, "path": unix.O_PATH}[how]
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err == nil && how == "rw" && strings.HasSuffix(path, "/mem") {
		_, err = unix.Pread(fd, make([]byte, 1), 0x400000)
	}
	say(err)
}

func vmRead(pid int) {
	buf := make([]byte, 8)
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	say(err)
}

// terminal makes a terminal of its own and tries to type into it.
func terminal() {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		say(err)
		return
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		say(err)
		return
	}
	char := byte('x')
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&char)))
	fmt.Println(n, unix.ErrnoName(errno))
}

// status returns the rights of a process, from its status file, in one line.
func status(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(line, ":")
		if ok && (strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" || name == "Seccomp") {
			value = strings.TrimLeft(strings.TrimSpace(value), "0")
			out = append(out, name+"="+value)
		}
	}
	return strings.Join(out, " ")
}

// tasks prints the rights of every thread of every process in the box.
func tasks() {
	pids, err := os.ReadDir("/proc")
	if err != nil {
		fail(err.Error())
	}
	for _, pid := range pids {
		threads, err := os.ReadDir("/proc/" + pid.Name() + "/task")
		if err != nil {
			continue
		}
		for _, thread := range threads {
			fmt.Println(status("/proc/" + pid.Name() + "/task/" + thread.Name() + "/status"))
		}
	}
}

// memory allocates mib MiB of a kind of memory in pieces, touches them, and prints how much it got.
func memory(kind string, mib int) {
	if kind == "tcp" {
		tcp(mib)
		return
	}
	const piece = 16 << 20
	got := 0
	for ; got < mib; got += piece >> 20 {
		mem, err := takeMemory(kind, piece)
		if err != nil {
			fmt.Println(got, err)
			return
		}
		for i := 0; i < len(mem); i += 4096 {
			mem[i] = 1
		}
		if kind == "memfd" || kind == "shm" {
			_ = unix.Munmap(mem) // no process maps it any more; it is still there
		}
	}
	fmt.Println(got, "survived")
}

func takeMemory(kind string, size int) ([]byte, error) {
	switch kind {
	case "memfd":
		fd, err := unix.MemfdCreate("x", 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			return nil, err
		}
		return unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	case "shm":
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600)
		if err != nil {
			return nil, err
		}
		return unix.SysvShmAttach(id, 0, 0)
	default:
		return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
}

// files opens up to n files and prints how many it got.
func files(n int) {
	got := 0
	for ; got < n; got++ {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			break
		}
	}
	fmt.Println(got)
}

// inotify makes as many inotify instances as possible and prints how many.
func inotify() {
	n := 0
	for ; n < 1000; n++ {
		if _, err := unix.InotifyInit1(0); err != nil {
			break
		}
	}
	fmt.Println(n)
}

// limits tries to read and to set resource limits: of itself, of another process, and of the mark by which runs are recognised. It also
// prints the limit on core dumps.
func limits(other int) {
	var l unix.Rlimit
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_RTTIME, 0, uintptr(unsafe.Pointer(&l)), 0, 0)
	fmt.Print("ask ", unix.ErrnoName(errno))
	if l.Max--; l.Cur > l.Max {
		l.Cur = l.Max
	}
	limit := uintptr(unsafe.Pointer(&l))
	_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_RTTIME, limit, 0, 0, 0)
	fmt.Print(" prlimit ", unix.ErrnoName(errno))
	_, _, errno = unix.RawSyscall(unix.SYS_SETRLIMIT, unix.RLIMIT_RTTIME, limit, 0)
	fmt.Print(" setrlimit ", unix.ErrnoName(errno))
	l = unix.Rlimit{Cur: 64, Max: 64}
	_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, uintptr(other), unix.RLIMIT_MEMLOCK, limit, 0, 0, 0)
	fmt.Print(" other ", unix.ErrnoName(errno))
	_, _, errno = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, limit, 0, 0, 0)
	fmt.Print(" files ", unix.ErrnoName(errno))
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &l)
	fmt.Println(" core", l.Cur, l.Max)
}

// semaphores makes n full arrays of semaphores, and prints how many it got.
func semaphores(n int) {
	got := 0
	for ; got < n; got++ {
		if _, _, errno := unix.RawSyscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 32000, unix.IPC_CREAT|0o600); errno != 0 {
			fmt.Println(got, unix.ErrnoName(errno))
			return
		}
	}
	fmt.Println(got, "survived")
}

// tcp fills the socket buffers of connections over loopback that nothing reads, many times.
func tcp(mib int) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(l, 1000)
	}
	if err != nil {
		fmt.Println(0, err)
		return
	}
	addr, _ := unix.Getsockname(l)
	buf, got := make([]byte, 1<<20), 0
	for got < mib<<20 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			break
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
		if unix.Connect(fd, addr) != nil || unix.SetNonblock(fd, true) != nil {
			break
		}
		if _, _, err = unix.Accept(l); err != nil {
			break
		}
		for {
			n, err := unix.Write(fd, buf)
			if err != nil || n <= 0 {
				break
			}
			got += n
		}
	}
	if got < mib<<20 {
		fmt.Println(got>>20, "bounded")
		return
	}
	fmt.Println(got>>20, "survived")
}

// foreign makes a system call through another interface of the processor.
func foreign(how string) {
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, foreignCall(how))
	_ = out.Flush() // a call that was let through shows as a line
}
