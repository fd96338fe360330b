//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers/local/confine"
)

// server is init once the box is closed: it forks runs, reaps every process of the box and tells
// the worker.
type server struct {
	control int
	state   state
	shell   string
	forks   chan fork
	closed  chan struct{} // the box is closed: nothing is forked before
	alone   bool          // only the forking thread has given up its rights: the program is linked with cgo

	sending sync.Mutex

	mu    sync.Mutex
	woken *sync.Cond
	runs  map[int]*run // by process id of the leader
	last  uint64       // id of the last run
	count int          // forks so far
}

// run is a script that was started.
type run struct {
	id   uint64
	pid  int
	tag  uint64
	oom  bool
	file string // its script, when that was too long for an argument
}

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

// topTag is the first of the values by which the processes of a run are known: a limit on the time
// that real-time processes may have, of which a box has none. It is inherited, it can be lowered and
// never raised, so each run's is below the one's before. A process that lowers its own is killed with any run.
const topTag = 1 << 50

func newServer(control int, s state) *server {
	i := &server{control: control, state: s, forks: make(chan fork), closed: make(chan struct{}), runs: map[int]*run{}}
	i.woken = sync.NewCond(&i.mu)
	return i
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

// landlock is what a run may touch. With a root of its own it says again what the mounts say.
// Held is descriptors that the rules name: without a root of its own a workspace is a path that
// somebody may exchange for a link, so it is opened once, as a directory, and no name of it is used again.
func (i *server) landlock() (r confine.LandlockRules, held []int, err error) {
	if i.state.setup.Mode == Isolated {
		r.ReadOnly = []string{"/"}
		r.ReadWrite = []string{"/tmp", "/home", "/dev"}
	} else {
		r.ReadOnly = present("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/proc", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
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

// serve handles frames until the worker is gone, and then ends with the box.
func (i *server) serve(in *receiver) int {
	spareThreads()
	go i.reap()
	if i.state.setup.Memory > 0 {
		go i.watch()
	}
	defer i.killAll()
	for {
		p, err := in.receive(i.control, 0)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
				return 0
			}
			return 1
		}
		if err := i.handle(&p); err != nil {
			p.close()
			return 1
		}
	}
}

// spareThreads has the runtime make threads now, that it may not be able to make when the box is
// full of processes.
func spareThreads() {
	const n = 4
	var all sync.WaitGroup
	fds := make([]int, 2)
	if err := unix.Pipe2(fds, unix.O_CLOEXEC); err != nil {
		return
	}
	for range n {
		all.Go(func() {
			var b [1]byte
			_, _ = unix.Read(fds[0], b[:]) // ends when the pipe is closed
		})
	}
	_ = unix.Close(fds[1])
	all.Wait()
	_ = unix.Close(fds[0])
}

func (i *server) handle(p *packet) error {
	switch p.kind {
	case kindExec:
		e, err := decodeExec(p.body)
		if err != nil || len(p.files) != 3 || e.ID <= i.last || e.ID >= topTag { // a tag cannot be raised
			return errFrame
		}
		i.mu.Lock()
		i.last = e.ID
		i.mu.Unlock()
		i.fork(fork{exec: e, files: p.files, done: make(chan forked, 1)})
	case kindSignal:
		f, err := decodeSignal(p.body)
		if err != nil || len(p.files) != 0 || f.Signal < 0 || f.Signal > 64 {
			return errFrame
		}
		i.signal(f)
	case kindKill:
		f, err := decodeKill(p.body)
		if err != nil || len(p.files) != 0 || f.Moment < 0 {
			return errFrame
		}
		go i.kill(f)
	default:
		return errFrame
	}
	return nil
}

func (i *server) send(k kind, f encoder) {
	i.sending.Lock()
	defer i.sending.Unlock()
	_ = sendOn(i.control, k, f) // a worker that is gone is noticed when receiving
}

// longestArgument is the longest script that is passed as an argument.
const longestArgument = 64 << 10

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

// fork starts a run. The reaper cannot see it before it is known: both hold the lock. Limits are those of the
// process, and are set here: the thread that forks may not.
func (i *server) fork(f fork) {
	release := func() {
		for _, fd := range f.files {
			_ = unix.Close(fd)
		}
		f.files = nil
	}
	defer release()
	r := &run{id: f.exec.ID, tag: topTag - f.exec.ID}
	i.mu.Lock()
	defer i.mu.Unlock()
	limit := &syscall.Rlimit{Cur: r.tag, Max: r.tag}
	if err := syscall.Setrlimit(unix.RLIMIT_RTTIME, limit); err != nil {
		i.refuse(r, "mark the run", err)
		return
	}
	raise := i.lowerProcesses() // born under the limit: a bomb may be faster than limitProcesses
	if f.exec.Frugal {
		signal.Ignore(unix.SIGXFSZ) // so that a write fails, and what writes may say so
	}
	i.forks <- f
	born := <-f.done
	raise()
	if f.exec.Frugal {
		signal.Reset(unix.SIGXFSZ)
		if born.err == nil {
			born.err = denyWrites(born.pid)
			born.step = "keep the run from writing"
		}
	}
	r.file = born.file
	if born.err != nil {
		i.refuse(r, born.step, born.err)
		return
	}
	pid := born.pid
	if err := i.limitProcesses(pid); err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // it is the next to be reaped
	}
	r.pid = pid
	i.runs[pid] = r
	i.count++
	i.woken.Broadcast()
	release() // whoever hears of the start finds the pipes with nobody but the run
	i.send(kindStarted, signalFrame{ID: r.id})
}

// denyWrites keeps a run and all that it starts from making any file longer or writing to one, before its shell has read
// the script. What is not there to be written to can be neither raised nor set anew by the run.
func denyWrites(pid int) error {
	err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil)
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	_ = unix.Kill(pid, unix.SIGKILL) // it is reaped with the others
	return err
}

