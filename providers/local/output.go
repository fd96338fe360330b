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

// output holds the standard files of a run and copies its output.
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

// newOutput makes the pipes of a run. The caller calls close.
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

// pipe returns the two ends of a blocking pipe, closed on exec. It belongs to the user owner unless that is 0, so that the run can open it
// again as /dev/stdout.
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

// nonblocking makes fd nonblocking and returns it as a file, which then owns it.
func nonblocking(fd int) *os.File {
	_ = unix.SetNonblock(fd, true) // a pipe can always
	return os.NewFile(uintptr(fd), "pipe")
}

// begin closes this process's copies of the run's ends, writes the input and starts to copy the output.
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

// stdinFD returns the run's standard input; /dev/null without input.
func (o *output) stdinFD() int {
	if o.stdin >= 0 {
		return o.stdin
	}
	return int(o.p.null.Fd())
}

// read copies stream i until its end. After finish(false) it copies only the bytes that are already in the pipe.
func (o *output) read(i int) {
	buf, _ := o.p.buffers.Get().(*[schemas.MaxChunk]byte)
	defer o.p.buffers.Put(buf)
	copyPipe(o.streams[i].ours, buf[:], func(data []byte) { o.take(i, data) })
}

// copyPipe passes the data of a pipe to take until the pipe's end. When the read deadline passes, it passes on the bytes already in the
// pipe and returns.
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

// drainPipe passes on the bytes in the pipe without waiting for more, at most what a pipe can hold: a process that still writes in a kept
// box must not occupy it forever.
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

// take processes a piece of output of stream i: it delivers and keeps it.
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

// finish returns when all output has been delivered. With whole it waits for the ends of the streams, which needs that no process still
// has them open.
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

// close closes all open pipes. It may be called more than once.
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
