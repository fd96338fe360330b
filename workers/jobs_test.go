package workers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
	"github.com/sandjet/sandjet/workers/sandboxes"
)

func TestABackgroundJobComesHome(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		tells  bool
		state  schemas.JobState
		via    schemas.ReportedBy
		code   int
	}{
		{"told by the provider", "print hello\nsleep 1m", true, schemas.JobCompleted, schemas.ReportedByProvider, 0},
		{"found by the keeper", "print hello\nsleep 1m\nexit 3", false, schemas.JobFailed, schemas.ReportedByProbe, 3},
		{"over before the launch is", "print hello", true, schemas.JobCompleted, schemas.ReportedByProvider, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				h.tells = c.tells
				memory := new(limits.Memory)
				w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
				w.employ(h, func(wk *Worker) {
					wk.Limiter, wk.AccountJobs = memory, 5
					wk.at = func(s stage, _ schemas.Call) error {
						if s == atLaunched { // long enough for an end to be reported before the start
							time.Sleep(2 * time.Second)
						}
						return nil
					}
				})
				call := w.publish(w.background("one", c.script))
				r := w.want(call, schemas.StatusCompleted)
				if r.StatusID != string(call.Job) || !strings.Contains(r.Text, "do not poll") {
					t.Errorf("the call says %+v, want the job's id and not to poll", r)
				}
				done := w.ended(call)
				if done.State != c.state || done.ReportedBy != c.via || done.ExitCode == nil || *done.ExitCode != c.code || done.Logs != "hello\n" {
					t.Errorf("the job ended as %+v, want %s with exit code %d via %s", done, c.state, c.code, c.via)
				}
				w.until("the record is final", func() bool { return w.recordOf(call).State == c.state })
				w.until("its places are free", func() bool {
					return free(t, memory, "jobs.acct_1", 1) && free(t, memory, "jobs."+sandboxes.Key(call), 1)
				})
				w.until("its end is told", func() bool { return slices.Contains(w.types(call), schemas.JobFinished) })
				types := w.types(call)
				if i, j := slices.Index(types, schemas.JobStarted), slices.Index(types, schemas.JobFinished); i < 0 || j < i {
					t.Errorf("the conversation has %v, want the job's start and then its end", types)
				}
				w.once(call)
			})
		})
	}
}

// Wherever a worker dies, its call has one result and its job starts at most once and settles once.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestAWorkerMayDieAtEveryStageOfALaunch(t *testing.T) {
	for _, c := range []struct {
		at     stage
		status schemas.Status
		state  schemas.JobState
		starts int
	}{
		{atDelivered, schemas.StatusCompleted, schemas.JobCompleted, 1},
		{atPrepared, schemas.StatusCompleted, schemas.JobCompleted, 1},
		{atStarted, schemas.StatusInterrupted, schemas.JobUnstarted, 0},
		{atLaunching, schemas.StatusInterrupted, schemas.JobLost, 0},
		{atLaunched, schemas.StatusInterrupted, schemas.JobCompleted, 1},
		{atRecorded, schemas.StatusCompleted, schemas.JobCompleted, 1},
		{atRan, schemas.StatusCompleted, schemas.JobCompleted, 1},
		{atFinished, schemas.StatusCompleted, schemas.JobCompleted, 1},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				w.settleJobs()
				died := make(chan *employed, 1)
				w.employ(h, w.dieAt(c.at, died))
				call := w.publish(w.background("one", "print hello\nsleep 2m"))
				<-died
				w.employ(h)
				r := w.want(call, c.status)
				launched := c.state != schemas.JobUnstarted
				if (r.StatusID != "") != launched {
					t.Errorf("the status id is %q, want one only for a job that may run", r.StatusID)
				}
				done := w.ended(call)
				if done.State != c.state || h.starts != c.starts {
					t.Errorf("the job is %s (%s) after %d starts, want %s after %d", done.State, done.Reason, h.starts, c.state, c.starts)
				}
				w.once(call)
				finished := 0
				for _, e := range w.types(call) {
					if e == schemas.JobFinished {
						finished++
					}
				}
				if want := map[bool]int{true: 1}[launched]; finished != want {
					t.Errorf("job.finished was told %d times, want %d", finished, want)
				}
				if j := w.recordOf(call); j.State != c.state {
					t.Errorf("the record says %s, want %s", j.State, c.state)
				}
			})
		})
	}
}

