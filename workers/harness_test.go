package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
)

// world is a log in a bubble, with a queue that no worker serves yet.
type world struct {
	t     *testing.T
	log   streams.Options // for more connections to the same log
	bus   *streams.Bus    // of the test itself
	specs *specs

	starting *employed // the worker that is being made
	closers  []func()
}

// inWorld runs f in virtual time against a real log. One after the other: what the NATS client keeps for the
// process must not come from one bubble into another.
func inWorld(t *testing.T, f func(*testing.T, *world), options ...natstest.Option) {
	t.Helper()
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		w := &world{t: t, log: *log, bus: b, specs: new(specs)}
		defer w.close() // in the bubble, while the log is there
		f(t, w)
	}, append(options, func(s *natstest.Settings) { log = &s.Log })...)
}

// open connects once more, as another process would.
func (w *world) open() *streams.Bus {
	w.t.Helper()
	b, err := streams.Open(w.t.Context(), w.log)
	if err != nil {
		w.t.Fatal(err)
	}
	w.closers = append(w.closers, func() { cut(b) })
	return b
}

// close ends what the test began, the last first.
func (w *world) close() {
	for _, f := range slices.Backward(w.closers) {
		f()
	}
}

// cut closes a connection at once: what was on its way is lost, as with the process that had it.
func cut(b *streams.Bus) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.Close(ctx) // it says that it was not waited for
}

// specs knows one sandbox and one workspace, by whatever id they are asked for.
type specs struct {
	mu         sync.Mutex // guards persistent, where it changes while a worker runs
	persistent bool
	change     func(*schemas.Sandbox)
	err        error
}

func (s *specs) Sandbox(_ context.Context, a schemas.AccountID, id schemas.SandboxID) (schemas.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := schemas.Sandbox{ID: id, Account: a, Provider: "fake", Persistent: s.persistent, EnvVars: map[string]string{"SECRET": "s3cret"}}
	if s.change != nil {
		s.change(&sb)
	}
	return sb, s.err
}

// keepNone makes the sandbox one whose boxes are not kept.
func (s *specs) keepNone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.persistent = false
}

func (s *specs) Workspace(_ context.Context, a schemas.AccountID, id schemas.WorkspaceID) (schemas.Workspace, error) {
	return schemas.Workspace{ID: id, Account: a, Sandbox: "sb_1"}, nil
}

// fake is a provider whose runs are a function.
type fake struct {
	run func(ctx context.Context, cmd providers.Command) (providers.Result, error) // nil: prints hello

	mu   sync.Mutex
	runs []providers.Command
}

func (p *fake) Profile() providers.Profile { return providers.Profile{Name: "fake", Shell: "bash"} }

func (p *fake) Run(ctx context.Context, cmd providers.Command) (providers.Result, error) {
	p.mu.Lock()
	p.runs = append(p.runs, cmd)
	p.mu.Unlock()
	if p.run != nil {
		return p.run(ctx, cmd)
	}
	return hello(ctx, cmd)
}

func (p *fake) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

func hello(_ context.Context, cmd providers.Command) (providers.Result, error) {
	cmd.Output(providers.Chunk{Data: []byte("hello\n")})
	return providers.Result{Runtime: "fake/L0", Started: true, Stdout: []byte("hello\n"), StdoutBytes: 6, Duration: time.Millisecond}, nil
}

// readAnswer is what the script of read prints about an empty file.
const readAnswer = "sandjet ok\n=0\n=0\n=0\n#e\n-\n.\n"

// sleeper prints "begun" and runs for d unless its context ends.
func sleeper(d time.Duration) func(context.Context, providers.Command) (providers.Result, error) {
	return func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		cmd.Output(providers.Chunk{Data: []byte("begun\n")})
		r := providers.Result{Runtime: "fake/L0", Started: true, Stdout: []byte("begun\n"), StdoutBytes: 6}
		if !wait.Sleep(ctx, d) {
			return r, ctx.Err()
		}
		return r, nil
	}
}

