//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// fork is a wish of the main loop to the thread that forks.
type fork struct {
	exec  Exec
	files []int
	done  chan forked
}

// forked is the answer.
type forked struct {
	pid  int
	file string // its script, when that was too long for an argument
	step string // that failed
	err  error
}

// forker closes the thread that all runs come from, says so on ready, and forks. Landlock is of a
// thread, and init's other threads need no part in it: nothing of the box runs in them, and without it they
// may signal and look into every run. For the same reason it must not be the thread that the box sees
// as the process: a run could signal that.
func (i *server) forker(ready chan<- *StepError, facts *Facts) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go i.forker(ready, facts)
		select {}
	}
	i.shell = facts.Shell
	if i.state.setup.Mode != Bare {
		if err := i.dropRights(); err != nil {
			ready <- err
			return
		}
		rules, held, err := i.landlock()
		if err != nil {
			ready <- stepError("hold the workspace", err)
			return
		}
		rules.MaxABI = i.state.setup.MaxABI
		abi, err := confine.LandlockThread(rules)
		for _, fd := range held {
			_ = unix.Close(fd) // the rules hold what they name
		}
		if err != nil {
			ready <- stepError("restrict files", err)
			return
		}
		if abi == 0 && i.state.setup.Mode == Landlocked {
			ready <- stepError("restrict files", fmt.Errorf("the kernel has no landlock: %w", unix.EOPNOTSUPP))
			return
		}
		facts.Landlock = abi
	}
	ready <- nil
	<-i.closed
	if i.state.setup.Mode != Bare { // what marks a run must not be in its hands
		if err := confine.SeccompLimitsThread(); err != nil {
			ready <- stepError("keep the marks of runs", err)
			return
		}
	}
	ready <- nil
	for f := range i.forks {
		f.done <- i.exec(f)
	}
}

// dropRights takes all capabilities and the way to new ones from every thread. The forking thread's
// bounding set goes first: with it the calls for all threads are few.
func (i *server) dropRights() *StepError {
	if err := confine.DropCapabilitiesThread(); err != nil {
		return stepError("drop capabilities", err)
	}
	if err := confine.NoNewPrivsThread(); err != nil {
		return stepError("refuse new privileges", err)
	}
	err := confine.DropCapabilities()
	if errors.Is(err, confine.ErrCgo) {
		i.alone = true
		return nil
	}
	if err != nil {
		return stepError("drop capabilities", err)
	}
	if err := confine.NoNewPrivs(); err != nil {
		return stepError("refuse new privileges", err)
	}
	return nil
}

// landlock is what a run may touch. With a root of its own it says again what the mounts say. Held is descriptors that the rules name:
// without a root of its own a workspace is a path that another process may exchange for a link, so it is opened once, as a directory, and
// no name of it is used again.
func (i *server) landlock() (r confine.LandlockRules, held []int, err error) {
	if i.state.setup.Mode == Isolated {
		r.ReadOnly = []string{"/"}
		r.ReadWrite = []string{"/tmp", "/home", "/dev"}
	} else {
		r.ReadOnly = present("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/dev/zero", "/dev/full",
			"/dev/random", "/dev/urandom")
		for _, name := range etcShown() {
			r.ReadOnly = append(r.ReadOnly, present("/etc/"+name)...)
		}
		r.ReadOnly = append(r.ReadOnly, present("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts")...)
		if !i.state.claim.DenyNetwork {
			r.ReadOnly = append(r.ReadOnly, present("/etc/resolv.conf")...)
		}
		r.ReadWrite = append(present("/dev/null", "/dev/tty"), i.state.claim.TempDir)
	}
	for _, m := range i.state.claim.Mounts {
		path := filepath.Join(workspacesDir, m.Name)
		if i.state.setup.Mode != Isolated { // below the working directory
			fd, err := unix.Open(m.Name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err != nil {
				return r, held, err
			}
			held = append(held, fd)
			path = "/proc/self/fd/" + strconv.Itoa(fd)
		}
		if m.ReadOnly {
			r.ReadOnly = append(r.ReadOnly, path)
		} else {
			r.ReadWrite = append(r.ReadWrite, path)
		}
	}
	return r, held, nil
}

// present leaves out what the host does not have.
func present(paths ...string) []string {
	var there []string
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			there = append(there, p)
		}
	}
	return there
}

// longestArgument is the longest script that is passed as an argument.
const longestArgument = 64 << 10

// StepDir is the step that fails when there is no working directory.
const StepDir = "enter the working directory"

// exec forks, on the thread whose rights runs have: what it opens by name, a run could have opened.
func (i *server) exec(f fork) forked {
	born := forked{step: "start the shell"}
	args := []string{filepath.Base(i.shell), "-c", "--", f.exec.Script}
	if len(f.exec.Script) > longestArgument {
		dir := scriptsDir
		if i.state.setup.Mode != Isolated {
			dir = i.state.claim.TempDir
		}
		born.file = filepath.Join(dir, "script-"+strconv.FormatUint(f.exec.ID, 10))
		if err := os.WriteFile(born.file, []byte(f.exec.Script), 0o600); err != nil {
			born.step, born.err = "store the script", err
			return born
		}
		args = []string{filepath.Base(i.shell), "--", born.file}
	}
	born.pid, born.err = syscall.ForkExec(i.shell, args, &syscall.ProcAttr{
		Dir:   f.exec.Dir,
		Env:   f.exec.Env,
		Files: []uintptr{uintptr(f.files[0]), uintptr(f.files[1]), uintptr(f.files[2])}, // descriptors
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if errors.Is(born.err, unix.ENOENT) || errors.Is(born.err, unix.ENOTDIR) || errors.Is(born.err, unix.EACCES) {
		var st unix.Stat_t
		if unix.Stat(f.exec.Dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || unix.Access(f.exec.Dir, unix.X_OK) != nil {
			born.step = StepDir
		}
	}
	return born
}
