//go:build linux

package box

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/internal/netns"
	"github.com/sandjet/sandjet/providers/local/confine"
)

// stateFD is where an init that executed itself again finds what it knew.
const stateFD = 4

// state is the data that init needs to drop its rights and serve runs.
type state struct {
	setup  Setup
	claim  Claim
	bootID string
}

func (s state) encode(w *writer) {
	w.str(s.bootID)
	var inner writer
	s.setup.encode(&inner)
	w.str(string(inner))
	inner = nil
	s.claim.encode(&inner)
	w.str(string(inner))
}

func decodeState(p []byte) (s state, err error) {
	r := reader{p: p}
	s.bootID = r.str()
	setup, claim := r.str(), r.str()
	if err := r.end(); err != nil {
		return s, err
	}
	if s.setup, err = decodeSetup([]byte(setup)); err != nil {
		return s, err
	}
	s.claim, err = decodeClaim([]byte(claim))
	return s, err
}

// startInit runs process 1 of a box from its start: it builds the view, waits for the claim, drops its rights and serves runs until the
// worker closes the socket. It returns the exit code.
func startInit(control int) int {
	ignoreSignals()
	unix.Umask(0o022)
	in := new(receiver)
	var s state
	p, err := in.receive(control, 0)
	if err != nil {
		return 0 // the worker changed its mind
	}
	if s.setup, err = decodeSetup(p.body); p.kind != kindSetup || err != nil || len(p.files) != 0 {
		return fail(control, stepError("read the setup", errFrame))
	}
	if s.bootID, err = newBootID(); err != nil {
		return fail(control, stepError("draw the boot id", err))
	}
	program, err := unix.Open(self, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(control, stepError("hold the program", err))
	}
	// The first to be killed when the host is out of memory is a box.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return fail(control, stepError("volunteer for the out-of-memory killer", err))
	}
	if s.setup.Mode == Isolated {
		if e := buildView(s.setup, s.bootID); e != nil {
			return fail(control, e)
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail(control, stepError("adopt orphans", err))
	}
	var files []int // listeners for connections and, the last, the socket for questions for names
	if s.setup.Relay {
		n, err := netns.Open(s.setup.Ports)
		if err != nil {
			return fail(control, networkError(err))
		}
		files = n.Files()
	}
	err = sendOn(control, kindReady, empty{}, files...)
	for _, fd := range files {
		_ = unix.Close(fd) // they are the worker's
	}
	if err != nil {
		return 0
	}
	if p, err = in.receive(control, 0); err != nil {
		return 0
	}
	if s.claim, err = decodeClaim(p.body); p.kind != kindClaim || err != nil || len(p.files) != 0 {
		return fail(control, stepError("read the claim", errFrame))
	}
	if s.setup.Mode == Isolated {
		if e := showWorkspaces(s.claim); e != nil {
			return fail(control, e)
		}
	}
	return closeBox(control, program, s, in)
}

// networkError converts an error of package netns to a StepError.
func networkError(err error) *StepError {
	step := "make the network"
	if e, ok := errors.AsType[*netns.Error](err); ok {
		step, err = e.Step, e.Err
	}
	return stepError(step, err)
}

// resumeInit continues process 1 after it has executed itself again, without rights. It returns the exit code.
func resumeInit(control int) int {
	ignoreSignals()
	body, err := readWhole(stateFD)
	if err != nil {
		return fail(control, stepError("read the state", err))
	}
	s, err := decodeState(body)
	if err != nil {
		return fail(control, stepError("read the state", err))
	}
	return closeBox(control, -1, s, new(receiver))
}

// fail reports a failed step to the worker and returns the exit code that ends the box: nothing is run in a box that is only partly
// restricted.
func fail(control int, e *StepError) int {
	_ = sendOn(control, kindFailed, e) // the worker is gone, or receives it
	return 1
}

