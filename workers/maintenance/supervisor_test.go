package maintenance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

func TestAHousekeeperThatFailsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed, fails, steady, ended atomic.Int64
		s := &Supervisor{Failed: func(name string) {
			if failed.Add(1); name != "fails" {
				t.Errorf("%s is said to have failed", name)
			}
		}, Housekeepers: []Housekeeper{
			{"fails", func(context.Context) error { fails.Add(1); return errors.New("no") }},
			{"steady", func(ctx context.Context) error {
				steady.Add(1)
				<-ctx.Done()
				time.Sleep(time.Minute) // simulates work in flight
				ended.Add(1)
				return ctx.Err()
			}},
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := fails.Load(); n < 4 || n > 8 { // after 0.5 to 1 s, 1 to 2 s, 2 to 4 s, …
			t.Errorf("it was started %d times in 10 s", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := fails.Load(); n < 60 || n > 130 {
			t.Errorf("it was started %d times in an hour; want once in 30 to 60 s", n)
		}
		if failed.Load() != fails.Load() || steady.Load() != 1 {
			t.Errorf("%d failures reported of %d, the other was started %d times", failed.Load(), fails.Load(), steady.Load())
		}
		stop()
		if err := <-done; err != nil || ended.Load() != 1 {
			t.Errorf("Run returned %v, with %d of 1 ended", err, ended.Load())
		}
	})
}

func TestALongRunForgetsEarlierFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began []time.Time
		s := &Supervisor{Housekeepers: []Housekeeper{{"x", func(ctx context.Context) error {
			if began = append(began, time.Now()); len(began) > 20 {
				time.Sleep(healthy)
			}
			return errors.New("no")
		}}}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(2 * time.Hour)
		stop()
		if err := <-done; err != nil || len(began) < 25 {
			t.Fatalf("%d starts, %v", len(began), err)
		}
		if pause := began[22].Sub(began[21]) - healthy; pause > restart.First {
			t.Errorf("after a long run it stayed ended for %s; want %s at most", pause, restart.First)
		}
	})
}

// world is a NATS server in virtual time, used by several processes.
type world struct {
	*testing.T

	log streams.Options
	bus *streams.Bus // for the test itself
}

func inWorld(t *testing.T, f func(w *world), options ...natstest.Option) {
	t.Helper()
	var log *streams.Options
	natstest.Run(t, func(t *testing.T, b *streams.Bus) { f(&world{T: t, log: *log, bus: b}) },
		append(options, func(s *natstest.Settings) { log = &s.Log })...)
}

// open opens another connection, as another process would.
func (w *world) open() *streams.Bus {
	w.Helper()
	b, err := streams.Open(w.Context(), w.log)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// cut closes a connection at once: messages in flight are lost, as when its process is killed.
func cut(b *streams.Bus) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = b.Close(ctx) // it reports that it did not wait
}

// process is a housekeeper that runs on a connection of its own.
type process struct {
	bus  *streams.Bus
	stop func()
}

func (w *world) begin(part func(*streams.Bus) func(context.Context) error) process {
	w.Helper()
	p := process{bus: w.open()}
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan error, 1)
	run := part(p.bus)
	go func() { done <- run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			w.Error(err)
		}
		cut(p.bus)
	})
	return p
}

// running stores the record of a job that runs in a sandbox which ends with its worker.
func (w *world) running(id, worker string, change ...func(*schemas.Job)) schemas.Job {
	w.Helper()
	now := time.Now().UTC()
	j := schemas.Job{
		ID: schemas.JobID("job_" + id), Account: testAccount, Conversation: "c", Call: schemas.CallID("call_" + id), Tool: schemas.ToolBash,
		Command: "make", Provider: "fake", Workspace: "ws_1", Sandbox: "sb_1", State: schemas.JobRunning, Worker: worker, EndsWithWorker: true,
		Created: now, Launched: now, Deadline: now.Add(24 * time.Hour),
	}
	for _, f := range change {
		f(&j)
	}
	if _, err := lifecycle.OpenJobs(w.bus).Create(w.Context(), j.Key(), j, 0); err != nil {
		w.Fatal(err)
	}
	return j
}

// completed returns how a job ended; false if it runs.
func (w *world) completed(j schemas.Job) (schemas.Completion, bool) {
	w.Helper()
	c, err := lifecycle.FindCompletion(w.Context(), w.bus, j.Account, j.ID)
	if err != nil && !errors.Is(err, schemas.ErrNotFound) {
		w.Fatal(err)
	}
	return c, err == nil
}

// One process rescues jobs. When it crashes, another takes over; when it shuts down, another takes over at once.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAnotherProcessTakesOverTheRescueOfJobs(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(process)
		within time.Duration
	}{
		"the first ends": {func(p process) { p.stop() }, 15 * time.Second},
		"the first dies": {func(p process) { cut(p.bus) }, streams.DutyTakenOver},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				rescuer := func(b *streams.Bus) func(context.Context) error { return (&JobRescuer{Bus: b}).Run }
				first := w.begin(rescuer)
				defer first.stop()
				time.Sleep(time.Second)
				second := w.begin(rescuer)
				defer second.stop()
				one := w.running("1", "dead")
				time.Sleep(2 * time.Minute)
				if got, ended := w.completed(one); !ended || got.State != schemas.JobLost {
					w.Errorf("beside the first: %+v", got)
				}
				c.end(first)
				two := w.running("2", "dead")
				time.Sleep(c.within + 2*time.Minute)
				if got, ended := w.completed(two); !ended || got.State != schemas.JobLost {
					w.Errorf("beside the second: %+v", got)
				}
			})
		})
	}
}

