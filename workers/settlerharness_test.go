package workers

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// endpoints is an [Endpoints] that knows one for every account.
type endpoints struct{ err atomic.Pointer[schemas.Error] }

const testEndpoint = schemas.EndpointID("wh_1")

func (e *endpoints) List(_ context.Context, a schemas.AccountID) ([]schemas.Endpoint, error) {
	if err := e.err.Load(); err != nil {
		return nil, err
	}
	return []schemas.Endpoint{{ID: testEndpoint, Account: a, URL: "https://example.com"}}, nil
}

// settles is a running settler with a bus of its own.
type settles struct {
	bus  *streams.Bus
	stop context.CancelFunc
	done chan struct{}
}

// settler starts one. Change may set any of its fields.
func (w *world) settler(change ...func(*maintenance.Settler, *settles)) *settles {
	w.t.Helper()
	e := &settles{bus: w.open(), done: make(chan struct{})}
	s := &maintenance.Settler{Bus: e.bus, Endpoints: new(endpoints), Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	for _, f := range change {
		f(s, e)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	e.stop = stop
	go func() {
		defer close(e.done)
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("the settler ended with %v", err)
		}
	}()
	w.closers = append(w.closers, func() { stop(); <-e.done })
	return e
}

// dieWhen makes a settler die at the first stage for which when says so.
func dieWhen(when func(maintenance.SettleStage) bool) func(*maintenance.Settler, *settles) {
	return func(s *maintenance.Settler, e *settles) {
		var dead atomic.Bool
		var once sync.Once
		s.At = func(at maintenance.SettleStage) error {
			if dead.Load() || when(at) {
				once.Do(func() {
					cut(e.bus) // first: a dead process writes no dead letters
					e.stop()
					dead.Store(true)
				})
				return errCrash
			}
			return nil
		}
	}
}

func with(l limits.Limiter) func(*maintenance.Settler, *settles) {
	return func(s *maintenance.Settler, _ *settles) { s.Limiter = l }
}

// job makes the record of a running job that holds a place, as its worker does.
func (w *world) job(l limits.Limiter, id string, change ...func(*schemas.Job)) schemas.Job {
	w.t.Helper()
	now := time.Now().UTC()
	j := schemas.Job{
		ID: schemas.JobID("job_" + id), Account: testAccount, Conversation: schemas.ConversationID("c-" + id), Call: schemas.CallID("call_" + id),
		Tool: schemas.ToolBash, Command: "make", Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1", State: schemas.JobRunning,
		Created: now, Launched: now, Deadline: now.Add(24 * time.Hour),
	}
	if l != nil {
		place, err := l.Acquire(w.t.Context(), "jobs", j.Key(), 1000, 100*time.Hour)
		if err != nil {
			w.t.Fatal(err)
		}
		j.Places = []schemas.JobPlace{{Key: place.Key, Token: place.Token}}
	}
	for _, f := range change {
		f(&j)
	}
	if _, err := lifecycle.OpenJobs(w.bus).Create(w.t.Context(), j.Key(), j, 0); err != nil {
		w.t.Fatal(err)
	}
	return j
}

func inTurn(turn string) func(*schemas.Job) {
	return func(j *schemas.Job) { j.Turn, j.Agent, j.Conversation = schemas.TurnID(turn), "agent_1", "c-shared" }
}

func inGroup(id string, size int) func(*schemas.Job) {
	return func(j *schemas.Job) { j.Group, j.Conversation = &schemas.GroupRef{ID: id, Size: size}, "c-shared" }
}

func fromChannel(j *schemas.Job) {
	j.Origin = &schemas.Origin{Kind: "channel", Channel: "telegram", Route: json.RawMessage(`{"chat":1}`)}
}

// end publishes that a job has completed.
func (w *world) end(j schemas.Job, change ...func(*schemas.Completion)) {
	w.t.Helper()
	zero := 0
	c := schemas.Completion{
		Job: j.ID, Account: j.Account, State: schemas.JobCompleted, ReportedBy: schemas.ReportedByProvider, ExitCode: &zero, Logs: "done\n",
		LogBytes: 5, Finished: time.Now().UTC(),
	}
	for _, f := range change {
		f(&c)
	}
	if _, err := lifecycle.Complete(w.t.Context(), w.bus, c); err != nil {
		w.t.Fatal(err)
	}
}

func unstartedEnd(c *schemas.Completion) {
	c.State, c.ExitCode, c.Logs, c.LogBytes, c.ReportedBy, c.Reason = schemas.JobUnstarted, nil, "", 0, schemas.ReportedByCall, "cancelled"
}

// all reads a topic from its beginning.
func all[T schemas.Eventer](w *world, topic streams.Topic[T], filter string) []T {
	w.t.Helper()
	var list []T
	for e, err := range topic.Replay(w.t.Context(), w.bus, filter, schemas.Cursor{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, e.Value)
	}
	return list
}

// The result counts the published events of a conversation by their ids, only those that webhooks may want.
func (w *world) told(c schemas.ConversationID) map[string]int {
	w.t.Helper()
	count := map[string]int{}
	for _, e := range w.events(schemas.Call{Account: testAccount, Conversation: c}) {
		if slices.Contains(schemas.DeliverableTypes(), e.Type) {
			count[e.ID]++
		}
	}
	return count
}

// onceEach fails unless exactly these events were published on a conversation, each once with one delivery.
func (w *world) onceEach(c schemas.ConversationID, ids ...string) {
	w.t.Helper()
	told := w.told(c)
	sent := map[schemas.DeliveryID]int{}
	for _, d := range all(w, streams.Deliveries, schemas.WebhookChannel) {
		sent[d.ID]++
	}
	for _, id := range ids {
		if told[id] != 1 || sent[schemas.MakeDeliveryID(id, string(testEndpoint))] != 1 {
			w.t.Errorf("%s: told %d times, sent %d times, want each once", id, told[id], sent[schemas.MakeDeliveryID(id, string(testEndpoint))])
		}
	}
	if len(told) != len(ids) {
		w.t.Errorf("told %v, want %v", told, ids)
	}
}

// record reads the record of a job.
func (w *world) record(id schemas.JobID) schemas.Job {
	w.t.Helper()
	p, err := lifecycle.FindJob(w.t.Context(), w.bus, testAccount, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return p.Value
}

// followUps reads the follow-ups that agents got.
func (w *world) followUps() []schemas.FollowUp {
	w.t.Helper()
	return all(w, streams.Turns, string(testAccount))
}

func finishedID(j schemas.JobID) string { return schemas.JobFinishedID(testAccount, j) }

func followedID(group string, j schemas.JobID) string {
	return schemas.FollowUpEventID(testAccount, schemas.MakeFollowUpID(testAccount, group, j))
}