// A worker that was only suspended must not launch a job that another process has settled as not launched.
func TestAWorkerThatSleptDoesNotLaunch(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h, func(wk *Worker) {
			wk.at = func(s stage, c schemas.Call) error {
				if s == atStarted { // what another worker does that finds the start and no lease
					s := (&Worker{Bus: w.bus, Provider: h}).begin()
					r, err := s.launcher.Recover(t.Context(), c)
					if err != nil || r.Status != schemas.StatusInterrupted || r.StatusID != "" {
						t.Errorf("the other worker says %+v, %v, want interrupted without a job", r, err)
					}
				}
				return nil
			}
		})
		call := w.publish(w.background("one", "print hello"))
		if r := w.want(call, schemas.StatusInterrupted); r.StatusID != "" {
			t.Errorf("the result names the job %s, which will never run", r.StatusID)
		}
		w.once(call)
		if done := w.ended(call); done.State != schemas.JobUnstarted || h.starts != 0 {
			t.Errorf("the job is %s after %d starts, want it not started", done.State, h.starts)
		}
	})
}

func TestABackgroundCallThatStartsNothingSettlesItsJob(t *testing.T) {
	past := func(c *schemas.Call) { c.Deadline = time.Now().Add(-time.Minute) }
	for _, c := range []struct {
		name   string
		host   func(*jobHost) providers.Provider
		change []func(*schemas.Call)
		cancel bool
		status schemas.Status
		reason string
	}{
		{name: "its deadline has passed", change: []func(*schemas.Call){past}, status: schemas.StatusExpired, reason: "deadline"},
		{name: "it was cancelled", cancel: true, status: schemas.StatusCancelled, reason: "enough"},
		{
			name: "its provider has no jobs", host: func(h *jobHost) providers.Provider { return &h.fake },
			status: schemas.StatusFailed, reason: "background jobs are not available",
		},
		{name: "the provider refuses it", host: func(h *jobHost) providers.Provider {
			h.before = func(int) error { return schemas.OpErrorf(schemas.Unsupported, "start", "not in this box") }
			return h
		}, status: schemas.StatusFailed, reason: "not in this box"},
		{name: "the provider stays away", host: func(h *jobHost) providers.Provider {
			h.before = func(int) error { return schemas.OpErrorf(schemas.Unavailable, "start", "nobody is at home") }
			return h
		}, status: schemas.StatusFailed, reason: "nobody is at home"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				w.specs.keepNone()
				memory := new(limits.Memory)
				w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
				call := w.background("one", "print hello", c.change...)
				w.publish(call)
				if c.cancel {
					w.cancel(call)
				}
				var p providers.Provider = h
				if c.host != nil {
					p = c.host(h)
				}
				w.employ(p, func(wk *Worker) { wk.Limiter, wk.JobLimit = memory, 1 })
				r := w.want(call, c.status)
				done := w.ended(call)
				if r.StatusID != "" || done.State != schemas.JobUnstarted || done.ReportedBy != schemas.ReportedByCall ||
					!strings.Contains(done.Reason, c.reason) {
					t.Errorf("the job ended as %+v, want it not started because of %q", done, c.reason)
				}
				w.once(call)
				if slices.Contains(w.types(call), schemas.JobFinished) || h.started() != 0 {
					t.Error("what was never started is told to have ended")
				}
				if !free(t, memory, "jobs."+sandboxes.Key(call), 1) {
					t.Error("its place is held")
				}
				if len(h.boxes) != 0 {
					t.Errorf("boxes are left: %v", h.boxes)
				}
			})
		})
	}
}

