package e2btest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/providers/internal/servicetest"
)

// endKept is how long the end of a process can be asked for.
const endKept = 30 * time.Second

// process is a process in a sandbox that was started through envd.
type process struct {
	box    *box
	pid    int // its name, and not the kernel's
	tag    string
	config processConfig
	cmd    *exec.Cmd
	in     *os.File // its standard input; nil: it has none

	mu      sync.Mutex
	readers map[*stream]bool
	end     map[string]any // how it ended
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args"`
	Envs map[string]string `json:"envs,omitempty"`
	Dir  string            `json:"cwd,omitempty"`
}

// stream is the connection of a client that is attached to a process.
type stream struct {
	events chan map[string]any
	done   <-chan struct{}
	cut    context.CancelFunc
}

// rpcError writes the error response to a unary Connect request.
func rpcError(w http.ResponseWriter, status int, code, format string, args ...any) {
	servicetest.Answer(w, status, map[string]string{"code": code, "message": fmt.Sprintf(format, args...)})
}

// userOf returns the user of a request, and whether it is a known one.
func userOf(r *http.Request) (string, bool) {
	user, _, ok := r.BasicAuth()
	if !ok {
		user = "user"
	}
	return user, user == "user" || user == "root"
}

func (s *Service) startProcess(w http.ResponseWriter, r *http.Request, b *box) {
	var req struct {
		Process processConfig `json:"process"`
		Tag     string        `json:"tag"`
		Stdin   *bool         `json:"stdin"`
	}
	if !readFrame(w, r, &req) {
		return
	}
	user, ok := userOf(r)
	if !ok {
		streamError(w, "unauthenticated", fmt.Sprintf("error looking up user '%s': user: unknown user %s", user, user))
		return
	}
	if !b.Has("/") { // it is just being ended
		missing(w, b.id)
		return
	}
	if !b.Has(req.Process.Dir) {
		streamError(w, "invalid_argument", fmt.Sprintf("cwd '%s' does not exist", req.Process.Dir))
		return
	}
	p := &process{box: b, tag: req.Tag, config: req.Process, readers: map[*stream]bool{}}
	p.cmd = b.Command(user, req.Process.Dir, req.Process.Envs, append([]string{req.Process.Cmd}, req.Process.Args...)...)
	if req.Stdin == nil || *req.Stdin {
		read, write, err := os.Pipe()
		if err != nil {
			streamError(w, "internal", err.Error())
			return
		}
		p.cmd.Stdin, p.in = read, write
		defer read.Close() //nolint:errcheck // the process has its own
	}
	t, ctx, stop := s.join(r, p)
	defer stop()
	if err := p.start(); err != nil {
		streamError(w, "internal", err.Error())
		return
	}
	s.mu.Lock()
	b.lastProcess++
	p.pid = b.lastProcess
	b.processes[p.pid] = p
	s.mu.Unlock()
	s.follow(ctx, w, r, p, t)
}

// join attaches a request to a process.
func (s *Service) join(r *http.Request, p *process) (*stream, context.Context, func()) {
	ctx, cut := context.WithCancel(r.Context())
	t := &stream{events: make(chan map[string]any), done: ctx.Done(), cut: cut}
	p.mu.Lock()
	p.readers[t] = true
	p.mu.Unlock()
	s.mu.Lock()
	s.streams[t] = true
	s.mu.Unlock()
	return t, ctx, func() {
		cut()
		p.mu.Lock()
		delete(p.readers, t)
		p.mu.Unlock()
		s.mu.Lock()
		delete(s.streams, t)
		s.mu.Unlock()
	}
}

// start starts the process, and goroutines that read its output.
func (p *process) start() error {
	var outputs, theirs [2]*os.File
	for i := range outputs {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		outputs[i], theirs[i] = r, w
	}
	p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1]
	err := p.cmd.Start()
	_, _ = theirs[0].Close(), theirs[1].Close()
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	for i, name := range []string{"stdout", "stderr"} {
		reading.Go(func() {
			defer outputs[i].Close() //nolint:errcheck // it was only read
			buf := make([]byte, 32<<10)
			for {
				n, err := outputs[i].Read(buf)
				if n > 0 {
					p.publish(map[string]any{"data": map[string]any{name: base64.StdEncoding.EncodeToString(buf[:n])}})
				}
				if err != nil {
					return
				}
			}
		})
	}
	p.box.s.work.Go(func() {
		reading.Wait() // a process that holds the outputs keeps it from ending, as in envd
		p.ended(p.cmd.Wait())
	})
	return nil
}

