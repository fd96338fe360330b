//go:build linux

// The child confines itself and prints what it can still do. The tests of package confine build it
// without cgo and read its lines "name: answer".
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/sandjet/sandjet/providers/local/confine"
	"golang.org/x/sys/unix"
)

func main() {
	// Several threads must exist, else "all threads" proves nothing.
	stop := make(chan struct{})
	defer close(stop)
	for range 4 {
		go func() { runtime.LockOSThread(); <-stop }()
	}
	for threads() < 5 {
		runtime.Gosched()
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "privileges":
		privileges()
	case "status":
		say("status", status("/proc/self/status"))
	case "seccomp":
		filter(len(args) > 0 && args[0] == "inet")
	case "exec":
		must(confine.NoNewPrivs())
		must(confine.Seccomp(confine.SeccompOptions{}))
		must(syscall.Exec(args[0], args, nil))
	case "landlock":
		landlock(args[0], args[1])
	case "signals":
		signals(args[0] == "free")
	case "rlimits":
		rlimits()
	case "allocate":
		mib, err := strconv.Atoi(args[0])
		must(err)
		allocate(mib, len(args) > 1 && args[1] == "hidden")
	case "fork":
		forks()
	case "cgroups":
		s := confine.ProbeCgroups()
		say("support", s)
		for _, r := range s.Reasons() {
			say("reason", r)
		}
	case "watch":
		watch(args)
	default:
		panic(os.Args[1])
	}
}

func must(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func say(name string, answer any) { fmt.Printf("%s: %v\n", name, answer) }

func threads() int {
	tasks, _ := os.ReadDir("/proc/self/task")
	return len(tasks)
}

// status returns the rights of a process, from its status file, in one line.
func status(file string) string {
	data, err := os.ReadFile(file)
	must(err)
	var out []string
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && (strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" || name == "Seccomp") {
			out = append(out, name+"="+strings.TrimLeft(strings.TrimSpace(value), "0"))
		}
	}
	return strings.Join(out, " ")
}

func privileges() {
	must(confine.DropCapabilities())
	must(confine.NoNewPrivs())
	must(confine.Seccomp(confine.SeccompOptions{}))
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	must(err)
	for _, task := range tasks {
		say("thread", status(task))
	}
	for range 50 { // from whatever thread
		out, err := exec.Command("/proc/self/exe", "status").CombinedOutput()
		must(err)
		fmt.Print(strings.ReplaceAll(string(out), "status:", "child:"))
	}
	must(confine.Dumpable(false))
	v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	must(err)
	say("dumpable", v)
}

func call(name string, nr uintptr, a ...uintptr) {
	var v [6]uintptr
	copy(v[:], a)
	_, _, errno := syscall.RawSyscall6(nr, v[0], v[1], v[2], v[3], v[4], v[5])
	if errno == 0 {
		say(name, "ok")
		return
	}
	say(name, unix.ErrnoName(errno))
}