func TestTheProviderIsAskedAgainUntilTheJobRuns(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.before = func(n int) error {
			switch n {
			case 1:
				return schemas.OpErrorf(schemas.Exhausted, "start", "no room")
			case 2: // the box is lost between its reservation and the start
				clear(h.boxes)
				h.released = append(h.released, "lost")
			}
			return nil
		}
		w.employ(h)
		call := w.publish(w.background("one", "sleep 1m"))
		w.want(call, schemas.StatusCompleted)
		if j := w.recordOf(call); j.State != schemas.JobRunning || j.Ref != h.jobs[call.Job].ref {
			t.Errorf("the record names %+v, want %+v", j.Ref, h.jobs[call.Job].ref)
		}
		w.ended(call)
	})
}

func TestAStartOfUnknownOutcomeIsFound(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.after = func(int) error { return schemas.OpErrorf(schemas.Interrupted, "start", "the connection broke") }
		w.employ(h)
		call := w.publish(w.background("one", "print hello\nsleep 5m"))
		if r := w.want(call, schemas.StatusInterrupted); r.StatusID != string(call.Job) {
			t.Errorf("the result has the status id %q, want that of a job that may run", r.StatusID)
		}
		w.until("the record says that it runs", func() bool { return w.recordOf(call).State == schemas.JobRunning })
		if done := w.ended(call); done.State != schemas.JobCompleted || h.starts != 1 {
			t.Errorf("the job is %s after %d starts, want it completed after one", done.State, h.starts)
		}
		if !slices.Contains(w.types(call), schemas.JobStarted) {
			t.Error("its start was not told")
		}
	})
}

func TestABoxOfItsOwnEndsWithItsJob(t *testing.T) {
	for _, c := range []struct {
		name       string
		dies, told bool
	}{
		{"its worker lives", false, false},
		{"its worker dies and another takes it over", true, false},
		{"its worker dies and the end is told before another takes it over", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				w.specs.keepNone()
				w.settleJobs()
				if !c.dies {
					w.employ(h)
				}
				died := make(chan *employed, 1)
				if c.dies {
					w.employ(h, w.dieAt(atFinished, died))
				}
				call := w.publish(w.background("one", "print hello\nsleep 10m"))
				w.want(call, schemas.StatusCompleted)
				if j := w.recordOf(call); !j.DedicatedSandbox || j.Ref.Sandbox.ID != "job."+j.Key() {
					t.Errorf("the box is %+v, want one for this job", j.Ref.Sandbox)
				}
				if c.told {
					_, err := lifecycle.Complete(t.Context(), w.bus, schemas.Completion{
						Job: call.Job, Account: call.Account, State: schemas.JobCompleted, ReportedBy: schemas.ReportedByCallback, Finished: time.Now(),
					})
					if err != nil {
						t.Fatal(err)
					}
					w.until("the record is final", func() bool { return w.recordOf(call).State.Final() })
				}
				if c.dies {
					<-died
					w.employ(h)
				}
				if done := w.ended(call); done.State != schemas.JobCompleted {
					t.Errorf("the job is %s", done.State)
				}
				w.until("the box is released", func() bool {
					h.mu.Lock()
					defer h.mu.Unlock()
					return slices.Contains(h.released, "job.acct_1.job_one")
				})
			})
		})
	}
}

