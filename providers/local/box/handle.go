//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Box is the worker's handle of a box. Its methods are safe for concurrent use.
type Box struct {
	conn    *conn
	pid     int
	pidfd   *os.File
	mode    Mode
	hostNet bool
	gone    chan struct{} // all its processes are gone
	ended   chan struct{} // no further message of it arrives
	ready   chan *StepError
	claimed chan *StepError
	facts   Facts // set before claimed

	mu     sync.Mutex
	last   uint64
	runs   map[uint64]*Run
	over   bool
	cause  error // why it ended by itself
	relay  bool  // it was asked for sockets
	inside Inside

	sending sync.Mutex // the order of ids is the order of frames
}

// Run is the worker's handle of a run in a box.
type Run struct {
	box     *Box
	id      uint64
	started chan *StepError // nil: it runs
	ended   chan struct{}
	killed  chan struct{}
	exit    Exit
	lost    bool
	left    int // set before killed
}

// ErrEnded says that the box has ended.
var ErrEnded = errors.New("the box has ended")

// Pid returns the process id of the box's process 1, in the worker's pid namespace.
func (b *Box) Pid() int { return b.pid }

// Inside holds the sockets in the network namespace of a box with a relay.
type Inside struct {
	// TCP are listeners. The local address of their connections is the one that the box wanted to reach.
	TCP []*os.File
	// DNS is the UDP socket for questions for names, bound to all addresses.
	DNS *os.File
}

// Close closes the sockets that were not taken.
func (i *Inside) Close() {
	for _, f := range i.TCP {
		_ = f.Close()
	}
	if i.DNS != nil {
		_ = i.DNS.Close()
	}
	*i = Inside{}
}

// Inside returns the sockets of the box's network, which the caller then closes; a second call returns none. It is valid after Ready or a
// successful Claimed.
func (b *Box) Inside() Inside {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.inside
	b.inside = Inside{}
	return taken
}

// keepInside stores the sockets of a packet. It checks their number, because the box is not trusted.
func (b *Box) keepInside(p *packet) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(p.body) != 0 || b.inside.DNS != nil || !b.relay && len(p.files) > 0 || b.relay && len(p.files) < 2:
		return errFrame
	case !b.relay:
		return nil
	}
	for i, fd := range p.files {
		file := os.NewFile(uintptr(fd), "inside") // a descriptor
		if i == len(p.files)-1 {
			b.inside.DNS = file
		} else {
			b.inside.TCP = append(b.inside.TCP, file)
		}
	}
	p.files = nil
	return nil
}

// Facts returns what init found out about the host. It is valid after a successful Claimed.
func (b *Box) Facts() Facts { return b.facts }

// Gone returns a channel that is closed when no process of the box is left.
func (b *Box) Gone() <-chan struct{} { return b.gone }

// Ended returns a channel that is closed when the connection to the box has ended: no further message arrives or is accepted.
func (b *Box) Ended() <-chan struct{} { return b.ended }

// BeginSetup makes init build the box's view of files, without waiting; [Box.Ready] waits for it.
func (b *Box) BeginSetup(s Setup) error {
	s.Mode, s.HostNet = b.mode, b.hostNet
	b.mu.Lock()
	b.relay = s.Relay
	b.mu.Unlock()
	return b.said(b.conn.send(kindSetup, s))
}

// Ready waits until the view is built, and returns the step that failed. It is called once.
func (b *Box) Ready() error { return b.answer(b.ready) }

// BeginClaim mounts the box's workspaces and makes init drop its rights, without waiting; [Box.Claimed] waits for it.
func (b *Box) BeginClaim(c Claim) error { return b.said(b.conn.send(kindClaim, c)) }

// Claimed waits until init has mounted the claimed files and dropped its rights, and returns the step that failed. It is called once.
func (b *Box) Claimed() error { return b.answer(b.claimed) }

func (b *Box) answer(c <-chan *StepError) error {
	var e *StepError
	select {
	case e = <-c:
	case <-b.ended:
		select { // an answer that came before the end counts
		case e = <-c:
		default:
			return b.why()
		}
	}
	if e != nil {
		return e
	}
	return nil
}

// why returns ErrEnded, with the cause if one is known.
func (b *Box) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil {
		return fmt.Errorf("%w: %w", ErrEnded, b.cause)
	}
	return ErrEnded
}

// said translates an error of sending: it waits for the end of the box and returns the reason. Nil stays nil.
func (b *Box) said(err error) error {
	if err == nil {
		return nil
	}
	<-b.ended
	return b.why()
}

