package e2b

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/gateway/credentials"
	"github.com/sandjet/sandjet/gateway/notebook"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// machine is a sandbox of one account that runs commands as they are, and its record. Gateways share it.
type machine struct {
	t    *testing.T
	dir  string
	env  []string
	live context.Context //nolint:containedctx // of its processes

	mu      sync.Mutex
	session schemas.SandboxSession
	runs    map[schemas.CallID]*run
	jobs    map[schemas.JobID]*run
	events  chan struct{} // closed when anything happens
	fails   func(what string) error
}

// run is a command that runs or ran.
type run struct {
	call   schemas.Call
	cmd    *exec.Cmd
	output []schemas.Event
	offset int64
	ended  *schemas.Result
	job    schemas.Job
	shown  string
}

func (r *run) event(t *testing.T, kind schemas.EventType, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		t.Error(err)
	}
	r.output = append(r.output, schemas.Event{Subject: string(r.call.ID), Type: kind, Data: text})
}

const (
	owner  = schemas.AccountID("acct_a")
	apiKey = "sk_1"
)

type goodKeys struct{ keyring }

func (goodKeys) KeyHashes(schemas.AccountID) []string {
	sum := sha256.Sum256([]byte(apiKey))
	return []string{hex.EncodeToString(sum[:])}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	python, err := exec.CommandContext(t.Context(), "python3", "-c", `import sys; print(sys.executable, end="")`).Output()
	if err != nil {
		longtest.Missing(t, "python3: %v", err)
	}
	short, err := os.MkdirTemp("", "m") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	live, end := context.WithCancel(context.Background())
	m := &machine{
		t: t, dir: t.TempDir(), live: live, runs: map[schemas.CallID]*run{}, jobs: map[schemas.JobID]*run{}, events: make(chan struct{}),
		env: append(os.Environ(), "TMPDIR="+short, "PATH="+filepath.Dir(string(python))+":"+os.Getenv("PATH")),
		session: schemas.SandboxSession{ID: "i00", Workspace: "ws_1", Sandbox: "sbx_1", Lease: &schemas.SandboxLease{
			Expires: time.Now().Add(time.Hour), Template: "base", Env: map[string]string{"OF_THE_BOX": "it's"},
		}},
	}
	t.Cleanup(func() {
		end()
		m.mu.Lock()
		all := slices.Collect(func(yield func(*run) bool) {
			for _, r := range m.runs {
				if !yield(r) {
					return
				}
			}
		})
		m.mu.Unlock()
		for _, r := range all {
			m.wait(func() bool { return r.ended != nil })
		}
		_ = os.RemoveAll(short)
	})
	return m
}

// happened wakes who waits. The lock is held.
func (m *machine) happened() {
	close(m.events)
	m.events = make(chan struct{})
}

func (m *machine) wait(ok func() bool) {
	for {
		m.mu.Lock()
		done, next := ok(), m.events
		m.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-time.After(time.Minute):
			m.t.Error("it did not happen")
			return
		}
	}
}

// fail is what shall fail at a step, if anything.
func (m *machine) fail(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		return nil
	}
	return m.fails(what)
}

func (m *machine) Make(context.Context, schemas.AccountID, string, schemas.SandboxLease) (schemas.SandboxSession, error) {
	return m.session, nil
}

func (m *machine) Enter(context.Context, schemas.AccountID, string) (schemas.SandboxSession, error) {
	err := m.fail("enter")
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session, err
}

func (m *machine) Leased(context.Context, schemas.AccountID) ([]schemas.SandboxSession, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return []schemas.SandboxSession{m.session}, nil
}