func TestTheJobGetsItsLifetimeAndACallback(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		const life = 10 * time.Minute
		w.specs.change = func(s *schemas.Sandbox) { s.JobLifetime = schemas.Duration(life) }
		var cmd providers.Command
		var options providers.JobOptions
		h.asked = func(c providers.Command, o providers.JobOptions) { cmd, options = c, o }
		w.employ(h, func(wk *Worker) { wk.CallbackURL = "https://sandjet.example/" })
		call := w.publish(w.background("one", "sleep 48h"))
		w.want(call, schemas.StatusCompleted)
		j := w.recordOf(call)
		cb := options.Callback
		if cb == nil || cb.URL != "https://sandjet.example/sandbox-jobs/job_one/complete" {
			t.Fatalf("the callback is %+v", cb)
		}
		account, secret, _ := strings.Cut(cb.Token, ".")
		if sum := sha256.Sum256([]byte(cb.Token)); account != "acct_1" || len(secret) != 43 || j.TokenHash != hex.EncodeToString(sum[:]) {
			t.Errorf("the token %q does not fit the record's hash %s", cb.Token, j.TokenHash)
		}
		if cmd.Timeout != life || cmd.Env["SECRET"] != "s3cret" || !j.Deadline.Equal(j.Launched.Add(life)) {
			t.Errorf("the command is %+v, the deadline %s after the launch", cmd, j.Deadline.Sub(j.Launched))
		}
		if done := w.ended(call); done.State != schemas.JobExpired || done.Finished.Sub(j.Launched) < life-time.Second {
			t.Errorf("the job is %s after %s, want it expired at its lifetime's end", done.State, done.Finished.Sub(j.Launched))
		}
	})
}

func TestRedeliveredResultsWithoutALaunchSettleTheJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		// A worker died after the result and before the completion: the result is there, and the call comes.
		call := w.background("one", "print hello")
		event := schemas.NewEvent(call, schemas.CallFinished, schemas.FinishedID(call.Account, call.ID), time.Now(),
			lifecycle.Result(call, schemas.StatusCancelled, "Cancelled before it was started."))
		if err := streams.Events.Publish(t.Context(), w.bus, event); err != nil {
			t.Fatal(err)
		}
		w.publish(call)
		w.cancel(call) // a doubt, so that the worker looks
		w.settleJobs()
		w.employ(h)
		if done := w.ended(call); done.State != schemas.JobUnstarted {
			t.Errorf("the job is %s", done.State)
		}
		if h.started() != 0 {
			t.Error("it was started")
		}
	})
}

// The process that ended the call of a dead worker may not have known of the launch: the job counts.
func TestAResultWithoutAStatusIDDoesNotEndAJobThatRuns(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		died := make(chan *employed, 1)
		w.employ(h, w.dieAt(atRecorded, died))
		call := w.publish(w.background("one", "print hello\nsleep 5m"))
		<-died
		event := schemas.NewEvent(call, schemas.CallFinished, schemas.FinishedID(call.Account, call.ID), time.Now(),
			unrunResult(call, toInterrupt, ""))
		if err := streams.Events.Publish(t.Context(), w.bus, event); err != nil {
			t.Fatal(err)
		}
		w.employ(h)
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Errorf("the job is %s (%s), want it completed", done.State, done.Reason)
		}
	})
}

// TestJobsAreStartedInTurn: dozens of background calls of one account wait for a worker that takes a while to start each. Another
// account's job is started when a few more are.
//
//guarantee:what-one-tenant-can-do-to-another
func TestJobsAreStartedInTurn(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		const flood, slots = 60, 4
		long := func(c *schemas.Call) { c.Deadline = time.Now().Add(20 * time.Hour) }
		for n := range flood {
			w.publish(w.background(fmt.Sprint("flood", n), "sleep 1m", long))
		}
		w.employ(h, func(wk *Worker) {
			wk.Slots, wk.JobLimit = slots, flood
			wk.at = func(s stage, _ schemas.Call) error {
				if s == atPrepared {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		for n := range 3 {
			time.Sleep(2 * time.Second)
			before := h.started()
			other := w.publish(w.background(fmt.Sprint("other", n), "sleep 1m", long, func(c *schemas.Call) { c.Account = "acct_other" }))
			w.want(other, schemas.StatusCompleted)
			if behind := h.started() - before; behind > 3*slots {
				t.Errorf("job %d was started behind %d of the other account, want %d at most", n, behind, 3*slots)
			}
		}
		w.until("all are started", func() bool { return h.started() == flood+3 })
	})
}
