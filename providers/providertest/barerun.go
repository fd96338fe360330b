//go:build unix

package providertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/internal/capture"
	"github.com/sandjet/sandjet/schemas"
)

// Run runs cmd with bash.
func (b *Bare) Run(ctx context.Context, cmd providers.Command) (res providers.Result, err error) {
	res.Runtime = "bare/" + bareLevel
	res.Isolation = &schemas.Isolation{Level: bareLevel}
	if err := ctx.Err(); err != nil {
		return res, err
	}
	if err := refuse(cmd.Spec, cmd.Network); err != nil {
		return res, err
	}
	box, done, err := b.box(cmd)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, done()) }()
	res.Sandbox = box.ref
	dir, err := b.workingDir(cmd, box)
	if err != nil {
		return res, err
	}
	args, err := b.script(cmd, box)
	if err != nil {
		return res, err
	}
	child := exec.Command("bash", args...) //nolint:noctx // ending it is our own work
	mark := box.mark() + rand.Text() + "/"
	child.Dir, child.Env = dir, box.environment(cmd, mark)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return carryOut(ctx, cmd, box, child, mark, res)
}

// carryOut starts child, waits for it to exit and collects its output.
func carryOut(ctx context.Context, cmd providers.Command, box *bareBox, child *exec.Cmd, mark string,
	res providers.Result) (providers.Result, error) {
	if err := cmd.MayBegin(); err != nil {
		return res, err
	}
	out := newCollector(cmd)
	stdin, err := out.connect(child, cmd.Stdin)
	if err != nil {
		return res, schemas.Wrap(schemas.Unavailable, "run", "no pipe for the command", err)
	}
	began := time.Now()
	if err := child.Start(); err != nil {
		out.abandon()
		return res, schemas.Wrap(schemas.Unavailable, "run", "bash cannot be started", err)
	}
	res.Started = true
	out.begin(stdin, cmd.Stdin)

	ended := make(chan struct{})
	go func() {
		_ = child.Wait() // the state says it all
		close(ended)
	}()
	cause := await(ctx, cmd, box, child, mark, ended)
	if cmd.Sandbox.IsZero() { // what is left of a fresh box is over with it, and lets go of the pipes
		err = killMarked(box.mark())
	}
	out.finish()

	res.Duration = time.Since(began)
	out.fill(&res)
	res.ExitCode = exitCode(child.ProcessState)
	switch {
	case errors.Is(cause, providers.ErrTimeout):
		res.TimedOut, res.ExitCode = true, 124
		return res, err
	case cause != nil:
		return res, cause
	default:
		return res, err
	}
}

// await waits until the command has ended. It returns nil if it ended by itself, otherwise why it was ended.
func await(ctx context.Context, cmd providers.Command, box *bareBox, child *exec.Cmd, mark string, ended <-chan struct{}) error {
	inBox, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(box.gone, leave)()
	cause := providers.Await(inBox, cmd, ended, func() error { return syscall.Kill(-child.Process.Pid, syscall.SIGTERM) })
	if cause == nil {
		return nil
	}
	if box.gone.Err() != nil && ctx.Err() == nil && !errors.Is(cause, providers.ErrTimeout) {
		cause = schemas.OpErrorf(schemas.Interrupted, "run", "the box was released while the command ran")
	}
	_ = syscall.Kill(-child.Process.Pid, syscall.SIGKILL) // it may have ended just now
	<-ended
	return errors.Join(cause, killMarked(mark))
}

// killMarked kills every process with the mark in its environment. A chain in which each process starts the next one and ends is met among
// the numbers that were given last, so these are looked at first and again and again. A scan that finds none is enough when no process was
// started during it; beside others that start processes all the time, thirty in a row are. One that clears its environment and leaves its
// group gets away: this is a provider for tests, not a box.
func killMarked(mark string) error {
	const enough, again, youngest = 30, 10, 8
	quiet := 0
	for end := time.Now().Add(killPatience); time.Now().Before(end); {
		before, found := lastPID(), false
		for range again {
			last := lastPID()
			for pid := last; pid > last-youngest; pid-- {
				found = killIfMarked(pid, mark) || found
			}
		}
		dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
		for _, dir := range dirs {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				found = killIfMarked(pid, mark) || found
			}
		}
		if found {
			quiet = 0
			continue
		}
		if quiet++; quiet == enough || lastPID() == before {
			return nil
		}
	}
	return errors.New("processes of the box could not be killed")
}

