package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// jobHost is a provider whose boxes and jobs outlive its workers, in memory. A job's script has one
// step on each line: print TEXT, sleep DURATION, read (a line of standard input, printed), write FILE TEXT, exit CODE.
type jobHost struct {
	fake

	dir     string                                        // of its workspace
	tied    bool                                          // its profile says that jobs end with the worker
	tells   bool                                          // it calls Notify
	before  func(n int) error                             // of the nth start: fails it before anything runs
	after   func(n int) error                             // likewise, when it runs already
	blocked func(context.Context, schemas.JobRef) error   // of every look
	stopped func(schemas.JobRef)                          // called for every stop
	asked   func(providers.Command, providers.JobOptions) // called for every start

	mu       sync.Mutex
	boxes    map[string]schemas.Ref // by key
	released []string
	jobs     map[schemas.JobID]*hostJob
	starts   int
	made     int // boxes
}

type hostJob struct {
	ref    schemas.JobRef
	dir    string
	notify func(providers.JobEnd)
	cancel context.CancelFunc
	input  chan string
	done   chan struct{}

	mu     sync.Mutex
	log    []byte
	end    *providers.JobEnd
	reason string // of its end from outside: stopped, expired, KILL
}

func newJobHost() *jobHost {
	return &jobHost{boxes: map[string]schemas.Ref{}, jobs: map[schemas.JobID]*hostJob{}}
}

func (h *jobHost) Profile() providers.Profile {
	return providers.Profile{Name: "fake", Shell: "bash", Persistent: true, JobsEndWithWorker: h.tied}
}

func (h *jobHost) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.boxes[key]; !ok {
		h.made++
		h.boxes[key] = schemas.Ref{ID: key, Epoch: strconv.Itoa(h.made)}
	}
	return h.boxes[key], nil
}

func (h *jobHost) Release(_ context.Context, ref schemas.Ref) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[ref.ID] != ref {
		return nil
	}
	delete(h.boxes, ref.ID)
	h.released = append(h.released, ref.ID)
	for id, j := range h.jobs {
		if j.ref.Sandbox == ref {
			j.kill("released")
			delete(h.jobs, id)
		}
	}
	return nil
}

// replace ends all boxes as a provider does that makes others in their places, and reports the ends of what runs in them.
func (h *jobHost) replace() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, j := range h.jobs {
		j.kill("replaced")
		delete(h.jobs, id)
	}
	clear(h.boxes)
}

// lose lets all boxes vanish with what runs in them, unnoticed.
func (h *jobHost) lose() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, j := range h.jobs {
		j.notify = nil
		j.kill("lost")
		delete(h.jobs, id)
	}
	clear(h.boxes)
}

func (h *jobHost) StartJob(_ context.Context, id schemas.JobID, cmd providers.Command, o providers.JobOptions) (schemas.JobRef, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts++
	if h.asked != nil {
		h.asked(cmd, o)
	}
	if h.before != nil {
		if err := h.before(h.starts); err != nil {
			return schemas.JobRef{}, err
		}
	}
	if h.boxes[cmd.Sandbox.ID] != cmd.Sandbox {
		return schemas.JobRef{}, schemas.OpErrorf(schemas.NotFound, "start", "the box is gone")
	}
	j, ok := h.jobs[id]
	if !ok {
		ctx, cancel := context.WithTimeout(context.Background(), cmd.Timeout)
		j = &hostJob{
			ref: schemas.JobRef{Sandbox: cmd.Sandbox, ID: id, Instance: fmt.Sprint("start_", h.starts)}, dir: h.dir,
			cancel: cancel, input: make(chan string, 16), done: make(chan struct{}),
		}
		if h.tells {
			j.notify = o.Notify
		}
		h.jobs[id] = j
		go j.run(ctx, cmd.Script)
	}
	if h.after != nil {
		if err := h.after(h.starts); err != nil {
			return schemas.JobRef{}, err
		}
	}
	return j.ref, nil
}

func (j *hostJob) run(ctx context.Context, script string) {
	code := j.steps(ctx, script)
	j.mu.Lock()
	end := providers.JobEnd{ExitCode: code, LogBytes: int64(len(j.log)), Tail: j.log, Finished: time.Now()}
	if ctx.Err() != nil {
		end.ExitCode, end.Stopped, end.TimedOut = 143, j.reason == "stopped", j.reason == ""
		end.Lost, end.Replaced = j.reason == "replaced", j.reason == "replaced"
	}
	j.end = &end
	notify := j.notify
	j.mu.Unlock()
	j.cancel()
	close(j.done)
	if notify != nil {
		notify(end)
	}
}

func (j *hostJob) steps(ctx context.Context, script string) int {
	for line := range strings.Lines(script) {
		verb, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch verb {
		case "print":
			j.print(arg + "\n")
		case "sleep":
			d, _ := time.ParseDuration(arg)
			wait.Sleep(ctx, d)
		case "read":
			select {
			case s := <-j.input:
				j.print("read " + s)
			case <-ctx.Done():
			}
		case "write":
			name, text, _ := strings.Cut(arg, " ")
			at := filepath.Join(j.dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)); err != nil {
				j.print(err.Error())
				return 1
			}
		case "exit":
			code, _ := strconv.Atoi(arg)
			return code
		}
		if ctx.Err() != nil {
			return 143
		}
	}
	return 0
}

