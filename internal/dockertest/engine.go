//go:build linux

// Package dockertest gives tests a real Docker engine, and images that are built without a registry. The engine is the one of DOCKER_HOST,
// or one that is started in namespaces of its own and leaves nothing behind.
package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
)

// patience limits how long an engine may take to start or stop, on a busy host.
const patience = 2 * time.Minute

// Engine is a Docker engine for tests.
type Engine struct {
	Host string // its address, in the form of DOCKER_HOST

	dir    string
	holder *exec.Cmd // first process of the namespaces: all processes in them end with it
	daemon *exec.Cmd
	images sync.Map // by name: func() error

	starts  chan func() // functions to call on starter's thread; nil if the engine was not started here
	starter sync.WaitGroup
}

// shared is the engine of this test binary.
var shared struct { //nolint:gochecknoglobals // one for all tests of a process: an engine takes seconds to start
	sync.Mutex

	engine *Engine
	reason error
	tried  bool
}

// Main runs the tests of a package and then stops the engine that they have started. It is for TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.engine != nil {
		if err := shared.engine.close(); err != nil {
			fmt.Fprintln(os.Stderr, "dockertest:", err)
			return max(code, 1)
		}
	}
	return code
}

// Get returns the engine of this test binary, which the first call starts. If none can be started, it skips the test with the reason, or
// fails it when CI is set. The package needs a TestMain with [Main].
func Get(tb testing.TB) *Engine {
	tb.Helper()
	longtest.Only(tb, "a Docker engine")
	shared.Lock()
	defer shared.Unlock()
	if !shared.tried {
		shared.tried = true
		shared.engine, shared.reason = find()
	}
	reason := shared.reason
	if reason == nil {
		return shared.engine
	}
	longtest.Missing(tb, "no Docker engine: %v", reason)
	return nil
}

// find returns the engine that DOCKER_HOST names, or starts one.
func find() (*Engine, error) {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		e := &Engine{Host: host}
		return e, e.answers()
	}
	return start()
}

// Private starts an engine for one test alone, which may stop and restart it. It is stopped at the end of the test.
func Private(tb testing.TB) *Engine {
	tb.Helper()
	Get(tb) // skips the test with the reason if none can be started
	e, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// start starts an engine in its own namespaces for the network, mounts and processes: its firewall rules do not affect the host, and
// nothing is left when the first process of the namespaces ends.
func start() (*Engine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("DOCKER_HOST is not set, and only root can start an engine")
	}
	for _, tool := range []string{"dockerd", "containerd", "unshare", "nsenter", "busybox", "docker", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("DOCKER_HOST is not set, and there is no %s: install docker.io, iptables and busybox-static", tool)
		}
	}
	dir, err := os.MkdirTemp("", "sandjet-docker-")
	if err != nil {
		return nil, err
	}
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // users of containers pass through
			return nil, err
		}
	}
	e := &Engine{Host: "unix://" + filepath.Join(dir, "docker.sock"), dir: dir, starts: make(chan func())}
	e.starter.Go(func() {
		runtime.LockOSThread()
		for f := range e.starts {
			f()
		}
	})
	e.holder = exec.CommandContext(context.Background(), "unshare",
		"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
		"busybox ifconfig lo up; trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done")
	e.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := e.start(e.holder); err != nil {
		e.holder = nil
		return nil, errors.Join(err, e.close())
	}
	if err := e.Start(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// start starts a process that is killed when this one ends. The kernel kills it when the thread that started it ends, and threads of tests
// do end, for instance after entering another namespace. So all are started on one permanent thread.
func (e *Engine) start(cmd *exec.Cmd) error {
	err := make(chan error)
	e.starts <- func() { err <- cmd.Start() }
	return <-err
}

// first returns the host's process id of the first process in the engine's namespaces.
func (e *Engine) first() (int, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		out, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", e.holder.Process.Pid))
		if err != nil {
			return 0, err
		}
		if fields := strings.Fields(string(out)); len(fields) > 0 {
			if link, err := os.Readlink("/proc/" + fields[0] + "/exe"); err == nil && !strings.HasSuffix(link, "unshare") {
				return strconv.Atoi(fields[0])
			}
		}
	}
	return 0, errors.New("the namespaces of the engine were not made")
}