// publish sends an event to all attached clients. Without clients it is lost.
func (p *process) publish(event map[string]any) {
	p.mu.Lock()
	readers := make([]*stream, 0, len(p.readers))
	for t := range p.readers {
		readers = append(readers, t)
	}
	p.mu.Unlock()
	for _, t := range readers {
		select {
		case t.events <- event:
		case <-t.done:
		}
	}
}

// ended publishes how the process ended. Zero values are omitted, as in protobuf's JSON.
func (p *process) ended(err error) {
	end := map[string]any{"status": "exit status 0", "exited": true}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		end["status"] = exit.String()
		end["exitCode"] = exit.ExitCode()
		if !exit.Exited() {
			delete(end, "exited")
		}
		end["error"] = exit.String()
	}
	p.mu.Lock()
	p.end = end
	p.mu.Unlock()
	p.publish(map[string]any{"end": end})
	time.AfterFunc(endKept, func() {
		p.box.s.mu.Lock()
		defer p.box.s.mu.Unlock()
		delete(p.box.processes, p.pid)
	})
}

// follow writes the events of a process until its end.
func (s *Service) follow(ctx context.Context, w http.ResponseWriter, r *http.Request, p *process, t *stream) {
	var deadline <-chan time.Time
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil && ms > 0 {
		clock := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer clock.Stop()
		deadline = clock.C
	}
	ping := 90 * time.Second
	if n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval")); err == nil && n > 0 {
		ping = time.Duration(n) * time.Second
	}
	alive := time.NewTicker(ping)
	defer alive.Stop()
	w.Header().Set("Content-Type", "application/connect+json")
	frame(w, 0, event(map[string]any{"start": map[string]any{"pid": p.pid}}))
	for {
		select {
		case e := <-t.events:
			frame(w, 0, event(e))
			if e["end"] != nil {
				frame(w, 2, map[string]any{})
				return
			}
		case <-alive.C:
			frame(w, 0, event(map[string]any{"keepalive": map[string]any{}}))
		case <-deadline:
			p.kill(syscall.SIGKILL)
			streamError(w, "deadline_exceeded", "context deadline exceeded")
			return
		case <-ctx.Done():
			servicetest.Drop(w)
			return
		case <-p.box.Over():
			servicetest.Drop(w)
			return
		}
	}
}

func event(e map[string]any) map[string]any { return map[string]any{"event": e} }

// frame writes a message of a stream.
func frame(w http.ResponseWriter, flags byte, message any) {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // it is our own
	}
	head := make([]byte, 5, 5+len(text))
	head[0] = flags
	binary.BigEndian.PutUint32(head[1:], uint32(len(text)))
	_, _ = w.Write(append(head, text...)) // the client may be gone
	_ = http.NewResponseController(w).Flush()
}

// streamError ends a stream with an error.
func streamError(w http.ResponseWriter, code, message string) {
	w.Header().Set("Content-Type", "application/connect+json")
	frame(w, 2, map[string]any{"error": map[string]string{"code": code, "message": message}})
}

// readFrame decodes the one message of a streaming request. If that fails it writes an error response and returns false.
func readFrame(w http.ResponseWriter, r *http.Request, into any) bool {
	head := make([]byte, 5)
	_, err := io.ReadFull(r.Body, head)
	if err == nil {
		err = json.NewDecoder(io.LimitReader(r.Body, int64(binary.BigEndian.Uint32(head[1:])))).Decode(into)
	}
	if err != nil {
		rpcError(w, http.StatusBadRequest, "invalid_argument", "message: %v", err)
	}
	return err == nil
}

// selector names a process.
type selector struct {
	Process struct {
		Pid int    `json:"pid"`
		Tag string `json:"tag"`
	} `json:"process"`
}