// lowerProcesses lowers the soft limit that a child inherits, and returns what raises init's again.
func (i *server) lowerProcesses() (raise func()) {
	var own unix.Rlimit
	most := uint64(i.state.setup.Pids) + usedThreads
	if i.state.setup.Pids <= 0 || i.state.setup.Mode != Isolated || unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &own) != nil || own.Cur <= most {
		return func() {}
	}
	if unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: own.Max}, nil) != nil {
		return func() {}
	}
	return func() { _ = unix.Prlimit(0, unix.RLIMIT_NPROC, &own, nil) } // to what it was: that is never refused
}

// limitProcesses gives a run a lower limit on processes and threads than init has, whose runtime ends
// the process when it cannot make a thread. Until it is in force, which is before a shell has read its script,
// init's own limit is.
func (i *server) limitProcesses(pid int) error {
	if i.state.setup.Pids <= 0 || i.state.setup.Mode != Isolated {
		return nil
	}
	most := uint64(i.state.setup.Pids) + usedThreads
	err := unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: most, Max: most}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended already
	}
	return err
}

// StepDir is the step that fails when there is no working directory.
const StepDir = "enter the working directory"

func (i *server) refuse(r *run, step string, err error) {
	if r.file != "" {
		_ = os.Remove(r.file)
	}
	e := stepError(step, err)
	e.ID = r.id
	i.send(kindRefused, e)
}

// reap waits for every process of the box. It is the only one that waits.
func (i *server) reap() {
	seen := 0
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		i.mu.Lock()
		if errors.Is(err, unix.ECHILD) {
			for i.count == seen {
				i.woken.Wait()
			}
			seen = i.count
		}
		r := i.runs[pid]
		if err == nil && r != nil {
			delete(i.runs, pid)
		}
		i.mu.Unlock()
		if err == nil && r != nil {
			if r.file != "" {
				_ = os.Remove(r.file)
			}
			i.send(kindExit, Exit{ID: r.id, Status: exitStatus(status), Left: i.left(), OOM: r.oom})
		}
	}
}

func exitStatus(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// left reports whether there may be other processes in the box.
func (i *server) left() bool {
	if i.state.setup.Mode != Isolated {
		return true
	}
	return unix.Kill(-1, 0) == nil
}

// signal sends a signal to the group of a run that has not ended.
func (i *server) signal(f signalFrame) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for pid, r := range i.runs { // its number cannot be another's: it is not reaped while we hold the lock
		if r.id == f.ID {
			_ = unix.Kill(-pid, unix.Signal(f.Signal)) // it may have ended just now
		}
	}
}

// quietLooks is how often in a row nothing is found before nothing is left: who was born during a look, of a
// parent that ended in it, is not seen by that look.
const quietLooks = 3

// kill kills all that a run started, wherever it went, and says so when nothing of it is left.
func (i *server) kill(f killFrame) {
	leader := 0
	i.mu.Lock()
	for pid, r := range i.runs {
		if r.id == f.ID {
			leader = pid
		}
	}
	i.mu.Unlock()
	tag := topTag - f.ID
	its := func(t uint64) bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return t == tag || t < topTag-i.last // asked each time: a run may begin meanwhile, and its tag is lower
	}
	i.linger(its, time.Duration(f.Moment)*time.Millisecond)
	killed := map[int]struct{}{}
	for quiet := 0; quiet < quietLooks; {
		found := i.killThose(its)
		if len(found) == 0 {
			quiet++
			continue
		}
		quiet = 0
		for _, pid := range found {
			killed[pid] = struct{}{}
		}
		time.Sleep(time.Millisecond) // they are dying: nothing to hear of, they are not all our children
	}
	delete(killed, leader)
	i.send(kindKilled, killedFrame{ID: f.ID, Killed: len(killed)})
}

// linger waits a moment for processes to end by themselves.
func (i *server) linger(meant func(tag uint64) bool, moment time.Duration) {
	end := time.Now().Add(moment)
	for pause := time.Millisecond; time.Now().Before(end) && len(i.those(meant)) > 0; pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(min(pause, time.Until(end)))
	}
}

// killAll kills everything that runs started. A box with its own process numbers needs none of it:
// they end with process 1.
func (i *server) killAll() {
	if i.state.setup.Mode == Isolated {
		return
	}
	quiet := 0
	for range 2000 {
		if len(i.killThose(func(uint64) bool { return true })) > 0 {
			quiet = 0
		} else if quiet++; quiet == quietLooks {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// watch is the limit on memory where no cgroup keeps it. It rests while nothing runs.
func (i *server) watch() {
	w := confine.Watchdog{Limit: i.state.setup.Memory}
	if i.state.setup.Mode != Isolated {
		w.Root = os.Getpid()
	} else {
		w.Mounts = []string{"/tmp", "/home", "/dev/shm"}
	}
	seen := 0
	for {
		i.mu.Lock()
		for i.count == seen && len(i.runs) == 0 && !i.left() {
			i.woken.Wait()
		}
		seen = i.count
		i.mu.Unlock()
		if w.Used() > w.Limit {
			i.mu.Lock()
			for _, r := range i.runs {
				r.oom = true
			}
			i.mu.Unlock()
			i.killThose(func(uint64) bool { return true })
		}
		time.Sleep(100 * time.Millisecond)
	}
}
