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

// fork is a request to the forking thread to start a run.
type fork struct {
	exec  Exec
	files []int
	done  chan forked
}

// forked is the forking thread's answer to a fork.
type forked struct {
	pid  int
	file string // its script, when that was too long for an argument
	step string // that failed
	err  error
}

// forker restricts the calling thread, which all runs are forked from, sends the result on ready (nil: success) and then serves fork
// requests.
//
// Landlock applies to this thread only. Init's other threads run nothing of the box, and without landlock they may signal and inspect
// every run. The forking thread must not be the main thread, whose id is the process id that the box sees: a run could signal that.
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

// dropRights drops all capabilities of every thread, and sets no_new_privs so that none can be regained. The forking thread's bounding set
// is emptied first; the calls for all threads are few then.
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

// landlock returns the rules for the files that a run may use. In a box with a root of its own they repeat what the mounts allow. Held are
// the open descriptors that the rules refer to: without a root of its own the box sees a workspace by a host path, which another process
// could replace by a symbolic link, so the directory is opened once and never named again.
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

// present returns those of the paths that exist on the host.
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

// exec starts the shell of a run. It is called on the forking thread, which has the rights of a run: exec can open no file by name that
// the run could not open.
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
