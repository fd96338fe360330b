package crashtest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a process may take to be up: generous, because the machine may be busy.
const patience = 2 * time.Minute

// process is one role, which is killed and started again under the same arguments.
type process struct {
	name    string
	program string
	args    []string
	log     *journal
	clock   string // the file that sets its wall clock, where the test has one

	environment []string // beside that of this process

	mu    sync.Mutex
	cmd   *exec.Cmd
	gone  chan struct{}
	kills int
}

// start starts the process and waits until it says that it is up.
func (p *process) start(ctx context.Context) error {
	cmd := exec.Command(p.program, p.args...)
	cmd.Env = append(settings(os.Environ()), p.environment...)
	if p.clock != "" {
		cmd.Env = append(cmd.Env, clockVariable+"="+p.clock)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = p.log.of(p.name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	up, gone := make(chan error, 1), make(chan struct{})
	go func() {
		r := bufio.NewReader(out)
		_, err := r.ReadString('\n')
		up <- err
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait()
		close(gone)
	}()
	p.mu.Lock()
	p.cmd, p.gone = cmd, gone
	p.mu.Unlock()
	select {
	case err := <-up:
		if err != nil {
			return fmt.Errorf("%s ended before it was up: %w", p.name, err)
		}
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s was not up after %s: %w", p.name, patience, context.DeadlineExceeded)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holds limits the number of file descriptors of the process.
func (p *process) holds(descriptors int) {
	p.args = append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, descriptors), p.program}, p.args...)
	p.program = "/bin/sh"
}

// kill is kill -9. It returns once the process is gone.
func (p *process) kill() {
	p.mu.Lock()
	cmd, gone := p.cmd, p.gone
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // it may have ended by itself
	<-gone
}

// alive reports whether the process runs. One that ended without being killed has failed.
func (p *process) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// settings is the environment without the settings of an installation on this machine.
func settings(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SANDJET_") {
			out = append(out, e)
		}
	}
	return out
}

// freePort finds a port that the same role can take again after it was killed. It lies below those that the kernel assigns to processes
// that listen or connect without naming a port, so that no other process takes it meanwhile.
func freePort(t *testing.T) string {
	t.Helper()
	const least, most, tries = 12_000, 32_000, 100
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(least+rand.IntN(most-least)))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatalf("%d ports are taken", tries)
	return ""
}

// journal keeps the last lines that each process wrote, to be shown when the test fails.
type journal struct {
	mu    sync.Mutex
	lines []string
}

const journalLines = 400

func (j *journal) of(name string) io.Writer { return &page{journal: j, name: name} }

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, time.Now().Format("15:04:05.000 ")+line)
	if n := len(j.lines) - journalLines; n > journalLines {
		j.lines = append([]string(nil), j.lines[n:]...)
	}
}

// has reports whether a line has all the words.
func (j *journal) has(words ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.lines, func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines[max(0, len(j.lines)-journalLines):], "\n")
}

// page is one process's part of the journal. os/exec writes to it from one goroutine.
type page struct {
	journal *journal
	name    string
	rest    []byte
}

func (p *page) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.journal.note(p.name + ": " + string(line))
		p.rest = rest
	}
}
