//go:build linux

package local

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/schemas"
)

// output is the standard files of a run and what comes out of them.
type output struct {
	p       *boxes
	want    func(providers.Chunk)
	streams [2]stream // stdout, stderr
	stdin   int       // the run's ends, closed by begin
	theirs  [2]int
	input   *os.File // our end; nil without input
	readers sync.WaitGroup
	feeder  sync.WaitGroup

	taking sync.Mutex     // what comes of the streams is handed over one piece at a time
	spill  *capture.Spill // where the whole output goes when it is too long to keep; nil: nowhere
	spills bool           // it does
}

type stream struct {
	ours *os.File
	kept *capture.Excerpt
}

// newOutput makes the pipes. The caller closes the output.
func newOutput(p *boxes, cmd providers.Command) (*output, error) {
	limit := cmd.OutputLimit
	if limit <= 0 {
		limit = schemas.DefaultOutputLimit
	}
	o := &output{p: p, want: cmd.Output, stdin: -1, theirs: [2]int{-1, -1}}
	if len(cmd.Mounts) > 0 && !cmd.Mounts[0].ReadOnly {
		o.spill = &capture.Spill{Dir: p.workspace(cmd.Mounts[0].Namespace), Owner: p.hostID(cmd.Spec.Account)}
	}
	for i := range o.streams {
		r, w, err := pipe(p.hostID(cmd.Spec.Account))
		if err != nil {
			o.close()
			return nil, err
		}
		o.streams[i] = stream{ours: nonblocking(r), kept: capture.NewExcerpt(limit)}
		o.theirs[i] = w
	}
	if len(cmd.Stdin) == 0 {
		return o, nil
	}
	r, w, err := pipe(p.hostID(cmd.Spec.Account))
	if err != nil {
		o.close()
		return nil, err
	}
	o.stdin, o.input = r, nonblocking(w)
	return o, nil
}

// pipe returns the ends of a pipe, closed on exec and blocking: one is for another process. It belongs to owner, unless 0, who then can
// open it again as /dev/stdout.
func pipe(owner int) (r, w int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("pipe: %w", err)
	}
	if owner > 0 {
		if err := unix.Fchown(fds[0], owner, owner); err != nil {
			return -1, -1, errors.Join(fmt.Errorf("give pipe away: %w", err), unix.Close(fds[0]), unix.Close(fds[1]))
		}
	}
	return fds[0], fds[1], nil
}

// nonblocking takes fd over for our own use.
func nonblocking(fd int) *os.File {
	_ = unix.SetNonblock(fd, true) // a pipe can always
	return os.NewFile(uintptr(fd), "pipe")
}

// begin closes the run's ends here and starts to copy.
func (o *output) begin(input []byte) {
	o.release()
	if o.input != nil {
		o.feeder.Go(func() {
			_, _ = o.input.Write(input) // a command need not read all of it
			_ = o.input.Close()
		})
	}
	for i := range o.streams {
		o.readers.Go(func() { o.read(i) })
	}
}

func (o *output) release() {
	for _, fd := range []*int{&o.stdin, &o.theirs[0], &o.theirs[1]} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}

// stdinFD is the run's standard input.
func (o *output) stdinFD() int {
	if o.stdin >= 0 {
		return o.stdin
	}
	return int(o.p.null.Fd())
}

// read copies until the end of the stream, or until finish and then what is there already.
func (o *output) read(i int) {
	buf, _ := o.p.buffers.Get().(*[schemas.MaxChunk]byte)
	defer o.p.buffers.Put(buf)
	copyPipe(o.streams[i].ours, buf[:], func(data []byte) { o.take(i, data) })
}

// copyPipe hands over what comes through a pipe until its end. When its time to read is over, what is
// there already is the last.
func copyPipe(pipe *os.File, buf []byte, take func([]byte)) {
	for {
		n, err := pipe.Read(buf)
		take(buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			drainPipe(pipe, buf, take)
			return
		case err != nil:
			return
		}
	}
}

// drainPipe takes what lies in the pipe without waiting for more, and at most what a pipe can hold: a
// process that is left in a kept box must not keep us.
func drainPipe(pipe *os.File, buf []byte, take func([]byte)) {
	_ = pipe.SetReadDeadline(time.Time{})
	raw, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	for total, more := 0, true; more && total < 1<<20; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf)
			return true
		})
		more = err == nil && n > 0
		total += max(n, 0)
		take(buf[:max(n, 0)])
	}
}

// take hands a piece over.
func (o *output) take(i int, data []byte) {
	if len(data) == 0 {
		return
	}
	o.taking.Lock()
	defer o.taking.Unlock()
	s := &o.streams[i]
	if o.spill != nil && !o.spills && s.kept.Total()+int64(len(data)) > s.kept.Limit() {
		o.spills = true
		o.spill.Add(o.streams[0].kept.Bytes()) // all there was: neither is cut yet
		o.spill.Add(o.streams[1].kept.Bytes())
	}
	if o.spills {
		o.spill.Add(data)
	}
	s.kept.Add(data)
	if o.want != nil {
		o.want(providers.Chunk{Stderr: i == 1, Data: data})
	}
}

// finish returns when all output was handed over. Whole waits for the ends of the streams; no process may be left then that holds them.
func (o *output) finish(whole bool) {
	if !whole {
		for i := range o.streams {
			_ = o.streams[i].ours.SetReadDeadline(time.Now())
		}
	}
	o.readers.Wait()
	o.close()
	o.feeder.Wait()
}

// close closes what is open. It may be called more than once.
func (o *output) close() {
	o.release()
	for i := range o.streams {
		if o.streams[i].ours != nil {
			_ = o.streams[i].ours.Close()
		}
	}
	if o.input != nil {
		_ = o.input.Close()
	}
	if o.spill != nil {
		o.spill.Close()
	}
}

func (o *output) fill(res *providers.Result) {
	stdout, stderr := o.streams[0].kept, o.streams[1].kept
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	res.StdoutBytes, res.StderrBytes = stdout.Total(), stderr.Total()
	res.Truncated = stdout.Truncated() || stderr.Truncated()
	if o.spills {
		name, err := o.spill.Done()
		if err != nil {
			o.p.log.Warn("full output of a run not stored", "error", err)
		}
		res.FullOutput = name
	}
}