// Start starts the engine again after [Engine.Stop].
func (e *Engine) Start() error {
	first, err := e.first()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the engine has it
	e.daemon = exec.CommandContext(context.Background(), "nsenter",
		"-t", strconv.Itoa(first), "--net", "--mount", "--pid", "dockerd", "-H", e.Host,
		"--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"), "--pidfile", filepath.Join(e.dir, "pid"))
	e.daemon.Stdout, e.daemon.Stderr = log, log
	e.daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := e.start(e.daemon); err != nil {
		return err
	}
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := e.answers()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			return fmt.Errorf("the engine does not start: %w: %s", err, said[max(0, len(said)-2000):])
		}
	}
}

// answers returns an error if the engine does not respond.
func (e *Engine) answers() error {
	if path, ok := strings.CutPrefix(e.Host, "unix://"); ok { // faster than starting the client's program
		c, err := new(net.Dialer).DialContext(context.Background(), "unix", path)
		if err != nil {
			return err
		}
		_ = c.Close()
	}
	_, err := e.Docker(nil, "version", "--format", "{{.Server.Version}}")
	return err
}

// Stop sends a signal to an engine that was started here, and waits until it has exited.
func (e *Engine) Stop(signal string) error {
	if e.daemon == nil {
		return errors.New("the engine is not this test's own")
	}
	first, err := e.first()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kill := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(first), "--mount", "--pid", "sh", "-c",
		"kill -"+signal+" $(cat "+filepath.Join(e.dir, "pid")+")")
	if out, err := kill.CombinedOutput(); err != nil {
		return fmt.Errorf("end the engine: %w: %s", err, out)
	}
	_ = e.daemon.Wait() // it was killed by a signal
	_ = os.Remove(filepath.Join(e.dir, "pid"))
	return nil
}

// Process is a process in an engine's namespaces.
type Process struct {
	ID, Parent string
	Name       string // as the kernel has it: cut to 15 characters, in parentheses
	Command    string // and its arguments
}

// Processes lists the processes in the engine's namespaces: the engine's and those of its containers. It is for engines of [Private].
func (e *Engine) Processes() ([]Process, error) {
	first, err := e.first()
	if err != nil {
		return nil, err
	}
	const own = ": own; "
	const list = own + `for p in /proc/[0-9]*; do read -r pid name state parent rest <$p/stat &&
		echo "$pid $parent $name $(tr '\0\n' '  ' <$p/cmdline)"; done 2>/dev/null; true`
	out, err := exec.CommandContext(context.Background(), "nsenter", "-t", strconv.Itoa(first), "--mount", "--pid",
		"busybox", "sh", "-c", list).Output()
	if err != nil {
		return nil, fmt.Errorf("list the processes of the engine: %w", err)
	}
	var all []Process
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, own) {
			continue // the shell that lists them
		}
		const words = 4
		word := append(strings.SplitN(strings.TrimSpace(line), " ", words), "", "", "", "")
		all = append(all, Process{ID: word[0], Parent: word[1], Name: word[2], Command: word[3]})
	}
	return all, nil
}

// close stops the engine and everything that runs in it.
func (e *Engine) close() error {
	if e.starts == nil {
		return nil
	}
	if e.daemon != nil && e.daemon.Process != nil && e.daemon.ProcessState == nil {
		_ = e.Stop("TERM") // so that it unmounts; remaining processes end with the namespaces
	}
	if e.holder != nil {
		_ = e.holder.Process.Kill()
		_ = e.holder.Wait()
	}
	close(e.starts)
	e.starter.Wait()
	return os.RemoveAll(e.dir)
}

// Docker runs the engine's own client and returns what it prints.
func (e *Engine) Docker(stdin []byte, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Run is Docker for a test: it fails the test on an error.
func (e *Engine) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := e.Docker(nil, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}
