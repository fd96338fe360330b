//go:build linux

package lambdatest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is how long a new environment may take until it asks for its first invocation.
const bootTime = 30 * time.Second

// Canary is a variable of each environment that no command may see.
const Canary = "canary-of-the-function"

// environment is an execution environment: a process and its descendants in namespaces of their own.
type environment struct {
	s            *Service
	name, tenant string
	dir          string
	cmd          *exec.Cmd
	pid          int // of its first process, as this one sees it
	next         chan *task
	over         chan struct{} // closed when it has ended
	server       *http.Server

	mu    sync.Mutex
	tasks map[string]*task
	count int
}

// task is an invocation in an environment.
type task struct {
	id       string
	payload  []byte
	deadline time.Time
	done     chan outcome
}

// boot makes an environment.
func (s *Service) boot(name, tenant string) (*environment, error) {
	s.mu.Lock()
	s.made++
	e := &environment{
		s: s, name: name, tenant: tenant, dir: filepath.Join(s.dir, fmt.Sprint("e", s.made)), next: make(chan *task), over: make(chan struct{}),
		tasks: map[string]*task{},
	}
	s.mu.Unlock()
	if err := os.Mkdir(e.dir, 0o700); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", e.socket()) //nolint:noctx // it is there at once
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", e.serveNext)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", e.serveResponse)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", e.serveError)
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	s.work.Go(func() { _ = e.server.Serve(l) }) // until it is closed
	if err := e.start(); err != nil {
		_ = e.server.Close()
		return nil, err
	}
	s.mu.Lock()
	s.all[e] = true
	s.mu.Unlock()
	s.work.Go(func() {
		_ = e.cmd.Wait() // however it ended
		s.forget(e)
		close(e.over)
		_ = e.server.Close()
	})
	return e, nil
}

// socket returns the path of the environment's socket. It is short, because socket paths are limited to 107 bytes.
func (e *environment) socket() string { return filepath.Join(e.dir, socketName) }

func (s *Service) forget(e *environment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, e)
	key := e.name + " " + e.tenant
	for i, other := range s.idle[key] {
		if other == e {
			s.idle[key] = append(s.idle[key][:i], s.idle[key][i+1:]...)
			break
		}
	}
}

// start starts the environment's process, as an unprivileged user on a read-only root.
func (e *environment) start() error {
	args := []string{
		"--unshare-user", "--uid", "993", "--gid", "990", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session",
		"--info-fd", "3", "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp", "--clearenv",
		"--setenv", "PATH", "/usr/bin:/bin", "--setenv", folderVariable, folder, "--setenv", "AWS_LAMBDA_FUNCTION_NAME", e.name,
		"--setenv", "AWS_SECRET_ACCESS_KEY", Canary, "--setenv", "SANDBOX_ALLOW_UNCONFINED", strconv.FormatBool(e.s.opt.Unconfined),
		"--setenv", abiVariable, strconv.Itoa(e.s.opt.LandlockABI),
		"--setenv", aheadVariable, (e.s.opt.Ahead + e.s.opt.Delay).String(),
		"--bind", e.dir, folder, "--ro-bind", e.s.exe, "/var/runtime/bootstrap", "--symlink", "/tmp/workspace", "/workspace",
	}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/opt"} {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
		} else {
			args = append(args, "--ro-bind-try", dir, dir)
		}
	}
	if mounted(e.name) {
		const at = "/mnt/workspaces"
		args = append(args, "--bind", e.s.opt.Workspaces, at, "--setenv", "SANDBOX_WORKSPACES", at)
	}
	if e.name == MountNoNet || e.name == NoMountNoNet {
		args = append(args, "--unshare-net")
	}
	files := []*os.File{nil}
	if e.s.opt.OldKernel {
		filter, err := oldKernel(filepath.Join(e.dir, "filter"))
		if err != nil {
			return err
		}
		defer filter.Close() //nolint:errcheck // it was only read
		args, files = append(args, "--seccomp", "4"), append(files, filter)
	}
	info, w, err := os.Pipe()
	if err != nil {
		return err
	}
	files[0] = w
	defer info.Close() //nolint:errcheck // it was only read
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err == nil {
		e.cmd = exec.Command("bwrap", append(args, "--", "/var/runtime/bootstrap")...) //nolint:noctx // it ends with its service
		e.cmd.Stderr, e.cmd.Stdout, e.cmd.ExtraFiles = log, log, files
		err = e.cmd.Start()
		_ = log.Close()
	}
	_ = w.Close()
	if err != nil {
		return err
	}
	var said struct {
		Pid int `json:"child-pid"` //nolint:tagliatelle // bubblewrap's word
	}
	err = json.NewDecoder(info).Decode(&said)
	e.pid = said.Pid
	return err
}