// killIfMarked reports whether it has killed a process.
func killIfMarked(pid int, mark string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(data, []byte(mark)) && pid != os.Getpid() && syscall.Kill(pid, syscall.SIGKILL) == nil
}

// lastPID returns the id of the process that was started last.
func lastPID() int {
	data, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-1])
	return pid
}

func exitCode(state *os.ProcessState) int {
	ws, ok := state.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// collector reads and keeps both outputs of a command.
type collector struct {
	cmd     providers.Command
	streams [2]*stream // stdout, stderr
	calling sync.Mutex // Output is never called concurrently
	readers sync.WaitGroup
	stdin   *os.File // our end; nil without input
	theirs  []*os.File
}

type stream struct {
	r    *os.File
	kept *capture.Excerpt
}

func newCollector(cmd providers.Command) *collector {
	limit := cmd.OutputLimit
	if limit <= 0 {
		limit = schemas.DefaultOutputLimit
	}
	c := &collector{cmd: cmd}
	for i := range c.streams {
		c.streams[i] = &stream{kept: capture.NewExcerpt(limit)}
	}
	return c
}

// connect gives child its pipes and returns our end of its standard input.
func (c *collector) connect(child *exec.Cmd, input []byte) (*os.File, error) {
	for i, s := range c.streams {
		r, w, err := os.Pipe()
		if err != nil {
			c.abandon()
			return nil, err
		}
		s.r = r
		c.theirs = append(c.theirs, w)
		if i == 0 {
			child.Stdout = w
		} else {
			child.Stderr = w
		}
	}
	if len(input) == 0 {
		return nil, nil //nolint:nilnil // no input is no error
	}
	r, w, err := os.Pipe()
	if err != nil {
		c.abandon()
		return nil, err
	}
	child.Stdin, c.stdin = r, w
	c.theirs = append(c.theirs, r)
	return w, nil
}

// begin closes the child's ends here and starts to copy.
func (c *collector) begin(stdin *os.File, input []byte) {
	for _, f := range c.theirs {
		_ = f.Close()
	}
	c.theirs = nil
	if stdin != nil {
		go func() {
			_, _ = stdin.Write(input) // a command need not read all of it
			_ = stdin.Close()
		}()
	}
	for i, s := range c.streams {
		c.readers.Go(func() { c.read(s, i == 1) })
	}
}

// read copies a stream until its end. After finish it copies only the bytes that are already in the pipe.
func (c *collector) read(s *stream, isErr bool) {
	buf := make([]byte, schemas.MaxChunk)
	for {
		n, err := s.r.Read(buf)
		c.take(s, isErr, buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = s.r.SetReadDeadline(time.Time{})
			c.drain(s, isErr, buf)
			return
		case err != nil:
			return
		}
	}
}

// drain reads the bytes in the pipe without waiting for more, at most what a pipe can hold, so that a process left in a persistent box
// cannot occupy it forever.
func (c *collector) drain(s *stream, isErr bool, buf []byte) {
	raw, err := s.r.SyscallConn()
	if err != nil {
		return
	}
	for total, more := 0, true; more && total < 1<<20; {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buf) // nothing there is no error here
			return true
		})
		more = err == nil && n > 0
		total += max(n, 0)
		c.take(s, isErr, buf[:max(n, 0)])
	}
}

func (c *collector) take(s *stream, isErr bool, data []byte) {
	if len(data) == 0 {
		return
	}
	s.kept.Add(data)
	if c.cmd.Output != nil {
		c.calling.Lock()
		defer c.calling.Unlock()
		c.cmd.Output(providers.Chunk{Stderr: isErr, Data: data})
	}
}

// finish is called when the command has ended. It returns when all its output has been delivered.
func (c *collector) finish() {
	for _, s := range c.streams {
		_ = s.r.SetReadDeadline(time.Now())
	}
	c.readers.Wait()
	c.abandon()
}

// abandon closes all open pipes.
func (c *collector) abandon() {
	for _, f := range c.theirs {
		_ = f.Close()
	}
	for _, s := range c.streams {
		if s.r != nil {
			_ = s.r.Close()
		}
	}
	if c.stdin != nil {
		_ = c.stdin.Close()
	}
}

func (c *collector) fill(res *providers.Result) {
	stdout, stderr := c.streams[0].kept, c.streams[1].kept
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	res.StdoutBytes, res.StderrBytes = stdout.Total(), stderr.Total()
	res.Truncated = stdout.Truncated() || stderr.Truncated()
}