// Start starts a run with these standard descriptors, which the caller still closes. It sets e.ID itself.
func (b *Box) Start(e Exec, stdin, stdout, stderr int) (*Run, error) {
	r, err := b.Begin(e, stdin, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return r, r.Started()
}

// Begin is Start without waiting for the run to start: see [Run.Started].
func (b *Box) Begin(e Exec, stdin, stdout, stderr int) (*Run, error) {
	r := &Run{box: b, started: make(chan *StepError, 1), ended: make(chan struct{}), killed: make(chan struct{})}
	b.sending.Lock()
	defer b.sending.Unlock()
	b.mu.Lock()
	if b.over {
		b.mu.Unlock()
		return nil, b.why()
	}
	b.last++
	r.id, e.ID = b.last, b.last
	b.runs[r.id] = r
	b.mu.Unlock()
	if err := b.conn.send(kindExec, e, stdin, stdout, stderr); err != nil {
		b.mu.Lock()
		delete(b.runs, r.id)
		b.mu.Unlock()
		return nil, b.said(err)
	}
	return r, nil
}

// Started waits until the run has started, and returns the reason if it could not. It is called once.
func (r *Run) Started() error { return r.box.answer(r.started) }

// Ended returns a channel that is closed when the run's first process or the whole box has ended.
func (r *Run) Ended() <-chan struct{} { return r.ended }

// Exit returns how the run ended; ok is false if the box ended first. It is valid after Ended.
func (r *Run) Exit() (e Exit, ok bool) { return r.exit, !r.lost }

// Signal sends a signal to the run's process group.
func (r *Run) Signal(s unix.Signal) error {
	return r.box.said(r.box.conn.send(kindSignal, signalFrame{ID: r.id, Signal: int(s)}))
}

// BeginKill asks init to kill all processes that the run started, after a delay in which they may end by themselves (whole milliseconds,
// at most an hour). [Run.Killed] is closed when none is left. A further call may shorten the delay.
func (r *Run) BeginKill(moment time.Duration) error {
	ms := min(max(moment, 0), time.Hour) / time.Millisecond
	return r.box.said(r.box.conn.send(kindKill, killFrame{ID: r.id, Moment: int(ms)}))
}

// Killed returns a channel that is closed when no process is left of a run after BeginKill, or when the box has ended.
func (r *Run) Killed() <-chan struct{} { return r.killed }

// Left returns how many processes, besides the run's first, had to be killed. It is valid after Killed.
func (r *Run) Left() int { return r.left }

// Forget drops the worker's record of a run. No message about it is delivered afterwards.
func (r *Run) Forget() {
	r.box.mu.Lock()
	delete(r.box.runs, r.id)
	r.box.mu.Unlock()
}

// Kill kills the box with all its processes. It does not wait: see [Box.Gone].
func (b *Box) Kill() {
	if b.mode == Isolated {
		if raw, err := b.pidfd.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }) // a descriptor
		}
	}
	// Without process numbers of its own init kills what is below it, when it finds this process gone.
	_ = b.conn.close()
}

// await waits until process 1 has ended, which is after all other processes of the box, and then closes gone.
func (b *Box) await() {
	defer close(b.gone)
	defer b.pidfd.Close() //nolint:errcheck // nothing to lose
	raw, err := b.pidfd.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} // a descriptor
		n, err := unix.Poll(poll, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	_ = b.conn.close()
}

func (b *Box) listen() {
	var err error
	for err == nil {
		var p packet
		if p, err = b.conn.receive(); err == nil {
			err = b.handle(&p)
			p.close()
		}
	}
	_ = b.conn.close()
	b.mu.Lock()
	b.over = true
	for _, r := range b.runs {
		select {
		case <-r.ended:
		default:
			r.lost = true
			close(r.ended)
		}
		select {
		case <-r.killed:
		default:
			close(r.killed)
		}
	}
	clear(b.runs)
	b.inside.Close()
	b.mu.Unlock()
	close(b.ended)
}

// handle processes a frame from the box. The box is not trusted: an invalid frame ends it.
func (b *Box) handle(p *packet) error {
	switch p.kind {
	case kindReady:
		if err := b.keepInside(p); err != nil {
			return b.broken(err)
		}
		return offer(b.ready, nil)
	case kindClaimed:
		f, err := decodeFacts(p.body)
		if err != nil {
			return b.broken(err)
		}
		b.facts = f
		return offer(b.claimed, nil)
	case kindFailed:
		e, err := decodeStepError(p.body)
		if err != nil {
			return b.broken(err)
		}
		return b.broken(e)
	case kindStarted:
		f, err := decodeSignal(p.body)
		if err != nil {
			return b.broken(err)
		}
		if r := b.run(f.ID); r != nil {
			return offer(r.started, nil)
		}
	case kindRefused:
		e, err := decodeStepError(p.body)
		if err != nil {
			return b.broken(err)
		}
		if r := b.run(e.ID); r != nil {
			return offer(r.started, e)
		}
	case kindExit:
		e, err := decodeExit(p.body)
		if err != nil {
			return b.broken(err)
		}
		if r := b.run(e.ID); r != nil {
			select {
			case <-r.ended:
				return b.broken(errFrame)
			default:
			}
			r.exit = e
			close(r.ended)
		}
	case kindKilled:
		f, err := decodeKilled(p.body)
		if err != nil {
			return b.broken(err)
		}
		if r := b.run(f.ID); r != nil {
			select {
			case <-r.killed:
			default:
				r.left = f.Killed
				close(r.killed)
			}
		}
	default:
		return b.broken(errFrame)
	}
	return nil
}

// broken records err as the reason why the box can no longer be used, and returns it.
func (b *Box) broken(err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = err
	return err
}

func (b *Box) run(id uint64) *Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[id]
}

// offer sends the one answer that c has room for. A second answer is errFrame.
func offer(c chan<- *StepError, e *StepError) error {
	select {
	case c <- e:
		return nil
	default:
		return errFrame
	}
}
