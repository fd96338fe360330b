package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// workerProcess is a worker of the demo: this program, started again.
type workerProcess struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// startWorker starts a worker on the tour's data folder and waits until it is up.
func (d *demo) startWorker(ctx context.Context) (*workerProcess, error) {
	const patience = time.Minute // the machine may be busy
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	args := []string{"worker", "--data-dir", d.dir, "--json", "--pool=1"}
	if d.unisolated {
		args = append(args, "--allow-unisolated")
	}
	said := &tailBuffer{}
	cmd := exec.Command(program, args...) //nolint:noctx // it is this program; the tour kills it by hand
	cmd.Args[0] = filepath.Join(filepath.Dir(program), "sandjet")
	cmd.Env = withoutSettings(os.Environ())
	cmd.Stderr = said
	// It must not outlive the tour, however that ends, nor receive the terminal's Ctrl-C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	w := &workerProcess{cmd: cmd, gone: make(chan struct{})}
	up := make(chan error, 1)
	go func() {
		r := bufio.NewReader(out)
		_, err := r.ReadString('\n')
		up <- err
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // killed, mostly
		close(w.gone)
	}()
	select {
	case err = <-up:
	case <-time.After(patience):
		err = errors.New("it was not up in time")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("the worker did not start: %s", strings.TrimPrefix(said.last(), "sandjet: "))
	}
	return w, nil
}

// freeze suspends the process (SIGSTOP), like a host that swaps heavily.
func (w *workerProcess) freeze() error {
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze the worker: %w", err)
	}
	return nil
}

// kill kills the process (SIGKILL) and waits until it has exited.
func (w *workerProcess) kill() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill() // it may have ended already
	<-w.gone
}

// withoutSettings returns the environment without Sandjet's settings, SANDJET_….
func withoutSettings(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		if !strings.HasPrefix(e, "SANDJET_") {
			out = append(out, e)
		}
	}
	return out
}