// closeBox drops all rights for good and serves runs; it returns the exit code. Program is the descriptor to execute again if the rights
// of all threads cannot be dropped at once (a program linked with cgo), -1 if that was done already.
func closeBox(control, program int, s state, in *receiver) int {
	facts := Facts{BootID: s.bootID, Shell: shell(), Watches: watchesKept()}
	if e := restrict(s); e != nil {
		return fail(control, e)
	}
	i := newServer(control, s)
	ready := make(chan *StepError)
	go i.forker(ready, &facts)
	if e := <-ready; e != nil {
		return fail(control, e)
	}
	if s.setup.Mode != Bare {
		if i.alone { // the rights of all threads cannot be dropped at once
			if program >= 0 {
				return fail(control, again(control, program, s))
			}
			// The thread that executed us had none, and so has no thread since.
		}
		if err := confine.Dumpable(false); err != nil {
			return fail(control, stepError("close the memory", err))
		}
		if err := confine.Seccomp(confine.SeccompOptions{DenyInet: s.claim.DenyNetwork, DenyUnseen: s.setup.Memory > 0,
			DenySysV: s.setup.Mode != Isolated,
			// With a root of its own the box's mounts keep files that it must not change.
			DenyTruncate: s.setup.Mode != Isolated && facts.Landlock < confine.LandlockTruncate}); err != nil {
			return fail(control, stepError("filter system calls", err))
		}
	}
	if program >= 0 {
		_ = unix.Close(program)
	}
	close(i.closed)
	if e := <-ready; e != nil {
		return fail(control, e)
	}
	if err := sendOn(control, kindClaimed, facts); err != nil {
		return 0
	}
	return i.serve(in)
}

// restrict sets the resource limits that each process of the box inherits.
func restrict(s state) *StepError {
	limits := confine.RlimitSpec{
		NoFile: uint64(cmp.Or(s.setup.OpenFiles, DefaultOpenFiles)), FSize: uint64(cmp.Or(s.setup.FileSize, DefaultFileSize)),
		MemLock: 64 << 10,
	}
	if s.setup.Pids > 0 && s.setup.Mode == Isolated { // counted for each user namespace: without one, over all boxes
		limits.NProc = uint64(s.setup.Pids) + OwnThreads
	}
	if err := confine.Rlimits(limits); err != nil {
		return stepError("limit resources", err)
	}
	return nil
}

// OwnThreads is how many processes and threads a box may have beyond what its runs are allowed: a
// bomb must not take from init the thread that its runtime is about to make, which would end it.
const OwnThreads = usedThreads + 48

// usedThreads is at most what init uses; they count towards the limit of its runs.
const usedThreads = 16

// again drops the calling thread's rights and executes the program again, which leaves only this thread. It returns only on failure.
func again(control, program int, s state) *StepError {
	runtime.LockOSThread()
	if err := confine.DropCapabilitiesThread(); err != nil {
		return stepError("drop capabilities", err)
	}
	if err := confine.NoNewPrivsThread(); err != nil {
		return stepError("refuse new privileges", err)
	}
	fd, err := unix.MemfdCreate("state", 0)
	if err != nil {
		return stepError("keep the state", err)
	}
	w := writer{}
	s.encode(&w)
	if _, err := unix.Write(fd, w); err != nil {
		return stepError("keep the state", err)
	}
	// The program first: the numbers below may be in its way.
	high, err := unix.FcntlInt(uintptr(program), unix.F_DUPFD_CLOEXEC, 64) // a descriptor
	if err != nil {
		return stepError("execute again", err)
	}
	if fd != stateFD {
		if err := unix.Dup3(fd, stateFD, 0); err != nil {
			return stepError("keep the state", err)
		}
	}
	if control != controlFD {
		return stepError("execute again", errFrame)
	}
	if _, err := unix.FcntlInt(controlFD, unix.F_SETFD, 0); err != nil {
		return stepError("execute again", err)
	}
	name, err := unix.BytePtrFromString("")
	if err != nil {
		return stepError("execute again", err)
	}
	argv, err := syscall.SlicePtrFromStrings([]string{Name, partClosed})
	if err != nil {
		return stepError("execute again", err)
	}
	envv, err := syscall.SlicePtrFromStrings([]string{"GOMAXPROCS=2"})
	if err != nil {
		return stepError("execute again", err)
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(high), uintptr(unsafe.Pointer(name)), // a descriptor
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envv[0])), unix.AT_EMPTY_PATH, 0)
	return stepError("execute again", fmt.Errorf("%s: %w", Name, errno))
}

// newBootID returns 128 random bits in hex.
func newBootID() (string, error) {
	var b [16]byte
	if _, err := unix.Getrandom(b[:], 0); err != nil {
		return "", fmt.Errorf("random: %w", err)
	}
	return fmt.Sprintf("%x", b), nil
}

// shell returns the path of bash, or /bin/sh if there is none.
func shell() string {
	for _, path := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return "/bin/sh"
}
