package workers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/leases"
)

// launched employs a worker that launches a job and dies, and returns the call.
func (w *world) launched(h *jobHost, script string) schemas.Call {
	w.t.Helper()
	died := make(chan *employed, 1)
	w.employ(h, w.dieAt(atFinished, died))
	call := w.publish(w.background("one", script))
	w.want(call, schemas.StatusCompleted)
	<-died
	return call
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAJobOfADeadWorkerIsTakenOver(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		call := w.launched(h, "print hello\nsleep 10m\nexit 4")
		before := w.recordOf(call).Worker
		w.employ(h)
		w.employ(h)
		w.until("another looks after it", func() bool { return w.recordOf(call).Worker != before })
		reply, err := lifecycle.ControlJob(t.Context(), w.bus,
			schemas.JobCommand{Account: call.Account, Job: call.Job, Action: schemas.JobActionLogs})
		if err != nil || string(reply.Data) != "hello\n" {
			t.Errorf("its logs are %q, %v", reply.Data, err)
		}
		if done := w.ended(call); done.State != schemas.JobFailed || *done.ExitCode != 4 {
			t.Errorf("it ended as %+v, want exit code 4", done)
		}
	})
}

// TestAJobOutlivesMomentsWithoutALease: the lease of its worker is missing for less than a second now and then, as after outages of
// the log, while another worker reads it.
//
//guarantee:side-effects-are-started-at-most-once
func TestAJobOutlivesMomentsWithoutALease(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.tied = true
		w.employ(h)
		call := w.publish(w.background("one", "sleep 10m"))
		w.want(call, schemas.StatusCompleted)
		owner := w.recordOf(call).Worker
		w.employ(newJobHost(), func(wk *Worker) { wk.Name = "fake" })
		all := leases.Open(w.bus)
		for range 100 { // in step with nothing
			if err := all.Delete(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2700 * time.Millisecond)
		}
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Errorf("it ended as %+v, want it completed", done)
		}
	})
}

func TestAJobThatIsTiedToItsWorkerIsLostWithIt(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.tied = true
		call := w.launched(h, "sleep 10h")
		h.lose() // its boxes end with it
		w.employ(newJobHost(), func(wk *Worker) { wk.Name = "fake" })
		if done := w.ended(call); done.State != schemas.JobLost || !strings.Contains(done.Reason, "worker") {
			t.Errorf("it ended as %+v, want it lost with its worker", done)
		}
	})
}

// TestAWorkerSaysWhichJobsEndWithIt: an operator who stops it is to know.
func TestAWorkerSaysWhichJobsEndWithIt(t *testing.T) {
	for name, tied := range map[string]bool{"tied": true, "not tied": false} {
		t.Run(name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				h.tied = tied
				var said bytes.Buffer
				e := w.employ(h, func(wk *Worker) { wk.Log = slog.New(slog.NewTextHandler(&said, nil)) })
				for _, id := range []schemas.CallID{"one", "two"} {
					w.want(w.publish(w.background(string(id), "sleep 10h")), schemas.StatusCompleted)
				}
				time.Sleep(time.Minute) // the worker has seen that they run
				e.retire()
				if got := strings.Contains(said.String(), "background jobs end with this worker") && strings.Contains(said.String(), "jobs=2"); got != tied {
					t.Errorf("it says so: %t, want %t: %s", got, tied, said.String())
				}
			})
		})
	}
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAJobWhoseSandboxVanishesIsLost(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.employ(h)
		call := w.publish(w.background("one", "sleep 10h"))
		w.want(call, schemas.StatusCompleted)
		h.lose()
		lost := time.Now()
		if done := w.ended(call); done.State != schemas.JobLost || done.ExitCode != nil || time.Since(lost) > time.Minute {
			t.Errorf("it ended as %+v after %s, want it lost soon", done, time.Since(lost))
		}
	})
}

func TestAnotherStartUnderTheSameNameIsNotTheJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.employ(h)
		call := w.publish(w.background("one", "sleep 10h"))
		w.want(call, schemas.StatusCompleted)
		h.mu.Lock()
		h.jobs[call.Job].ref.Instance = "another"
		h.mu.Unlock()
		if done := w.ended(call); done.State != schemas.JobLost {
			t.Errorf("it ended as %+v, want it lost", done)
		}
	})
}

func TestASandboxThatIsAwayForAWhileLosesNothing(t *testing.T) {
	natstest.Hours(t)
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		var away atomic.Bool
		h.blocked = func(context.Context, schemas.JobRef) error {
			if away.Load() {
				return schemas.OpErrorf(schemas.Unavailable, "job", "no route to host")
			}
			return nil
		}
		w.employ(h)
		call := w.publish(w.background("one", "sleep 20m"))
		w.want(call, schemas.StatusCompleted)
		away.Store(true)
		time.Sleep(time.Hour)
		if _, err := lifecycle.FindCompletion(t.Context(), w.bus, call.Account, call.Job); schemas.CodeOf(err) != schemas.NotFound {
			t.Errorf("it was called over while nobody could look: %v", err)
		}
		away.Store(false)
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Errorf("it ended as %+v", done)
		}
	})
}

