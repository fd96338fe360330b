//go:build linux

package box

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// server is init after it has dropped its rights: it forks runs, reaps every process of the box and reports to the worker.
type server struct {
	control int
	state   state
	shell   string
	forks   chan fork
	closed  chan struct{} // the box is closed: nothing is forked before
	alone   bool          // only the forking thread has dropped its rights: the program is linked with cgo

	sending sync.Mutex

	mu    sync.Mutex
	woken *sync.Cond
	runs  map[int]*run // by process id of the leader
	last  uint64       // id of the last run
	count int          // forks so far
}

// run is a script that init has started.
type run struct {
	id   uint64
	pid  int
	tag  uint64
	oom  bool
	file string // its script, when that was too long for an argument
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

// serve handles frames from the worker until the worker closes the socket, then kills all runs. It returns the exit code.
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

// spareThreads makes the Go runtime create threads in advance: it could not when the box is full of processes.
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

// fork starts a run. It holds the lock that the reaper takes, so that the reaper cannot see the process before it is recorded. The process
// limits are set here because the forking thread is not allowed to.
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
	release() // a worker that learns of the start finds the pipes held by the run alone
	i.send(kindStarted, signalFrame{ID: r.id})
}

func (i *server) refuse(r *run, step string, err error) {
	if r.file != "" {
		_ = os.Remove(r.file)
	}
	e := stepError(step, err)
	e.ID = r.id
	i.send(kindRefused, e)
}
