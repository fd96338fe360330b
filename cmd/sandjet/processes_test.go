package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// processes are what scripts have started in the background, by script and name.
type processes struct {
	mu   sync.Mutex
	live map[string]*started
}

type started struct {
	cmd  *exec.Cmd
	gone chan struct{}
	err  error
}

func (p *processes) start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME COMMAND ARGS…")
	}
	create := func(suffix string) *os.File {
		f, err := os.Create(ts.MkAbs(args[0] + suffix))
		ts.Check(err)
		return f
	}
	out, errs := create(".out"), create(".err")
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Args[0] = args[1]
	cmd.Dir = ts.MkAbs(".")
	cmd.Stdout, cmd.Stderr = out, errs
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SANDJET_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	for _, name := range append(kmsVariables(), "SANDJET_URL", "SANDJET_KEY", "SANDJET_CONFIG") {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	ts.Check(cmd.Start())
	s := &started{cmd: cmd, gone: make(chan struct{})}
	go func() {
		s.err = cmd.Wait()
		_, _ = out.Close(), errs.Close()
		close(s.gone)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		p.live = map[string]*started{}
	}
	p.live[key(ts, args[0])] = s
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-s.gone
	})
}

// signal sends a signal to what was started, and does not wait.
func (p *processes) signal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal NAME SIGNAL")
	}
	ts.Check(p.find(ts, args[0]).cmd.Process.Signal(signalNamed(ts, args[1])))
}

// halt sends a signal, waits until the process has ended, and fails unless it ended with the expected exit code or by the signal.
func (p *processes) halt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: halt NAME SIGNAL [CODE|signal]")
	}
	s, sig := p.find(ts, args[0]), signalNamed(ts, args[1])
	ts.Check(s.cmd.Process.Signal(sig))
	want := "exit status 0"
	switch {
	case sig == syscall.SIGKILL || len(args) == 3 && args[2] == "signal":
		want = "signal: " + sig.String()
	case len(args) == 3:
		want = "exit status " + args[2]
	}
	s.await(ts, args[0], want)
}

// ends waits until a process ends by itself, and fails unless it ended with the expected exit code.
func (p *processes) ends(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: ends NAME [CODE]")
	}
	want := "exit status 0"
	if len(args) == 2 {
		want = "exit status " + args[1]
	}
	p.find(ts, args[0]).await(ts, args[0], want)
}

// await waits until the process has ended, and fails unless its end is the wanted one.
func (s *started) await(ts *testscript.TestScript, name, want string) {
	select {
	case <-s.gone:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended after %s", name, patience)
	}
	if got := s.cmd.ProcessState.String(); got != want {
		b, _ := os.ReadFile(ts.MkAbs(name + ".err"))
		ts.Fatalf("%s: %s, want %s\n%s", name, got, want, b)
	}
}

func (p *processes) find(ts *testscript.TestScript, name string) *started {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.live[key(ts, name)]
	if s == nil {
		ts.Fatalf("nothing was started under the name %s", name)
	}
	return s
}

func signalNamed(ts *testscript.TestScript, name string) syscall.Signal {
	sig, ok := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[name]
	if !ok {
		ts.Fatalf("%s is no signal of these scripts", name)
	}
	return sig
}

func key(ts *testscript.TestScript, name string) string {
	return filepath.Clean(ts.MkAbs(".")) + "\x00" + name
}
