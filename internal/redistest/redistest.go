// Package redistest gives tests a real Redis server of their own.
package redistest

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// Server is a Redis server without persistence. It listens on a socket in a temporary folder, so that servers cannot conflict, and ends
// with the test.
type Server struct {
	t      testing.TB
	socket string
	stdin  io.Closer
	cmd    *exec.Cmd
}

// The shell kills the server when its stdin is closed, so that the server cannot outlive a test that was killed.
const script = `redis-server "$@" >/dev/null 2>&1 & read -r _; kill -9 $!; wait`

// Start starts a server and waits until it answers. If redis-server is not installed, the test is skipped, or fails if the variable CI is
// set.
func Start(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		longtest.Missing(t, "redis-server is not installed")
	}
	dir, err := os.MkdirTemp("", "redis") // the name of a socket may have 107 bytes: t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{t: t, socket: filepath.Join(dir, "redis.sock")}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// URL returns the server's address.
func (s *Server) URL() string { return "unix://" + s.socket }

// Kill kills the server (SIGKILL). Its data are lost.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGCONT) // it may be suspended
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
	s.cmd = nil
}

// Freeze suspends the server (SIGSTOP): connections stay open, and it does not answer.
func (s *Server) Freeze() {
	s.t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		s.t.Fatal(err)
	}
}

// Restart starts the server again at the same address, empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	_ = os.Remove(s.socket) // a killed server leaves it behind
	s.cmd = exec.CommandContext(context.WithoutCancel(s.t.Context()), "sh", "-c", script, "sh",
		"--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(s.socket))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the shell and the server get signals together
	var err error
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	const most, pause = 2 * time.Minute, 5 * time.Millisecond
	for began := time.Now(); !s.answers(); time.Sleep(pause) {
		if time.Since(began) > most {
			s.t.Fatalf("redis-server did not answer within %v", most)
		}
	}
}

// answers reports whether the server says PONG.
func (s *Server) answers() bool {
	const patience = 30 * time.Second
	c, err := (&net.Dialer{Timeout: patience}).DialContext(s.t.Context(), "unix", s.socket)
	if err != nil {
		return false
	}
	defer c.Close() //nolint:errcheck // only asked
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return false
	}
	if _, err := io.WriteString(c, "PING\r\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}