func TestAJobThatOutlivesItsLifetimeIsStopped(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.specs.change = func(s *schemas.Sandbox) { s.JobLifetime = schemas.Duration(10 * time.Minute) }
		w.employ(&sluggish{h})
		call := w.publish(w.background("one", "sleep 10h"))
		w.want(call, schemas.StatusCompleted)
		if done := w.ended(call); done.State != schemas.JobExpired || done.Reason == "" {
			t.Errorf("it ended as %+v, want it expired", done)
		}
	})
}

// sluggish does not keep to a job's lifetime.
type sluggish struct{ *jobHost }

func (p *sluggish) StartJob(ctx context.Context, id schemas.JobID, cmd providers.Command, o providers.JobOptions) (schemas.JobRef, error) {
	cmd.Timeout = 100 * time.Hour
	return p.jobHost.StartJob(ctx, id, cmd, o)
}

// starter can start jobs and cannot monitor them.
type starter struct{ host *jobHost }

func (p starter) Profile() providers.Profile { return p.host.Profile() }
func (p starter) Run(ctx context.Context, c providers.Command) (providers.Result, error) {
	return p.host.Run(ctx, c)
}

func (p starter) Reserve(ctx context.Context, key string, s providers.Spec) (schemas.Ref, error) {
	return p.host.Reserve(ctx, key, s)
}
func (p starter) Release(ctx context.Context, ref schemas.Ref) error { return p.host.Release(ctx, ref) }
func (p starter) StartJob(ctx context.Context, id schemas.JobID, c providers.Command, o providers.JobOptions) (schemas.JobRef, error) {
	return p.host.StartJob(ctx, id, c, o)
}

func TestAJobThatNobodyCanLookAtEndsWithItsLifetime(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.specs.change = func(s *schemas.Sandbox) { s.JobLifetime = schemas.Duration(10 * time.Minute) }
		w.employ(starter{h})
		call := w.publish(w.background("one", "sleep 1m"))
		if r := w.want(call, schemas.StatusCompleted); strings.Contains(r.Text, "async_status") {
			t.Errorf("%q offers what this sandbox does not have", r.Text)
		}
		_, err := lifecycle.ControlJob(t.Context(), w.bus,
			schemas.JobCommand{Account: call.Account, Job: call.Job, Action: schemas.JobActionStop})
		if schemas.CodeOf(err) != schemas.Unsupported || !strings.Contains(err.Error(), "it offers status") {
			t.Errorf("stop is answered with %v", err)
		}
		if done := w.ended(call); done.State != schemas.JobExpired || done.ExitCode != nil {
			t.Errorf("it ended as %+v, want it expired without an exit code", done)
		}
	})
}

// A job that another process has declared lost must not keep running when it turns up again.
func TestAJobThatWasDeclaredLostIsStopped(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		var stops atomic.Int32
		h.stopped = func(schemas.JobRef) { stops.Add(1) }
		w.settleJobs()
		w.employ(h)
		call := w.publish(w.background("one", "sleep 10h"))
		w.want(call, schemas.StatusCompleted)
		_, err := lifecycle.Complete(t.Context(), w.bus, schemas.Completion{
			Job: call.Job, Account: call.Account, State: schemas.JobLost, ReportedBy: schemas.ReportedByProbe,
			Reason: "so they said", Finished: time.Now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.until("it is stopped", func() bool { return stops.Load() > 0 })
	})
}

func TestManyJobsAreLookedAtAFewAtATime(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		var looks, most atomic.Int32
		h.blocked = func(ctx context.Context, _ schemas.JobRef) error {
			n := looks.Add(1)
			defer looks.Add(-1)
			for {
				m := most.Load()
				if n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			wait.Sleep(ctx, 100*time.Millisecond)
			return nil
		}
		w.specs.change = func(s *schemas.Sandbox) { s.JobLimit = 100 }
		w.employ(h, func(wk *Worker) { wk.Slots = 16 })
		var calls []schemas.Call
		for i := range 40 {
			calls = append(calls, w.publish(w.background(fmt.Sprint("n", i), "sleep 3m")))
		}
		for _, c := range calls {
			if done := w.ended(c); done.State != schemas.JobCompleted {
				t.Errorf("%s is %s", c.Job, done.State)
			}
		}
		const atOnce = 8
		if m := most.Load(); m > atOnce {
			t.Errorf("%d looks at the same time, want at most %d", m, atOnce)
		}
	})
}