func filter(denyInet bool) {
	must(confine.NoNewPrivs())
	must(confine.Seccomp(confine.SeccompOptions{DenyInet: denyInet, DenyUnseen: denyInet}))
	call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("mount", unix.SYS_MOUNT, 0, 0, 0, 0, 0)
	call("setns", unix.SYS_SETNS, ^uintptr(0), 0)
	call("ptrace", unix.SYS_PTRACE, unix.PTRACE_TRACEME)
	call("bpf", unix.SYS_BPF, 0, 0, 0)
	call("keyctl", unix.SYS_KEYCTL, 0, 0)
	call("clone3", unix.SYS_CLONE3, 0, 0)
	call("clone-newuser", unix.SYS_CLONE, unix.CLONE_NEWUSER)
	call("clone-high-bits", unix.SYS_CLONE, unix.CLONE_NEWNS|1<<32)
	call("io_uring", unix.SYS_IO_URING_SETUP, 0, 0)
	call("future", 4000)
	call("tiocsti", unix.SYS_IOCTL, ^uintptr(0), unix.TIOCSTI, 0)
	call("tiocsti-high-bits", unix.SYS_IOCTL, ^uintptr(0), 1<<32|unix.TIOCSTI, 0)
	call("tcgets", unix.SYS_IOCTL, ^uintptr(0), unix.TCGETS, 0)
	call("personality-ask", unix.SYS_PERSONALITY, 0xffffffff)
	call("personality-norandom", unix.SYS_PERSONALITY, 0x40000)
	for _, s := range []struct {
		name             string
		family, protocol uintptr
	}{
		{"unix", unix.AF_UNIX, 0}, {"inet", unix.AF_INET, 0}, {"inet6", unix.AF_INET6, 0},
		{"route", unix.AF_NETLINK, unix.NETLINK_ROUTE}, {"audit", unix.AF_NETLINK, unix.NETLINK_AUDIT},
		{"packet", unix.AF_PACKET, 0}, {"vsock", unix.AF_VSOCK, 0}, {"alg", unix.AF_ALG, 0},
	} {
		call("socket-"+s.name, unix.SYS_SOCKET, s.family, unix.SOCK_DGRAM, s.protocol)
	}
	var pair [2]int32
	call("socketpair-unix", unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&pair)))
	call("socketpair-tipc", unix.SYS_SOCKETPAIR, unix.AF_TIPC, unix.SOCK_STREAM, 0, uintptr(unsafe.Pointer(&pair)))
	name := []byte("x\x00")
	call("memfd", unix.SYS_MEMFD_CREATE, uintptr(unsafe.Pointer(&name[0])), 0)
	call("getpid", unix.SYS_GETPID)
	done := make(chan error, 1)
	go func() { // another thread has the filter too
		runtime.LockOSThread()
		done <- unix.Unshare(unix.CLONE_NEWNS)
	}()
	say("other-thread", unix.ErrnoName((<-done).(syscall.Errno)))
	out, err := exec.Command("/bin/sh", "-c", "echo works").CombinedOutput()
	say("shell", strings.TrimSpace(string(out))+fmt.Sprint(err))
}

func landlock(ro, rw string) {
	must(confine.NoNewPrivs())
	rules := confine.LandlockRules{ReadOnly: []string{ro, "/proc", "/usr", "/lib", "/lib64", "/bin"}, ReadWrite: []string{rw, "/dev/null"}}
	if _, err := confine.Landlock(confine.LandlockRules{ReadOnly: []string{filepath.Join(ro, "missing")}}); err == nil {
		say("missing", "no error")
	} else {
		say("missing", "error")
	}
	abi, err := confine.Landlock(rules)
	must(err)
	say("abi", abi)
	try := func(name string, err error) {
		if err != nil {
			say(name, "refused")
		} else {
			say(name, "ok")
		}
	}
	all := func(on string) {
		_, err := os.ReadFile(filepath.Join(ro, "file"))
		try(on+"read-ro", err)
		try(on+"write-ro", os.WriteFile(filepath.Join(ro, "file"), []byte("x"), 0o600))
		try(on+"make-ro", os.Mkdir(filepath.Join(ro, on+"dir"), 0o700))
		try(on+"write-rw", os.WriteFile(filepath.Join(rw, "file"), []byte("x"), 0o600))
		try(on+"rename-rw", os.Rename(filepath.Join(rw, "file"), filepath.Join(rw, "file2")))
		_, err = os.ReadFile("/etc/passwd")
		try(on+"outside", err)
		try(on+"null", os.WriteFile("/dev/null", []byte("x"), 0o600))
		_, err = os.ReadFile(filepath.Join(rw, "..", "canary"))
		try(on+"dotdot", err)
	}
	all("")
	done := make(chan struct{})
	go func() { runtime.LockOSThread(); all("thread-"); close(done) }()
	<-done
	out, err := exec.Command("/bin/sh", "-c", "cat /etc/passwd >/dev/null 2>&1 || echo refused").CombinedOutput()
	say("child", strings.TrimSpace(string(out))+fmt.Sprint(err))
}

