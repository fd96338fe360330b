//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// self is what init is executed from: the spawner's own program, whatever has become of its name.
const self = "/proc/self/exe"

// boxID is the user and the group inside of a box with a user namespace.
const boxID = 1000

// spawn runs the spawner: it clones boxes as the frames on control ask, until the worker closes the socket. Its working directory is the
// directory of the workspaces. It returns the exit code.
func spawn(control int) int {
	ignoreSignals()
	unix.Umask(0o022)
	confine.RaiseCore()
	s := spawner{null: -1, root: os.Geteuid() == 0}
	s.forked = sync.NewCond(&s.mu)
	var err error
	if s.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		fmt.Fprintln(os.Stderr, "open /dev/null:", err)
		return 1
	}
	go s.reap()
	in := new(receiver)
	for {
		p, err := in.receive(control, 0)
		if errors.Is(err, io.EOF) {
			return 0
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "receive:", err)
			return 1
		}
		f, err := decodeMake(p.body)
		want := 1
		if f.Cgroup {
			want = 2
		}
		if p.kind != kindMake || err != nil || len(p.files) != want {
			p.close()
			fmt.Fprintln(os.Stderr, "receive:", errFrame)
			return 1
		}
		var (
			pid, pidfd int
			cloneErr   error
		)
		if err := inGroups(f.Tasks, s.owner(f), func() { pid, pidfd, cloneErr = s.clone(f, p.files) }); err != nil {
			cloneErr = err
		}
		p.close()
		made := madeFrame{ID: f.ID, Pid: pid}
		var files []int
		if cloneErr != nil {
			e := stepError("clone", cloneErr)
			made.Step, made.Errno = e.Text, e.Errno
			if made.Errno == 0 {
				made.Errno = unix.EIO
			}
		} else {
			files = []int{pidfd}
		}
		err = sendOn(control, kindMade, made, files...)
		for _, fd := range files {
			_ = unix.Close(fd)
		}
		if err != nil {
			return 0 // the worker is gone, and with it the box's other end
		}
	}
}

// ignoreSignals keeps signals from ending the process. It receives and drops them; SIG_IGN would be inherited by children.
func ignoreSignals() {
	all := make([]os.Signal, 0, 64)
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG:
		default:
			all = append(all, n)
		}
	}
	signal.Notify(make(chan os.Signal, 1), all...)
	// The runtime leaves this one to the C library, whose posix_spawn lets a child ignore it: so does each process that make starts.
	const sigCancel = 32
	var def [4]uintptr // sigaction(2) as the kernel has it: SIG_DFL, no flags, no signals held back
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sigCancel, uintptr(unsafe.Pointer(&def)), 0, 8, 0, 0)
}

// spawner clones boxes and reaps them.
type spawner struct {
	null   int
	root   bool // asked before a thread acts for another user
	mu     sync.Mutex
	forked *sync.Cond
	forks  int
}

// ambient returns the capabilities that init has, within its own user namespace only, while it builds the box.
func ambient() []uintptr {
	return []uintptr{
		unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID,
		unix.CAP_DAC_OVERRIDE, unix.CAP_CHOWN, unix.CAP_NET_BIND_SERVICE,
		unix.CAP_SYS_RESOURCE, // for the namespace's own limits
	}
}

// clone starts the init of a box. It returns its process id and a pidfd.
func (s *spawner) clone(f makeFrame, files []int) (pid, pidfd int, err error) {
	attr := &syscall.SysProcAttr{PidFD: &pidfd, Setsid: true}
	if f.Cgroup {
		attr.UseCgroupFD, attr.CgroupFD = true, files[1]
	}
	root := s.root
	if root && f.HostID <= 0 {
		return 0, -1, fmt.Errorf("a box must not be user 0 of the host: %w", unix.EINVAL)
	}
	switch {
	case f.Mode == Isolated:
		attr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
		if !f.HostNet {
			attr.Cloneflags |= unix.CLONE_NEWNET
		}
		uid, gid := f.HostID, f.HostID
		if !root {
			uid, gid = os.Geteuid(), os.Getegid()
		}
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: boxID, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: boxID, HostID: gid, Size: 1}}
		attr.GidMappingsEnableSetgroups = root
		attr.Credential = &syscall.Credential{Uid: boxID, Gid: boxID, NoSetGroups: !root}
		attr.AmbientCaps = ambient()
	case root:
		attr.Credential = &syscall.Credential{Uid: uint32(f.HostID), Gid: uint32(f.HostID)} // checked above; ids have 31 bits
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err = syscall.ForkExec(self, []string{Name, partInit}, &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=2"},                                                        // the runtime of a process that mostly waits
		Files: []uintptr{uintptr(s.null), uintptr(s.null), uintptr(s.null), uintptr(files[0])}, // descriptors
		Sys:   attr,
	})
	if err != nil {
		return 0, -1, fmt.Errorf("clone: %w", err)
	}
	s.forks++
	s.forked.Signal()
	return pid, pidfd, nil
}

// owner returns the host user that clones a box; 0 means the spawner's own. The kernel counts inotify instances and namespaces against the
// user who made the user namespace, so it is the tenant's user where there is one: no tenant can use up the worker's share.
func (s *spawner) owner(f makeFrame) int {
	if f.Mode != Isolated || !s.root {
		return 0
	}
	return f.HostID
}

// inGroups calls f on a new thread that has joined the version 1 groups of the given tasks files and acts for the owner, and waits for it.
// The thread ends afterwards, so that nothing else ever runs in the box's groups.
func inGroups(tasks []string, owner int, f func()) error {
	if len(tasks) == 0 && owner <= 0 {
		f()
		return nil
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if unix.Gettid() == unix.Getpid() {
			done <- inGroups(tasks, owner, f) // the main thread cannot end: it waits while another does it
			runtime.UnlockOSThread()
			return
		}
		for _, file := range tasks {
			if err := os.WriteFile(file, []byte("0"), 0); err != nil {
				done <- fmt.Errorf("join the cgroup: %w", err)
				return
			}
		}
		if owner > 0 {
			actFor(owner)
		}
		f()
		done <- nil
	}()
	return <-done
}

// actFor sets the effective user of the calling thread, which must be locked, to owner and keeps all its rights. Some containers forbid
// that; the user then stays the spawner's.
func actFor(owner int) {
	const keepRights = 1 << 2 // SECBIT_NO_SETUID_FIXUP
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, keepRights, 0); errno != 0 {
		return
	}
	same := ^uintptr(0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(owner), same) //nolint:dogsled // else as before
}

// reap waits for ended boxes, forever. No other goroutine calls wait.
func (s *spawner) reap() {
	runtime.LockOSThread()
	seen := 0
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if !errors.Is(err, unix.ECHILD) {
			continue
		}
		s.mu.Lock()
		for s.forks == seen {
			s.forked.Wait()
		}
		seen = s.forks
		s.mu.Unlock()
	}
}
