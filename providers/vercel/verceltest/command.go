package verceltest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// command is a command that was started in a session.
type command struct {
	id, session, name, dir string
	args                   []string
	began                  time.Time
	cmd                    *exec.Cmd

	mu      sync.Mutex
	log     []entry
	exit    *int
	took    time.Duration
	stopped bool          // its session has ended
	changed chan struct{} // closed when something is new
}

// entry is a line of a log.
type entry struct {
	Stream string `json:"stream"`
	Data   any    `json:"data"`
}

func (c *command) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// cut ends the streams of readers, because the session has ended.
func (c *command) cut() { c.change(func() { c.stopped = c.exit == nil }) }

func (c *command) public() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := map[string]any{
		"id": c.id, "name": c.name, "args": c.args, "cwd": c.dir, "sessionId": c.session, "exitCode": c.exit, "startedAt": millis(c.began),
	}
	if c.exit != nil {
		d["durationMs"] = c.took.Milliseconds()
	}
	return map[string]any{"command": d}
}

// Write for one output: a log is text.
type logWriter struct {
	c      *command
	stream string
}

func (l logWriter) Write(p []byte) (int, error) {
	l.c.change(func() { l.c.log = append(l.c.log, entry{l.stream, strings.ToValidUTF8(string(p), "\uFFFD")}) })
	return len(p), nil
}

func (s *Service) runCommand(w http.ResponseWriter, r *http.Request, t *session) {
	var req struct {
		Command string            `json:"command"`
		Args    []string          `json:"args"`
		Dir     string            `json:"cwd"`
		Env     map[string]string `json:"env"`
		Sudo    bool              `json:"sudo"`
		Wait    bool              `json:"wait"`
		Logs    bool              `json:"logs"`
		Timeout int64             `json:"timeout"`
	}
	if !read(w, r, &req) {
		return
	}
	if req.Dir == "" {
		req.Dir = "/vercel/sandbox"
	}
	switch {
	case req.Command == "":
		fail(w, http.StatusBadRequest, "`command` is required")
		return
	case !t.running.Has("/"): // it is just being stopped
		failStopped(w)
		return
	case !t.running.Has(req.Dir):
		fail(w, http.StatusBadRequest, "`cwd` does not exist")
		return
	}
	who := user
	if req.Sudo {
		who = "root"
	}
	c := &command{
		id: newID("cmd_"), session: t.id, name: req.Command, args: append([]string{}, req.Args...), dir: req.Dir, began: s.now(),
		changed: make(chan struct{}),
	}
	if err := s.launch(t, c, who, req.Env, time.Duration(req.Timeout)*time.Millisecond); err != nil {
		fail(w, http.StatusInternalServerError, "%v", err)
		return
	}
	if !req.Wait {
		servicetest.Answer(w, http.StatusOK, c.public())
		return
	}
	first := c.public()
	s.stream(w, r, c, req.Logs, first, c.public)
}

// launch starts a command.
func (s *Service) launch(t *session, c *command, who string, env map[string]string, limit time.Duration) error {
	c.cmd = t.running.Command(who, c.dir, env, append([]string{c.name}, c.args...)...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var outs [2]io.ReadCloser
	var ends []*os.File
	for i := range outs {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		ends = append(ends, write)
		outs[i] = read
	}
	c.cmd.Stdout, c.cmd.Stderr = ends[0], ends[1]
	err := c.cmd.Start()
	for _, f := range ends {
		_ = f.Close()
	}
	if err != nil {
		return err
	}
	var copies sync.WaitGroup
	for i, name := range []string{"stdout", "stderr"} {
		copies.Go(func() {
			_, _ = io.CopyBuffer(logWriter{c, name}, struct{ io.Reader }{outs[i]}, make([]byte, 32<<10)) // it ends with the command
			_ = outs[i].Close()
		})
	}
	var clock *time.Timer
	if limit > 0 {
		clock = time.AfterFunc(limit, func() { c.signal(syscall.SIGKILL) })
	}
	s.mu.Lock()
	t.commands[c.id] = c
	s.mu.Unlock()
	s.work.Go(func() {
		err := c.cmd.Wait()
		if clock != nil {
			clock.Stop()
		}
		copied := make(chan struct{})
		s.work.Go(func() { copies.Wait(); close(copied) })
		select {
		case <-copied:
		case <-time.After(100 * time.Millisecond): // something holds its outputs: the command has ended nevertheless
		}
		code := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			code = exit.ExitCode()
			if at, ok := exit.Sys().(syscall.WaitStatus); ok && at.Signaled() {
				code = 128 + int(at.Signal())
			}
		}
		select {
		case <-t.running.Over():
			c.change(func() { c.stopped = true })
		default:
			c.change(func() { c.exit, c.took = &code, time.Since(c.began.Add(-s.opt.Skew)) })
		}
	})
	return nil
}

// signal sends a signal to the process itself, not to its children.
func (c *command) signal(sig syscall.Signal) {
	outside := c.cmd.Process.Pid // nsenter's, whose child it is
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outside, outside))
	if err != nil {
		return // it has ended
	}
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, sig) // as above
		}
	}
}

