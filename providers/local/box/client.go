//go:build linux

package box

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Config configures a spawner.
type Config struct {
	// Program is the path of the box binary.
	Program string
	// Workspaces is the directory that holds the workspaces.
	Workspaces string
	// Log gets the spawner's errors. Nil: no log.
	Log io.Writer
}

// Spawner is the worker's handle of its spawner, the process that clones boxes. Its methods are safe for concurrent use.
type Spawner struct {
	cmd  *exec.Cmd
	conn *conn
	gone chan struct{}

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan madeAnswer
	err     error // why no box can be made any more
}

type madeAnswer struct {
	madeFrame
	pidfd int
	err   error
}

// ErrSpawner says that the spawner is gone.
var ErrSpawner = errors.New("the spawner is gone")

// Launch starts a spawner. The caller closes it.
func Launch(c Config) (*Spawner, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	their := os.NewFile(uintptr(theirs), "spawner") // a descriptor
	defer their.Close()                             //nolint:errcheck // the spawner has its own
	s := &Spawner{gone: make(chan struct{}), waiting: map[uint64]chan madeAnswer{}}
	if s.conn, err = newConn(ours); err != nil {
		return nil, err
	}
	s.cmd = &exec.Cmd{
		Path: c.Program, Args: []string{Name, partSpawner}, Env: []string{"GOMAXPROCS=2"}, Dir: c.Workspaces,
		ExtraFiles: []*os.File{their}, Stderr: c.Log, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the spawner: %w", err), s.conn.close())
	}
	go s.listen()
	return s, nil
}

// Gone returns a channel that is closed when the spawner has ended. Boxes that it made continue.
func (s *Spawner) Gone() <-chan struct{} { return s.gone }

// Close ends the spawner and waits until it has exited. Boxes continue.
func (s *Spawner) Close() error {
	err := s.conn.close()
	<-s.gone
	return err
}

func (s *Spawner) listen() {
	defer close(s.gone)
	var err error
	for {
		var p packet
		if p, err = s.conn.receive(); err != nil {
			break
		}
		f, decodeErr := decodeMade(p.body)
		if p.kind != kindMade || decodeErr != nil || (f.Errno == 0) != (len(p.files) == 1) {
			p.close()
			err = errFrame
			break
		}
		a := madeAnswer{madeFrame: f, pidfd: -1}
		if f.Errno == 0 {
			a.pidfd = p.files[0]
		}
		s.mu.Lock()
		waiter := s.waiting[f.ID]
		delete(s.waiting, f.ID)
		s.mu.Unlock()
		if waiter == nil {
			p.close()
			continue
		}
		waiter <- a
	}
	s.mu.Lock()
	s.err = fmt.Errorf("%w: %w", ErrSpawner, err)
	for _, waiter := range s.waiting {
		waiter <- madeAnswer{err: s.err, pidfd: -1}
	}
	clear(s.waiting)
	s.mu.Unlock()
	_ = s.conn.close()
	_ = s.cmd.Wait() // it ends by itself, with or without a complaint on its error output
}

// Options describes the box that [Spawner.Make] clones.
type Options struct {
	Mode    Mode
	HostNet bool
	HostID  int // user and group on the host, where the worker is root
	Cgroup  int // descriptor of a version 2 group to be born in; 0: none
	// Tasks are the files of version 1 groups to be born in, see [confine.Cgroup.Tasks].
	Tasks []string
}

// Make clones a box, whose init then waits for [Box.BeginSetup]. The caller ends the box with [Box.Kill].
func (s *Spawner) Make(o Options) (*Box, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer unix.Close(theirs) //nolint:errcheck // init has its own
	b := &Box{gone: make(chan struct{}), ended: make(chan struct{}), ready: make(chan *StepError, 1),
		claimed: make(chan *StepError, 1), runs: map[uint64]*Run{}}
	if b.conn, err = newConn(ours); err != nil {
		return nil, err
	}
	answer := make(chan madeAnswer, 1)
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil, errors.Join(s.err, b.conn.close())
	}
	s.last++
	f := makeFrame{ID: s.last, Mode: o.Mode, HostNet: o.HostNet, HostID: o.HostID, Cgroup: o.Cgroup > 0, Tasks: o.Tasks}
	s.waiting[f.ID] = answer
	s.mu.Unlock()
	files := []int{theirs}
	if o.Cgroup > 0 {
		files = append(files, o.Cgroup)
	}
	if err := s.conn.send(kindMake, f, files...); err != nil {
		s.mu.Lock()
		delete(s.waiting, f.ID)
		s.mu.Unlock()
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrSpawner, err), b.conn.close())
	}
	a := <-answer
	if a.err != nil {
		return nil, errors.Join(a.err, b.conn.close())
	}
	if a.Errno != 0 {
		return nil, errors.Join(&StepError{Step: "clone", Errno: a.Errno, Text: a.Step}, b.conn.close())
	}
	b.pid, b.hostNet, b.mode = a.Pid, o.HostNet, o.Mode
	_ = unix.SetNonblock(a.pidfd, true)
	b.pidfd = os.NewFile(uintptr(a.pidfd), "pidfd")
	go b.listen()
	go b.await()
	return b, nil
}

// conn is a socket that is served by the runtime's network poller, so that many boxes do not need many threads.
type conn struct {
	file *os.File
	raw  syscall.RawConn
	in   receiver
}

// newConn makes a conn of fd and owns fd from then on, also on error.
func newConn(fd int) (*conn, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(fmt.Errorf("box: socket: %w", err), unix.Close(fd))
	}
	c := &conn{file: os.NewFile(uintptr(fd), "box")} // a descriptor
	var err error
	if c.raw, err = c.file.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("box: socket: %w", err), c.file.Close())
	}
	return c, nil
}

func (c *conn) close() error {
	err := c.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// receive blocks until a frame arrives. It is called from one goroutine only.
func (c *conn) receive() (p packet, err error) {
	rawErr := c.raw.Read(func(fd uintptr) bool {
		p, err = c.in.receive(int(fd), unix.MSG_DONTWAIT) // a descriptor
		return !errors.Is(err, unix.EAGAIN)
	})
	if rawErr != nil {
		return packet{}, rawErr
	}
	return p, err
}

// send blocks until the kernel has accepted the frame. It may be called concurrently.
func (c *conn) send(k kind, f encoder, files ...int) error {
	data, oob, extra, err := pack(k, f, files)
	if err != nil {
		return err
	}
	if extra >= 0 {
		defer unix.Close(extra) //nolint:errcheck // the other end has its own
	}
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for {
			err = unix.Sendmsg(int(fd), data, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) // a descriptor
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if rawErr != nil {
		return rawErr
	}
	return err
}
