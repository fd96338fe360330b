package daytonatest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// session is a persistent shell that executes one command after the other.
type session struct {
	id    string
	in    io.WriteCloser
	shell *exec.Cmd
	over  chan struct{}

	mu       sync.Mutex
	commands map[string]*sessionCommand
	order    []string
}

type sessionCommand struct {
	id, text string
	out, err bytes.Buffer
	exit     *int // nil: it runs, or its session has ended with it
	done     chan struct{}
}

func (c *sessionCommand) public() map[string]any {
	d := map[string]any{"id": c.id, "command": c.text}
	if c.exit != nil {
		d["exitCode"] = *c.exit
	}
	return d
}

func (s *Service) makeSession(w http.ResponseWriter, r *http.Request, b *box) {
	var req struct {
		ID string `json:"sessionId"`
	}
	if !read(w, r, &req) {
		return
	}
	s.mu.Lock()
	_, taken := b.sessions[req.ID]
	s.mu.Unlock()
	if taken {
		fail(w, http.StatusConflict, "session already exists")
		return
	}
	t := &session{id: req.ID, commands: map[string]*sessionCommand{}, over: make(chan struct{})}
	t.shell = b.running.Command(b.creation.User, "", nil, "bash")
	t.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := t.shell.StdinPipe()
	if err == nil {
		err = t.shell.Start()
	}
	if err != nil {
		fail(w, http.StatusInternalServerError, "%v", err)
		return
	}
	t.in = in
	s.work.Go(func() {
		_ = t.shell.Wait() // however it ended
		close(t.over)
	})
	s.mu.Lock()
	b.sessions[req.ID] = t
	s.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
}

// the returns the session of a request. If there is none it writes an error response and returns nil.
func (s *Service) the(w http.ResponseWriter, r *http.Request, b *box) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := b.sessions[r.PathValue("session")]
	if t == nil {
		fail(w, http.StatusNotFound, "session not found")
	}
	return t
}

func (s *Service) listSessions(w http.ResponseWriter, _ *http.Request, b *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []map[string]any{}
	for _, t := range b.sessions {
		t.mu.Lock()
		commands := []map[string]any{}
		for _, id := range t.order {
			commands = append(commands, t.commands[id].public())
		}
		t.mu.Unlock()
		all = append(all, map[string]any{"sessionId": t.id, "commands": commands})
	}
	servicetest.Answer(w, http.StatusOK, all)
}

func (s *Service) endSession(w http.ResponseWriter, r *http.Request, b *box) {
	t := s.the(w, r, b)
	if t == nil {
		return
	}
	_ = syscall.Kill(-t.shell.Process.Pid, syscall.SIGKILL) // it may have ended
	s.mu.Lock()
	delete(b.sessions, t.id)
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// wrapped lets the session's own shell run a command, with its outputs and its exit code in files.
const wrapped = "{ %s\n} </dev/null >%[2]s.out 2>%[2]s.err; echo $? >%[2]s.new; mv %[2]s.new %[2]s.exit\n"

func (s *Service) sessionExec(w http.ResponseWriter, r *http.Request, b *box) {
	var req struct {
		Command string `json:"command"`
		Async   bool   `json:"runAsync"`
	}
	t := s.the(w, r, b)
	if t == nil || !read(w, r, &req) {
		return
	}
	c := &sessionCommand{id: newID(), text: req.Command, done: make(chan struct{})}
	file := "/tmp/.session-" + c.id
	if _, err := fmt.Fprintf(t.in, wrapped, req.Command, file); err != nil {
		fail(w, http.StatusInternalServerError, "failed to write command: %v", err)
		return
	}
	t.mu.Lock()
	t.commands[c.id] = c
	t.order = append(t.order, c.id)
	t.mu.Unlock()
	s.work.Go(func() {
		defer close(c.done)
		script := `until [ -e "$1.exit" ]; do sleep 0.05; done; cat "$1.exit"; cat "$1.out"; cat "$1.err" >&2`
		watch := b.running.Command("root", "/", nil, "bash", "-c", script, "watch", file)
		var out, errs bytes.Buffer
		watch.Stdout, watch.Stderr = &out, &errs
		watch.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if watch.Start() != nil {
			return
		}
		ended := make(chan struct{})
		s.work.Go(func() {
			select {
			case <-t.over: // "exit" has ended the shell, and there is no exit code
				_ = syscall.Kill(-watch.Process.Pid, syscall.SIGKILL) // it may have ended
			case <-ended:
			}
		})
		err := watch.Wait()
		close(ended)
		code, rest, _ := strings.Cut(out.String(), "\n")
		n, err2 := strconv.Atoi(code)
		t.mu.Lock()
		defer t.mu.Unlock()
		if err == nil && err2 == nil {
			c.exit = &n
			c.out.WriteString(rest)
			c.err.Write(errs.Bytes())
		}
	})
	if req.Async {
		servicetest.Answer(w, http.StatusAccepted, map[string]any{"cmdId": c.id})
		return
	}
	<-c.done
	t.mu.Lock()
	defer t.mu.Unlock()
	d := map[string]any{"cmdId": c.id, "output": c.out.String() + c.err.String(), "stdout": c.out.String(), "stderr": c.err.String()}
	if c.exit != nil {
		d["exitCode"] = *c.exit
	}
	servicetest.Answer(w, http.StatusOK, d)
}

// command finds the command of a request and calls f with the session's lock held.
func (s *Service) command(w http.ResponseWriter, r *http.Request, b *box, f func(c *sessionCommand)) {
	t := s.the(w, r, b)
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.commands[r.PathValue("cmd")]
	if c == nil {
		fail(w, http.StatusNotFound, "command not found")
		return
	}
	f(c)
}

func (s *Service) sessionCommand(w http.ResponseWriter, r *http.Request, b *box) {
	s.command(w, r, b, func(c *sessionCommand) { servicetest.Answer(w, http.StatusOK, c.public()) })
}

// sessionLogs answers plain text to clients that do not say which version they are, as the service does.
func (s *Service) sessionLogs(w http.ResponseWriter, r *http.Request, b *box) {
	s.command(w, r, b, func(c *sessionCommand) {
		if r.Header.Get("X-Daytona-SDK-Version") == "" {
			_, _ = io.WriteString(w, c.out.String()+c.err.String()) // the client may be gone
			return
		}
		servicetest.Answer(w, http.StatusOK, map[string]string{
			"output": c.out.String() + c.err.String(), "stdout": c.out.String(), "stderr": c.err.String(),
		})
	})
}