func (m *machine) Change(_ context.Context, _ schemas.AccountID, _ string, change func(l *schemas.SandboxLease) error) (
	schemas.SandboxSession, error,
) {
	if err := m.fail("change"); err != nil {
		return schemas.SandboxSession{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lease := *m.session.Lease
	if err := change(&lease); err != nil {
		return m.session, err
	}
	m.session.Lease = &lease
	return m.session, nil
}

func (m *machine) Remove(context.Context, schemas.AccountID, string) error { return nil }
func (m *machine) Touch(context.Context, schemas.AccountID, string)        {}

// Submit runs a command, as a call or as a job.
func (m *machine) Submit(_ context.Context, a schemas.AccountID, q schemas.Request, _ time.Duration) (schemas.Call, error) {
	var in schemas.BashInput
	if err := errors.Join(m.fail("submit "+string(q.ID)), json.Unmarshal(q.Input, &in)); err != nil {
		return schemas.Call{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.runs[q.ID]; ok {
		return r.call, nil
	}
	r := &run{call: schemas.Call{
		ID: q.ID, Account: a, Conversation: q.Conversation, Tool: q.Tool, Input: q.Input, Workspace: schemas.WorkspaceID(q.Workspace),
	}}
	m.runs[q.ID] = r
	r.cmd = exec.CommandContext(m.live, "bash", "-c", in.Command)
	r.cmd.Dir, r.cmd.Env, r.cmd.SysProcAttr = m.dir, m.env, &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Cancel = func() error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		r.cmd.Stderr = problems{m, r}
		err = r.cmd.Start()
	}
	if err != nil {
		return r.call, err
	}
	if in.Background {
		r.call.Job = schemas.JobID("job_" + string(q.ID))
		r.job = schemas.Job{ID: r.call.Job, Call: q.ID, State: schemas.JobRunning}
		m.jobs[r.call.Job] = r
	}
	go m.watch(r, out)
	return r.call, nil
}

// problems is what a command writes as its standard error.
type problems struct {
	m *machine
	r *run
}

func (p problems) Write(b []byte) (int, error) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	p.r.shown += string(b)
	return len(b), nil
}

// watch reads what a command prints until it has ended.
func (m *machine) watch(r *run, out io.Reader) {
	b := make([]byte, 1<<16)
	for {
		n, err := out.Read(b)
		m.mu.Lock()
		if n > 0 {
			r.event(m.t, schemas.CallOutput, schemas.OutputData{Stream: "stdout", Offset: r.offset, Text: string(b[:n]), Bytes: n, Attempt: 1})
			r.offset += int64(n)
			m.happened()
		}
		m.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = r.cmd.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	code := r.cmd.ProcessState.ExitCode()
	res := schemas.Result{Status: schemas.StatusCompleted, Output: &schemas.Output{
		ExitCode: code, TotalBytes: r.offset + int64(len(r.shown)), Stderr: r.shown, Stdout: strings.Repeat("x", int(r.offset)),
	}}
	if code < 0 {
		res = schemas.Result{Status: schemas.StatusCancelled}
	}
	r.ended = &res
	if r.job.State != "" && !r.job.State.Final() {
		r.job.State = schemas.JobFailed
		r.job.Completion = &schemas.Completion{State: schemas.JobFailed, ExitCode: &code, Logs: r.shown}
	}
	r.event(m.t, schemas.CallFinished, res)
	m.happened()
}

func (m *machine) Find(_ context.Context, _ schemas.AccountID, id schemas.CallID) (schemas.Call, error) {
	if err := m.fail("find"); err != nil {
		return schemas.Call{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.runs[id]; ok {
		return r.call, nil
	}
	return schemas.Call{}, schemas.ErrNotFound
}

func (m *machine) Ended(_ context.Context, c schemas.Call) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[c.ID].ended != nil, nil
}

func (m *machine) kill(r *run) error { return syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) }

func (m *machine) Cancel(_ context.Context, c schemas.Call, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kill(m.runs[c.ID])
}

func (m *machine) Follow(ctx context.Context, c schemas.Call, each func(e schemas.Event, gap bool) error) error {
	for at := 0; ; {
		m.mu.Lock()
		list, next := m.runs[c.ID].output[at:], m.events
		m.mu.Unlock()
		for _, e := range list {
			if err := each(e, false); err != nil {
				return err
			}
			at++
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *machine) Inside(context.Context, schemas.AccountID, schemas.SandboxSession) ([]schemas.CallID, []schemas.JobID, error) {
	return nil, nil, nil
}

func (m *machine) Job(_ context.Context, _ schemas.AccountID, id schemas.JobID) (schemas.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.jobs[id]; ok {
		return r.job, nil
	}
	return schemas.Job{}, schemas.ErrNotFound
}

func (m *machine) Control(_ context.Context, c schemas.JobCommand) (schemas.JobReply, error) {
	if err := m.fail("control"); err != nil {
		return schemas.JobReply{}, err
	}
	m.mu.Lock()
	r, ok := m.jobs[c.Job]
	m.mu.Unlock()
	if !ok || c.Action != schemas.JobActionSignal {
		return schemas.JobReply{}, schemas.ErrConflict
	}
	err := m.kill(r)
	m.wait(func() bool { return r.job.State.Final() })
	return schemas.JobReply{}, err
}

// gateway is one that serves the machine, until stop.
type gateway struct {
	m     *machine
	url   string
	token string
	stop  context.CancelFunc
}

func (m *machine) gateway() *gateway {
	m.t.Helper()
	draining, stop := context.WithCancel(context.Background())
	f := New(Options{
		Sessions: m, Calls: m, Log: slog.New(slog.DiscardHandler), Now: time.Now, Stall: time.Minute, Draining: draining,
		Credentials: credentials.Verifier{Keys: goodKeys{}, Now: time.Now},
		TakeWait:    func(http.ResponseWriter, schemas.AccountID) (func(), error) { return func() {}, nil },
	})
	mux := http.NewServeMux()
	for _, r := range f.Routes() {
		mux.HandleFunc(strings.TrimSpace(r.Method+" "+r.Path), func(w http.ResponseWriter, q *http.Request) {
			if err := r.Serve(w, q); err != nil {
				m.t.Error(err)
			}
		})
	}
	server := httptest.NewServer(mux)
	token, err := f.token(owner, m.session.ID, apiKey)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { stop(); server.CloseClientConnections(); server.Close() })
	return &gateway{m, server.URL, token, stop}
}

// do sends a request of the client's and returns the status and the body.
func (g *gateway) do(ctx context.Context, method, path string, body any, each func(line string)) (int, string, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	q, err := http.NewRequestWithContext(ctx, method, g.url+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, "", err
	}
	q.Header.Set("E2b-Traffic-Access-Token", g.token)
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	var all strings.Builder
	lines := bufio.NewReader(answer.Body)
	for {
		line, err := lines.ReadString('\n')
		all.WriteString(line)
		if each != nil && line != "" {
			each(line)
		}
		if err == io.EOF {
			return answer.StatusCode, all.String(), nil
		}
		if err != nil {
			return answer.StatusCode, all.String(), err
		}
	}
}

// cell is what code has shown: its status, the text of the main result, what was printed, and the name of its error.
type cell struct {
	status              int
	main, stdout, error string
	count               int
}

func (g *gateway) code(ctx context.Context, in execution, each func(line string)) (c cell, err error) {
	var body string
	c.status, body, err = g.do(ctx, http.MethodPost, "/execute", in, each)
	if c.status != http.StatusOK {
		return c, err
	}
	for line := range strings.Lines(body) {
		var l struct {
			Type, Text, Name string
			Main             bool `json:"is_main_result"`
			Count            int  `json:"execution_count"`
		}
		if jerr := json.Unmarshal([]byte(line), &l); jerr != nil {
			return c, fmt.Errorf("%q: %w", line, jerr)
		}
		switch l.Type {
		case "result":
			c.main += l.Text
		case "stdout":
			c.stdout += l.Text
		case "error":
			c.error = l.Name
		case "number_of_executions":
			c.count = l.Count
		}
	}
	return c, err
}

// runs has code run, and wants what it shows.
func (g *gateway) runs(in execution, want cell) {
	g.m.t.Helper()
	if want.status == 0 {
		want.status = http.StatusOK
	}
	got, err := g.code(g.m.t.Context(), in, nil)
	if want.count == 0 {
		got.count = 0
	}
	if err != nil || got != want {
		g.m.t.Errorf("%+v: %+v, %v\nwant %+v", in, got, err, want)
	}
}

func (g *gateway) newContext(dir string) shownContext {
	g.m.t.Helper()
	var c shownContext
	status, body, err := g.do(g.m.t.Context(), http.MethodPost, "/contexts", map[string]any{"cwd": dir, "language": nil}, nil)
	if err == nil {
		err = json.Unmarshal([]byte(body), &c)
	}
	if err != nil || status != http.StatusOK || c.ID == "" || c.Language != language {
		g.m.t.Fatalf("%d %s %v", status, body, err)
	}
	return c
}

func (g *gateway) answers(method, path string, body any, status int) string {
	g.m.t.Helper()
	got, text, err := g.do(g.m.t.Context(), method, path, body, nil)
	if err != nil || got != status {
		g.m.t.Errorf("%s %s %v: %d %s %v, want %d", method, path, body, got, text, err, status)
	}
	return text
}

func TestCodeRunsInItsContext(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	one, two := m.gateway(), m.gateway()
	one.runs(execution{Code: "x = 1\nimport os\nos.environ['OF_THE_BOX'], os.environ['A']", Env: map[string]string{"A": "b"}}, cell{main: `("it's", 'b')`, count: 1})
	two.runs(execution{Code: "x += 1\nprint(x)\nos.environ.get('A')", Language: "python"}, cell{stdout: "2\n", count: 2})
	c := one.newContext("/")
	two.runs(execution{Code: "import os; os.getcwd(), 'x' in globals()", Context: c.ID}, cell{main: "('/', False)", count: 1})
	one.runs(execution{Code: "y = 5", Context: c.ID}, cell{count: 2})
	two.answers(http.MethodPost, "/contexts/"+c.ID+"/restart", nil, http.StatusNoContent)
	one.runs(execution{Code: "os.getcwd() if 'y' in globals() else 'new'", Context: c.ID}, cell{main: "'new'", count: 1})
	var list []shownContext
	if err := json.Unmarshal([]byte(one.answers(http.MethodGet, "/contexts", nil, http.StatusOK)), &list); err != nil || len(list) != 2 || list[1] != c {
		t.Errorf("%+v, %v", list, err)
	}
	one.answers(http.MethodDelete, "/contexts/"+c.ID, nil, http.StatusNoContent)
	one.runs(execution{Code: "1", Context: c.ID}, cell{status: http.StatusNotFound})
	two.answers(http.MethodDelete, "/contexts/"+c.ID, nil, http.StatusNotFound)
	two.answers(http.MethodPost, "/contexts/"+c.ID+"/restart", nil, http.StatusNotFound)
	one.runs(execution{Code: "x"}, cell{main: "2"})
	two.answers(http.MethodPost, "/contexts/"+list[0].ID+"/restart", nil, http.StatusNoContent)
	one.runs(execution{Code: "'x' in globals()", Context: list[0].ID}, cell{main: "False", count: 1})

	one.runs(execution{Code: "1", Language: "r"}, cell{status: http.StatusNotImplemented})
	one.runs(execution{Code: "a\x00b"}, cell{status: http.StatusBadRequest})
	one.runs(execution{Code: strings.Repeat("x", schemas.MaxCommand-100)}, cell{status: http.StatusBadRequest})
	one.answers(http.MethodPost, "/contexts", map[string]any{"language": "java"}, http.StatusNotImplemented)
	bad := one.newContext("nowhere")
	one.runs(execution{Code: "1", Context: bad.ID}, cell{error: "KernelFailed"})
	for range schemas.MaxCodeContexts - 2 {
		one.newContext("")
	}
	one.answers(http.MethodPost, "/contexts", map[string]any{}, http.StatusTooManyRequests)
}

// TestKernelsThatEnd: what ends with the code, between codes, or before it is seen to run, ends no context.
func TestKernelsThatEnd(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	g := m.gateway()
	g.runs(execution{Code: "x = 1"}, cell{count: 1})
	g.runs(execution{Code: "print('before', flush=True)\nimport time, os\ntime.sleep(.2)\nos._exit(0)"}, cell{stdout: "before\n", error: "KernelEnded"})
	g.runs(execution{Code: "'x' in globals()"}, cell{main: "False", count: 1})
	kernel := func() *run {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.runs[kernelCall("i00", m.session.Lease.Contexts[0])]
	}
	if err := m.kill(kernel()); err != nil { // the next code comes before its end is on record, or after
		t.Fatal(err)
	}
	g.runs(execution{Code: "2"}, cell{main: "2", count: 1})

	// A sandbox that was made again has neither the process nor the socket, and the job is found to be lost only later.
	lost := kernel()
	m.mu.Lock()
	lost.job.State = schemas.JobLost // so that its end leaves this alone
	m.mu.Unlock()
	if err := m.kill(lost); err != nil {
		t.Fatal(err)
	}
	m.wait(func() bool { return lost.ended != nil })
	m.mu.Lock()
	lost.job.State = schemas.JobRunning
	m.mu.Unlock()
	go func() {
		time.Sleep(300 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		lost.job.State = schemas.JobLost
	}()
	g.runs(execution{Code: "3"}, cell{main: "3", count: 1})
}

// TestTwoGatewaysBeginOneKernel: code that comes at once to a sandbox without any has one context, one kernel, and runs in turn.
func TestTwoGatewaysBeginOneKernel(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	var all sync.WaitGroup
	for _, g := range []*gateway{m.gateway(), m.gateway()} {
		for range 3 {
			all.Go(func() {
				got, err := g.code(t.Context(), execution{Code: "n = globals().get('n', 0)\nimport time\ntime.sleep(.01)\nn += 1"}, nil)
				if err != nil || got.error != "" || got.status != http.StatusOK {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
	}
	all.Wait()
	m.gateway().runs(execution{Code: "n"}, cell{main: "6", count: 7})
	if len(m.session.Lease.Contexts) != 1 || m.session.Lease.Contexts[0].Kernel != 1 || len(m.jobs) != 1 {
		t.Errorf("%+v, %d jobs", m.session.Lease.Contexts, len(m.jobs))
	}
}

// TestAClientThatLeaves has its code interrupted, and a gateway that stops does not.
func TestAClientThatLeaves(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	g, stopping := m.gateway(), m.gateway()
	const slow = "import time\nn = 1\nprint('begun')\ntime.sleep(%s)\nn = 2"
	ctx, leave := context.WithCancel(t.Context())
	begun := func(then func()) func(string) {
		return func(line string) {
			if strings.Contains(line, "begun") {
				then()
			}
		}
	}
	if _, err := g.code(ctx, execution{Code: fmt.Sprintf(slow, "600")}, begun(leave)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	g.runs(execution{Code: "n"}, cell{main: "1"})
	got, err := stopping.code(t.Context(), execution{Code: fmt.Sprintf(slow, "1")}, begun(stopping.stop))
	if err != nil || got.error != "SandboxError" || got.stdout != "begun\n" {
		t.Errorf("%+v, %v", got, err)
	}
	g.runs(execution{Code: "n"}, cell{main: "2"})
}

// TestCodeThatFailsOnTheWay: whatever step fails, the client gets an error and the next code runs.
func TestCodeThatFailsOnTheWay(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"enter", "change", "find", "submit e2b_i00-", "submit e2b_i00_"} {
		m := newMachine(t)
		g := m.gateway()
		m.fails = func(what string) error {
			if strings.HasPrefix(what, step) {
				return schemas.Errorf(schemas.Unavailable, "not now")
			}
			return nil
		}
		g.runs(execution{Code: "1"}, cell{status: http.StatusServiceUnavailable})
		m.mu.Lock()
		m.fails = nil
		m.mu.Unlock()
		g.runs(execution{Code: "1"}, cell{main: "1", count: 1})
		if len(m.session.Lease.Contexts) != 1 || len(m.jobs) != 1 {
			t.Errorf("%s: %+v, %d jobs", step, m.session.Lease.Contexts, len(m.jobs))
		}
		m.mu.Lock()
		m.fails = func(what string) error {
			if what == "control" || what == "change" {
				return schemas.Errorf(schemas.Unavailable, "not now")
			}
			return nil
		}
		m.mu.Unlock()
		id := m.session.Lease.Contexts[0].ID
		g.answers(http.MethodPost, "/contexts/"+id+"/restart", nil, http.StatusServiceUnavailable)
		g.answers(http.MethodDelete, "/contexts/"+id, nil, http.StatusServiceUnavailable)
	}
}

// TestASandboxWithoutPython is said to be one.
func TestASandboxWithoutPython(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	bash, err := exec.LookPath("bash")
	if err == nil {
		err = os.Symlink(bash, filepath.Join(m.dir, "bash"))
	}
	if err != nil {
		t.Fatal(err)
	}
	m.env = append(m.env, "PATH="+m.dir)
	m.gateway().runs(execution{Code: "1"}, cell{status: http.StatusNotImplemented})
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		end   endEvent
		again bool
		want  string
	}{
		{exitOf(0), false, ""},
		{exitOf(notebook.ExitNoKernel), true, ""},
		{exitOf(notebook.ExitKernelEnded), false, "KernelEnded"},
		{exitOf(exitNotFound), false, "python3"},
		{exitOf(1), false, "exit code 1: it is full"},
		{killed(), false, "signal: killed"},
		{endEvent{ExitCode: -1, Status: "interrupted", Error: "interrupted: its worker died"}, false, "its worker died"},
		{endEvent{}, false, "Interrupted"},
	} {
		again, err := (&codeLines{ended: c.end, problems: []byte("it is full")}).outcome()
		if again != c.again || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, %v", c.end, again, err)
		}
	}
}

func FuzzExecution(f *testing.F) {
	f.Add([]byte(`{"code":"1","context_id":null,"language":"python","env_vars":{"A":"b"}}`), "x")
	f.Add([]byte(`{"cwd":"/tmp","language":null}`), "i00")
	f.Fuzz(func(t *testing.T, body []byte, id string) {
		in, err := decodeExecution(body)
		refusal(t, err)
		if err == nil && strings.ContainsRune(in.Code, 0) {
			t.Errorf("%+v", in)
		}
		c, err := decodeContext(body)
		refusal(t, err)
		if err != nil {
			return
		}
		list, c, err := newContext(nil, c)
		if err != nil || findContext(list, c.ID) != 0 || findContext(list, "") >= 0 || id != c.ID && findContext(list, id) >= 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if call := kernelCall("i0123456789abcdef0123", c); call.Validate() != nil || pidOf("i0123456789abcdef0123", call) != 0 {
			t.Error(call)
		}
	})
}