// stream is an answer with a reader.
type stream struct{ cut func() }

// stream follows a command to its end: its log from the beginning, where that is wanted, then last where there is one.
func (s *Service) stream(w http.ResponseWriter, r *http.Request, c *command, logs bool, first map[string]any, last func() map[string]any) {
	broken := make(chan struct{})
	t := &stream{cut: sync.OnceFunc(func() { close(broken) })}
	s.mu.Lock()
	s.streams[t] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, t)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	say := func(line any) {
		text, err := json.Marshal(line)
		if err != nil {
			panic(fmt.Errorf("verceltest: a line that is none: %w", err)) // it is our own
		}
		n, _ := w.Write(append(text, '\n')) // the client may be gone
		s.sent.Add(int64(n))
	}
	flush := func() { _ = http.NewResponseController(w).Flush() }
	if first != nil {
		say(first)
	}
	at := 0
	for {
		c.mu.Lock()
		news, changed, exit, stopped := c.log[at:], c.changed, c.exit, c.stopped
		c.mu.Unlock()
		at += len(news)
		for _, e := range news {
			if logs {
				say(e)
			}
		}
		switch {
		case exit != nil && len(news) == 0:
			if last != nil {
				say(last())
			}
			return
		case stopped:
			say(entry{"error", map[string]string{"code": "sandbox_stopped", "message": "Sandbox was stopped"}})
			return
		case exit != nil:
			continue
		}
		flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-broken:
			servicetest.Drop(w)
			return
		}
	}
}

// find returns the command of a request. If there is none it writes an error response and returns nil.
func (s *Service) find(w http.ResponseWriter, r *http.Request, t *session) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := t.commands[r.PathValue("cmd")]
	if c == nil {
		fail(w, http.StatusNotFound, "Command not found.")
	}
	return c
}

func (s *Service) getCommand(w http.ResponseWriter, r *http.Request, t *session) {
	c := s.find(w, r, t)
	if c == nil {
		return
	}
	for r.URL.Query().Get("wait") == "true" {
		c.mu.Lock()
		changed, over, stopped := c.changed, c.exit != nil, c.stopped
		c.mu.Unlock()
		if stopped {
			failAs(w, http.StatusGone, "sandbox_stopped", "Sandbox was stopped")
			return
		}
		if over {
			break
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
	servicetest.Answer(w, http.StatusOK, c.public())
}

func (s *Service) logs(w http.ResponseWriter, r *http.Request, t *session) {
	if c := s.find(w, r, t); c != nil {
		s.stream(w, r, c, true, nil, nil)
	}
}

func (s *Service) kill(w http.ResponseWriter, r *http.Request, t *session) {
	var body struct {
		Signal int `json:"signal"`
	}
	c := s.find(w, r, t)
	if c == nil || !read(w, r, &body) {
		return
	}
	if body.Signal < 1 || body.Signal > 64 {
		fail(w, http.StatusBadRequest, "`signal` is not a signal")
		return
	}
	c.signal(syscall.Signal(body.Signal))
	servicetest.Answer(w, http.StatusOK, c.public())
}

func (s *Service) writeFiles(w http.ResponseWriter, r *http.Request, t *session) {
	dir := r.Header.Get("X-Cwd")
	packed, err := gzip.NewReader(r.Body)
	if err != nil || !path.IsAbs(dir) || r.Header.Get("Content-Type") != "application/gzip" {
		fail(w, http.StatusBadRequest, "Not a compressed archive: %v", err)
		return
	}
	cmd := t.running.Command(user, "/", nil, "tar", "-x", "-p", "--no-same-owner", "-C", dir, "-f", "-")
	cmd.Stdin = packed
	if out, err := cmd.CombinedOutput(); err != nil {
		fail(w, http.StatusBadRequest, "Cannot write: %s", out)
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{})
}

// absolute returns the absolute path for a path in a request, which may be relative to the working directory.
func absolute(name, dir string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	if dir == "" {
		dir = "/vercel/sandbox"
	}
	return path.Join(dir, name)
}

type place struct {
	Path string `json:"path"`
	Dir  string `json:"cwd"`
}

func (s *Service) readFile(w http.ResponseWriter, r *http.Request, t *session) {
	var p place
	if !read(w, r, &p) {
		return
	}
	out, err := t.running.Command(user, "/", nil, "cat", "--", absolute(p.Path, p.Dir)).Output()
	if err != nil {
		fail(w, http.StatusNotFound, "File not found.")
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, bytes.NewReader(out)) // the client may be gone
}

func (s *Service) makeDir(w http.ResponseWriter, r *http.Request, t *session) {
	var p place
	if !read(w, r, &p) {
		return
	}
	if out, err := t.running.Command(user, "/", nil, "mkdir", "-p", "--", absolute(p.Path, p.Dir)).CombinedOutput(); err != nil {
		fail(w, http.StatusBadRequest, "Cannot make the folder: %s", out)
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{})
}