func (j *hostJob) print(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.log = append(j.log, s...)
}

// kill ends the job for a reason, unless it has ended.
func (j *hostJob) kill(reason string) {
	j.mu.Lock()
	if j.end == nil && j.reason == "" {
		j.reason = reason
	}
	j.mu.Unlock()
	j.cancel()
}

func (h *jobHost) find(ctx context.Context, ref schemas.JobRef) (*hostJob, error) {
	if h.blocked != nil {
		if err := h.blocked(ctx, ref); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	j, ok := h.jobs[ref.ID]
	if !ok || j.ref.Sandbox != ref.Sandbox {
		return nil, schemas.OpErrorf(schemas.NotFound, "job", "no such job in this box")
	}
	return j, nil
}

func (h *jobHost) JobStatus(ctx context.Context, ref schemas.JobRef) (providers.JobStatus, error) {
	j, err := h.find(ctx, ref)
	if err != nil {
		return providers.JobStatus{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	s := providers.JobStatus{Running: j.end == nil, Instance: j.ref.Instance, LogBytes: int64(len(j.log))}
	if j.end != nil {
		s.End = *j.end
	}
	return s, nil
}

func (h *jobHost) JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (providers.JobLogs, error) {
	j, err := h.find(ctx, ref)
	if err != nil {
		return providers.JobLogs{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if offset < 0 {
		offset = max(0, int64(len(j.log)-limit))
	}
	offset = min(offset, int64(len(j.log)))
	data := j.log[offset:]
	return providers.JobLogs{Data: data[:min(limit, len(data))], Offset: offset, Size: int64(len(j.log)), Ended: j.end != nil}, nil
}

func (h *jobHost) StopJob(ctx context.Context, ref schemas.JobRef, _ time.Duration) error {
	if h.stopped != nil {
		h.stopped(ref)
	}
	j, err := h.find(ctx, ref)
	if err != nil {
		return err
	}
	j.kill("stopped")
	<-j.done
	return nil
}

func (h *jobHost) SignalJob(ctx context.Context, ref schemas.JobRef, signal string) error {
	j, err := h.find(ctx, ref)
	if err != nil {
		return err
	}
	j.print("signal " + signal + "\n")
	if signal == "KILL" {
		j.kill("KILL")
	}
	return nil
}

func (h *jobHost) WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, _ bool) (int, error) {
	j, err := h.find(ctx, ref)
	if err != nil {
		return 0, err
	}
	j.input <- string(data)
	return len(data), nil
}

func (h *jobHost) started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs)
}

// close ends what still runs, so that the bubble can end.
func (h *jobHost) close() {
	h.mu.Lock()
	jobs := make([]*hostJob, 0, len(h.jobs))
	for _, j := range h.jobs {
		jobs = append(jobs, j)
	}
	h.mu.Unlock()
	for _, j := range jobs {
		j.kill("the test is over")
		<-j.done
	}
}

// inJobWorld is inWorld with a host for jobs, which are settled. Sandboxes are kept.
func inJobWorld(t *testing.T, f func(*testing.T, *world, *jobHost)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		h := newJobHost()
		w.closers = append(w.closers, h.close)
		f(t, w, h)
	})
}

// settleJobs employs a settler, as one beside the gateway.
func (w *world) settleJobs(change ...func(*maintenance.Settler)) {
	w.t.Helper()
	s := &maintenance.Settler{Bus: w.open()}
	for _, f := range change {
		f(s)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(ctx)
	}()
	w.closers = append(w.closers, func() { stop(); <-done })
}

// background makes an admitted background call that runs a script of jobHost.
func (w *world) background(id, script string, change ...func(*schemas.Call)) schemas.Call {
	return w.call(id, schemas.ToolBash, append([]func(*schemas.Call){func(c *schemas.Call) {
		c.Input = fmt.Appendf(nil, `{"command":%q,"background":true}`, script)
		c.Job, c.Conversation = schemas.JobID("job_"+id), "c-jobs"
	}}, change...)...)
}

// ask makes an admitted async_status call about the job of another call.
func (w *world) ask(id string, about schemas.Call, input string, change ...func(*schemas.Call)) schemas.Call {
	return w.call(id, schemas.ToolAsyncStatus, append([]func(*schemas.Call){func(c *schemas.Call) {
		c.Input = fmt.Appendf(nil, `{"statusId":%q%s}`, about.Job, input)
		c.Conversation = about.Conversation
	}}, change...)...)
}

// ended waits for the job of a call to have its completion, for two days.
func (w *world) ended(c schemas.Call) schemas.Completion {
	w.t.Helper()
	for range 2 * 24 * 3600 {
		done, err := lifecycle.FindCompletion(w.t.Context(), w.bus, c.Account, c.Job)
		if err == nil {
			return done
		}
		if schemas.CodeOf(err) != schemas.NotFound {
			w.t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	w.t.Fatalf("job %s does not come home", c.Job)
	return schemas.Completion{}
}

// recordOf reads the record of a call's job.
func (w *world) recordOf(c schemas.Call) schemas.Job {
	w.t.Helper()
	p, err := lifecycle.FindJob(w.t.Context(), w.bus, c.Account, c.Job)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Value
}

// until waits for a condition, for an hour.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for range 36_000 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("it did not come to this: %s", what)
}