// signals reports whether the process can still signal its parent, which is outside.
func signals(free bool) {
	must(confine.NoNewPrivs())
	_, err := confine.Landlock(confine.LandlockRules{ReadOnly: []string{"/"}, ReadWrite: []string{"/dev"}, FreeSignals: free})
	must(err)
	say("parent", errnoName(unix.Kill(os.Getppid(), 0)))
	c := exec.Command("/bin/sleep", "100")
	must(c.Start())
	sent := make(chan error)
	go func() { runtime.LockOSThread(); sent <- unix.Kill(c.Process.Pid, unix.SIGKILL) }()
	if free {
		say("child-from-other-thread", errnoName(<-sent))
	} else {
		<-sent
	}
	_ = c.Process.Kill()
	_ = c.Wait()
}

func errnoName(err error) string {
	if errno, ok := err.(syscall.Errno); ok {
		return unix.ErrnoName(errno)
	}
	return "ok"
}

func rlimits() {
	must(confine.Rlimits(confine.RlimitSpec{NProc: 200, NoFile: 128, FSize: 1 << 20, CPU: 100, MemLock: 64 << 10}))
	out, err := exec.Command("/bin/sh", "-c", "ulimit -n; ulimit -Hn; ulimit -f; ulimit -c; ulimit -t").CombinedOutput()
	must(err)
	say("sh", strings.Join(strings.Fields(string(out)), " "))
	var nproc, memlock, mq unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_NPROC, &nproc))
	must(unix.Getrlimit(unix.RLIMIT_MEMLOCK, &memlock))
	must(unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &mq))
	say("others", fmt.Sprint(nproc.Max, memlock.Max, mq.Max))
	must(confine.Rlimits(confine.RlimitSpec{NoFile: 4096}))
	var files unix.Rlimit
	must(unix.Getrlimit(unix.RLIMIT_NOFILE, &files))
	say("raised", files.Max)
}

// allocate touches memory and waits to be killed. With hidden, other processes of the same user cannot inspect it.
func allocate(mib int, hidden bool) {
	if hidden {
		must(confine.Dumpable(false))
	}
	mem, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(err)
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	say("allocated", mib)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	runtime.KeepAlive(mem)
}

// forks starts children until it fails, and prints how many it started.
func forks() {
	spareThreads()
	_, _ = os.Stdin.Read(make([]byte, 1)) // the test has put us into the group
	n := 0
	for ; n < 500; n++ {
		if err := exec.Command("/bin/sleep", "100").Start(); err != nil {
			break
		}
	}
	say("forked", n)
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// spareThreads has the runtime make threads that it could not make any more when no process may be started.
func spareThreads() {
	fds := make([]int, 2)
	must(unix.Pipe2(fds, unix.O_CLOEXEC))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { _, _ = unix.Read(fds[0], make([]byte, 1)) }) // it ends with the pipe
	}
	must(unix.Close(fds[1]))
	all.Wait()
	must(unix.Close(fds[0]))
}

// watch runs a watchdog over its own descendants: it starts a child that allocates memory, and prints what the watchdog saw.
func watch(args []string) {
	c := exec.Command("/proc/self/exe", append([]string{"allocate"}, args...)...)
	out, err := c.StdoutPipe()
	must(err)
	in, err := c.StdinPipe()
	must(err)
	must(c.Start())
	_, err = out.Read(make([]byte, 64))
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w := confine.Watchdog{Limit: 100 << 20, Root: os.Getpid(), Every: 10 * time.Millisecond}
	w.Over = func(used int64) { say("over", used>>20); cancel() }
	w.Run(ctx)
	must(in.Close())
	must(c.Wait())
	say("after", w.Used()>>20)
}