// find returns a running process of a sandbox, with ended also one that has ended recently; nil if there is none.
func (s *Service) find(b *box, sel selector, ended bool) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range b.processes {
		if sel.Process.Tag != "" && p.tag == sel.Process.Tag || sel.Process.Tag == "" && p.pid == sel.Process.Pid {
			p.mu.Lock()
			over := p.end != nil
			p.mu.Unlock()
			if !over || ended {
				return p
			}
		}
	}
	return nil
}

func (s *Service) attach(w http.ResponseWriter, r *http.Request, b *box) {
	var sel selector
	if !readFrame(w, r, &sel) {
		return
	}
	p := s.find(b, sel, true)
	if p == nil {
		streamError(w, "not_found", fmt.Sprintf("process with pid %d not found", sel.Process.Pid))
		return
	}
	t, ctx, stop := s.join(r, p)
	defer stop()
	p.mu.Lock()
	end := p.end
	p.mu.Unlock()
	if end != nil {
		s.work.Go(func() {
			select {
			case t.events <- map[string]any{"end": end}:
			case <-t.done:
			}
		})
	}
	s.follow(ctx, w, r, p, t)
}

func (s *Service) listProcesses(w http.ResponseWriter, _ *http.Request, b *box) {
	all := []map[string]any{}
	s.mu.Lock()
	for _, p := range b.processes {
		p.mu.Lock()
		if p.end == nil {
			one := map[string]any{"pid": p.pid, "config": p.config}
			if p.tag != "" {
				one["tag"] = p.tag
			}
			all = append(all, one)
		}
		p.mu.Unlock()
	}
	s.mu.Unlock()
	servicetest.Answer(w, http.StatusOK, map[string]any{"processes": all})
}

// chosen decodes a unary request about a process and returns the process. If there is none it writes an error response and returns nil.
func (s *Service) chosen(w http.ResponseWriter, r *http.Request, b *box, into any, sel *selector) *process {
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, json.Unmarshal(text, sel), json.Unmarshal(text, into)); err != nil {
		rpcError(w, http.StatusBadRequest, "invalid_argument", "message: %v", err)
		return nil
	}
	p := s.find(b, *sel, false)
	if p == nil {
		rpcError(w, http.StatusNotFound, "not_found", "process with pid %d not found", sel.Process.Pid)
	}
	return p
}

func (s *Service) sendInput(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Input struct {
			Stdin []byte `json:"stdin"`
		} `json:"input"`
	}
	p := s.chosen(w, r, b, &body, &selector{})
	if p == nil {
		return
	}
	if p.in == nil {
		rpcError(w, http.StatusBadRequest, "failed_precondition", "stdin not enabled or closed")
		return
	}
	stop := context.AfterFunc(r.Context(), func() { _ = p.in.SetWriteDeadline(time.Now()) })
	_, err := p.in.Write(body.Input.Stdin)
	if !stop() {
		_ = p.in.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		rpcError(w, http.StatusInternalServerError, "internal", "error writing to stdin: %v", err)
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{})
}

func (s *Service) closeStdin(w http.ResponseWriter, r *http.Request, b *box) {
	p := s.chosen(w, r, b, &struct{}{}, &selector{})
	if p == nil {
		return
	}
	if p.in != nil {
		_ = p.in.Close() // once more is no error
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{})
}

func (s *Service) sendSignal(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Signal string `json:"signal"`
	}
	p := s.chosen(w, r, b, &body, &selector{})
	if p == nil {
		return
	}
	switch body.Signal {
	case "SIGNAL_SIGKILL":
		p.kill(syscall.SIGKILL)
	case "SIGNAL_SIGTERM":
		p.kill(syscall.SIGTERM)
	default:
		rpcError(w, http.StatusBadRequest, "unimplemented", "invalid signal: %s", body.Signal)
		return
	}
	servicetest.Answer(w, http.StatusOK, map[string]any{})
}

// kill sends a signal to the process itself, not to its children. Right after a start it waits until nsenter has created it.
func (p *process) kill(sig syscall.Signal) {
	outside := p.cmd.Process.Pid // nsenter's, whose child it is
	const tries = 1000
	for range tries {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", outside, outside))
		if err != nil {
			return // it has ended
		}
		for child := range strings.FieldsSeq(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				_ = syscall.Kill(pid, sig) // as above
			}
		}
		if len(strings.TrimSpace(string(children))) > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