// employed is a running worker with a bus of its own, so that it can die alone.
type employed struct {
	world *world
	bus   *streams.Bus
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

// employ starts a worker. Change may set any of its fields.
func (w *world) employ(p providers.Provider, change ...func(*Worker)) *employed {
	w.t.Helper()
	e := &employed{world: w, bus: w.open(), done: make(chan struct{})}
	wk := &Worker{Bus: e.bus, Provider: p, Specs: w.specs, Slots: 4, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	ctx, stop := context.WithCancel(w.t.Context())
	e.stop = stop
	w.starting = e
	for _, f := range change {
		f(wk)
	}
	go func() {
		defer close(e.done)
		e.err = wk.Run(ctx)
	}()
	w.closers = append(w.closers, func() { stop(); <-e.done })
	return e
}

// retire stops the worker in order and waits for its end.
func (e *employed) retire() {
	e.world.t.Helper()
	e.stop()
	<-e.done
	if e.err != nil {
		e.world.t.Errorf("the worker ended with %v, want nil after a stop", e.err)
	}
}

// errCrash ends a call's handling where a worker died.
var errCrash = errors.New("the worker died here")

// dieAt makes a worker die when it comes to a stage: its connection is gone from then on, and
// nothing that it still does has an effect.
func (w *world) dieAt(at stage, died chan<- *employed) func(*Worker) {
	return func(wk *Worker) {
		e := w.starting
		var once sync.Once
		wk.at = func(s stage, _ schemas.Call) error {
			if s != at {
				return nil
			}
			once.Do(func() {
				cut(e.bus)
				e.stop()
				died <- e
			})
			return errCrash
		}
	}
}

// call makes an admitted call.
func (w *world) call(id string, tool schemas.Tool, change ...func(*schemas.Call)) schemas.Call {
	now := time.Now().UTC()
	input := `{"command":"echo hello"}`
	if tool == schemas.ToolRead {
		input = `{"file_path":"a.txt"}`
	}
	c := schemas.Call{
		ID: schemas.CallID(id), Account: testAccount, Conversation: schemas.ConversationID("c-" + id), Tool: tool, Input: []byte(input),
		Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1", Accepted: now, Deadline: now.Add(time.Hour), Digest: "d",
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// publish puts the call on the log as admission does, and reports it.
func (w *world) publish(c schemas.Call) schemas.Call {
	w.t.Helper()
	w.announce(w.publishOnly(c))
	return c
}

// announce publishes that the call was accepted.
func (w *world) announce(c schemas.Call) {
	w.t.Helper()
	if err := streams.Events.Publish(w.t.Context(), w.bus, schemas.AcceptedEvent(c)); err != nil {
		w.t.Fatal(err)
	}
}

// publishOnly puts the call on the log as admission does that dies right then.
func (w *world) publishOnly(c schemas.Call) schemas.Call {
	w.t.Helper()
	if err := streams.Calls.Publish(w.t.Context(), w.bus, c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) cancel(c schemas.Call) {
	w.t.Helper()
	err := streams.Cancels.Publish(w.t.Context(), w.bus,
		schemas.Cancel{Account: c.Account, Call: c.ID, Reason: "enough", Time: time.Now().UTC()})
	if err != nil {
		w.t.Fatal(err)
	}
}

// result waits for the result of a call, for an hour.
func (w *world) result(c schemas.Call) schemas.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	r, err := resultOf(w.bus.AwaitCall(ctx, c))
	if err != nil {
		w.t.Fatalf("no result of %s: %v", c.ID, err)
	}
	return r
}

// want waits for the result and compares its status.
func (w *world) want(c schemas.Call, s schemas.Status) schemas.Result {
	w.t.Helper()
	r := w.result(c)
	if r.Status != s {
		w.t.Fatalf("%s is %s, want %s: %s", c.ID, r.Status, s, r.Text)
	}
	return r
}

// events reads the conversation of a call from its beginning.
func (w *world) events(c schemas.Call) []schemas.Event {
	w.t.Helper()
	var events []schemas.Event
	for e, err := range streams.Events.Replay(w.t.Context(), w.bus, fmt.Sprintf("%s/%s", c.Account, c.Conversation), schemas.Cursor{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		events = append(events, e.Value)
	}
	return events
}

// once fails unless the call has exactly one result, also after everybody who still could write one
// had the time to.
func (w *world) once(c schemas.Call) {
	w.t.Helper()
	time.Sleep(time.Minute)
	n := 0
	for _, e := range w.events(c) {
		if e.Type == schemas.CallFinished {
			n++
		}
	}
	if n != 1 {
		w.t.Errorf("%s has %d results, want one", c.ID, n)
	}
}

// types lists the kinds of the call's events in their order.
func (w *world) types(c schemas.Call) []schemas.EventType {
	w.t.Helper()
	var types []schemas.EventType
	for _, e := range w.events(c) {
		types = append(types, e.Type)
	}
	return types
}

// untilStarted waits for the proof of a call's start, for an hour.
func (w *world) untilStarted(c schemas.Call) {
	w.t.Helper()
	for range 36_000 {
		if slices.Contains(w.types(c), schemas.CallStarted) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("%s was not started", c.ID)
}

// startedBy puts the proof on the log that a worker started a call.
func (w *world) startedBy(worker string, c schemas.Call, attempt int) {
	w.t.Helper()
	event := schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, 1), time.Now(),
		schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: worker, Attempt: attempt})
	if err := streams.Events.Publish(w.t.Context(), w.bus, event); err != nil {
		w.t.Fatal(err)
	}
}

// endedElsewhere puts a result on the log, as another worker would that started the call.
func (w *world) endedElsewhere(c schemas.Call, r schemas.Result) {
	w.t.Helper()
	r.Finished = time.Now().UTC()
	event := schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), r.Finished, r)
	if err := streams.Events.Publish(w.t.Context(), w.bus, event); err != nil {
		w.t.Fatal(err)
	}
}

// answer runs a tool as a box would: a reading tool's script prints an answer that the plan reads.
func answer(tool schemas.Tool) func(context.Context, providers.Command) (providers.Result, error) {
	if tool == schemas.ToolBash {
		return nil
	}
	return func(context.Context, providers.Command) (providers.Result, error) {
		return providers.Result{Runtime: "fake/L0", Started: true, Stdout: []byte(readAnswer)}, nil
	}
}

// resultOf is the result of a call that [streams.Bus.AwaitCall] has returned.
func resultOf(s *callstate.State, err error) (schemas.Result, error) {
	if err != nil {
		return schemas.Result{}, err
	}
	return *s.Result, nil
}