// oldKernel writes a seccomp filter to a file that simulates an old kernel: without Landlock, and without further filters.
func oldKernel(path string) (*os.File, error) {
	const (
		load             = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal            = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer           = unix.BPF_RET | unix.BPF_K
		number, argument = 0, 16 // where struct seccomp_data has the call and its first argument
	)
	program := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jt: 5},
		{Code: equal, K: unix.SYS_SECCOMP, Jt: 5},
		{Code: equal, K: unix.SYS_PRCTL, Jf: 2},
		{Code: load, K: argument},
		{Code: equal, K: unix.PR_SET_SECCOMP, Jt: 2},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err = binary.Write(f, binary.NativeEndian, program); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// end kills all processes of the environment.
func (e *environment) end() {
	if e.pid > 0 {
		_ = syscall.Kill(e.pid, syscall.SIGKILL) // it may have ended
	}
	_ = e.cmd.Process.Kill() // as above
}

// signal sends a signal to all processes of the environment except the first, which keeps its namespaces.
func (e *environment) signal(sig syscall.Signal) {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", e.pid))
	if err != nil {
		return
	}
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid") // the pattern is right
	for _, l := range links {
		if ns, err := os.Readlink(l); err == nil && ns == own {
			if pid, err := strconv.Atoi(strings.Split(l, "/")[2]); err == nil && pid != e.pid {
				_ = syscall.Kill(pid, sig) // it may have ended
			}
		}
	}
}

// carryOut runs an invocation in the environment and returns its outcome.
func (e *environment) carryOut(payload []byte) outcome {
	e.mu.Lock()
	e.count++
	t := &task{id: fmt.Sprintf("8476a536-e9f4-11e8-9739-%012d", e.count), payload: payload, done: make(chan outcome, 1)}
	e.tasks[t.id] = t
	e.mu.Unlock()
	e.signal(syscall.SIGCONT)
	boot := time.NewTimer(bootTime)
	defer boot.Stop()
	t.deadline = time.Now().Add(e.s.opt.Timeout)
	select {
	case e.next <- t:
	case <-e.over:
		return e.exited()
	case <-boot.C:
		e.end()
		return failure("Sandbox.Timedout", "INIT did not end")
	}
	clock := time.NewTimer(time.Until(t.deadline))
	defer clock.Stop()
	select {
	case o := <-t.done:
		return o
	case <-e.over:
		return e.exited()
	case <-clock.C:
		e.end()
		<-e.over
		return failure("Sandbox.Timedout", fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", t.id, e.s.opt.Timeout.Seconds()))
	}
}

func (e *environment) exited() outcome {
	log, _ := os.ReadFile(filepath.Join(e.dir, "log")) //nolint:gosec // below the own folder of the service; it may be empty
	return failure("Runtime.ExitError", fmt.Sprintf("Runtime exited with error: %s %.300s", e.cmd.ProcessState, log))
}

// serveNext answers the program's request for the next invocation.
func (e *environment) serveNext(w http.ResponseWriter, r *http.Request) {
	select {
	case t := <-e.next:
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", t.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(t.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", arn(e.name))
		h.Set("Lambda-Runtime-Aws-Tenant-Id", e.tenant)
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(t.payload) // its program may have ended
	case <-r.Context().Done():
	case <-e.over:
	}
}

// of returns the invocation that a program's request refers to.
func (e *environment) of(w http.ResponseWriter, r *http.Request) *task {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.tasks[r.PathValue("id")]
	if t == nil {
		w.WriteHeader(http.StatusBadRequest)
		return nil
	}
	delete(e.tasks, t.id)
	return t
}

func (e *environment) serveResponse(w http.ResponseWriter, r *http.Request) {
	t := e.of(w, r)
	if t == nil {
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPayload+1))
	w.WriteHeader(http.StatusAccepted)
	switch {
	case err != nil:
		t.done <- failure("Runtime.TruncatedResponse", "the response broke off")
	case len(body) > maxPayload:
		t.done <- failure("Function.ResponseSizeTooLarge",
			fmt.Sprintf("Response payload size exceeded maximum allowed payload size (%d bytes).", maxPayload))
	default:
		t.done <- outcome{payload: body}
	}
}

func (e *environment) serveError(w http.ResponseWriter, r *http.Request) {
	t := e.of(w, r)
	if t == nil {
		return
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxPayload)) // what is there counts
	w.WriteHeader(http.StatusAccepted)
	t.done <- outcome{payload: body, failed: "Unhandled"}
}