// rescuing returns the state of a JobRescuer that has read the open jobs and found no lease of the worker "dead".
func rescuing(b *streams.Bus) *rescue {
	r := (&JobRescuer{Bus: b}).rescue(nil)
	r.absent["dead"] = b.Now().Add(-time.Hour)
	return r
}

// A process reads the open jobs, is suspended for eleven minutes before its next step, and continues.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestARescuerThatStoodStillEndsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		still := rescuing(w.bus)
		still.tenure = &streams.Tenure{} // it began long ago, so that another process has the duty
		moved, left := w.running("1", "dead"), w.running("2", "dead")
		g := schemas.Group{
			ID: "g", Account: testAccount, Conversation: "c", Size: 2, Settled: []schemas.JobID{"job_9"},
			Created: w.bus.Now(), Deadline: w.bus.Now(),
		}
		rev, err := lifecycle.OpenGroups(w.bus).Create(w.Context(), lifecycle.GroupKey(g.Account, g.ID), g, 0)
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		now := moved
		now.Worker = "living" // it took the job over meanwhile
		if _, err := lifecycle.OpenJobs(w.bus).Put(w.Context(), now.Key(), now); err != nil {
			w.Fatal(err)
		}
		if err := still.sweepJob(w.Context(), openJobOf(moved)); err != nil {
			w.Errorf("a job that another worker has: %v", err)
		}
		if err := still.sweepJob(w.Context(), openJobOf(left)); schemas.CodeOf(err) != schemas.Interrupted {
			w.Errorf("a job that nobody has: %v; want that the duty is another's", err)
		}
		if err := still.closeOverdue(w.Context(), streams.BucketEntry[schemas.Group]{
			Key: lifecycle.GroupKey(g.Account, g.ID), Value: g, Revision: rev,
		}); schemas.CodeOf(err) != schemas.Interrupted {
			w.Errorf("a group: %v; want that the duty is another's", err)
		}
		for _, j := range []schemas.Job{moved, left} {
			if c, ended := w.completed(j); ended {
				w.Errorf("%s was ended: %+v", j.ID, c)
			}
		}
	})
}

// Two processes that both hold the duty for a moment take each step, at the same time and one after the other: the effects occur once.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestTwoRescuersAtOnceEndAJobAndAGroupOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		groups := lifecycle.OpenGroups(w.bus)
		inGroup := func(j *schemas.Job) {
			zero := 0
			j.Turn, j.Agent, j.Group = "turn_1", "agent_1", &schemas.GroupRef{ID: "g", Size: 2}
			j.State, j.Completion = schemas.JobCompleted, &schemas.Completion{
				Job: j.ID, Account: j.Account, State: schemas.JobCompleted, ReportedBy: schemas.ReportedByProvider, ExitCode: &zero,
				Finished: j.Created,
			}
		}
		lost, member := w.running("1", "dead"), w.running("2", "dead", inGroup)
		g := schemas.Group{
			ID: "g", Account: testAccount, Conversation: "c", Turn: "turn_1", Agent: "agent_1", Size: 2, Settled: []schemas.JobID{member.ID},
			Created: w.bus.Now(), Deadline: w.bus.Now(),
		}
		key := lifecycle.GroupKey(g.Account, g.ID)
		rev, err := groups.Create(w.Context(), key, g, 0)
		if err != nil {
			w.Fatal(err)
		}
		seen := streams.BucketEntry[schemas.Group]{Key: key, Value: g, Revision: rev}
		for range 2 {
			var both sync.WaitGroup
			for range 2 {
				x := rescuing(w.open())
				both.Go(func() {
					defer cut(x.bus)
					if err := x.sweepJob(w.Context(), openJobOf(lost)); err != nil {
						w.Errorf("the job: %v", err)
					}
					if err := x.closeOverdue(w.Context(), seen); err != nil {
						w.Errorf("the group: %v", err)
					}
				})
			}
			both.Wait()
			if p, err := groups.Get(w.Context(), key); err != nil || !p.Value.Done || p.Value.Missing != 1 {
				w.Errorf("the group is %+v, %v", p.Value, err)
			} else {
				seen = p // as the next round reads it
				seen.Value.Done = false
			}
		}
		if c, ended := w.completed(lost); !ended || c.State != schemas.JobLost {
			w.Errorf("the job: %+v", c)
		}
		counts := map[string]int{}
		for e, err := range streams.Completions.Replay(w.Context(), w.bus, "", schemas.Cursor{}) {
			if err != nil {
				w.Fatal(err)
			}
			counts["completion "+string(e.Value.Job)]++
		}
		for e, err := range streams.Turns.Replay(w.Context(), w.bus, "", schemas.Cursor{}) {
			if err != nil {
				w.Fatal(err)
			}
			counts["turn "+string(e.Value.Turn)]++
		}
		for e, err := range streams.Events.Replay(w.Context(), w.bus, string(testAccount)+"/c", schemas.Cursor{}) {
			if err != nil {
				w.Fatal(err)
			}
			counts[string(e.Value.Type)]++
		}
		for _, what := range []string{"completion job_1", "turn turn_1", string(schemas.FollowUpCreated)} {
			if counts[what] != 1 {
				w.Errorf("%s: %d times, want once", what, counts[what])
			}
			delete(counts, what)
		}
		if len(counts) > 0 {
			w.Errorf("and %v", counts)
		}
	})
}
