package workers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
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
		via    schemas.Via
		code   int
	}{
		{"told by the provider", "print hello\nsleep 1m", true, schemas.JobCompleted, schemas.ViaProvider, 0},
		{"found by the keeper", "print hello\nsleep 1m\nexit 3", false, schemas.JobFailed, schemas.ViaProbe, 3},
		{"over before the launch is", "print hello", true, schemas.JobCompleted, schemas.ViaProvider, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				h.tells = c.tells
				memory := new(limits.Memory)
				w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
				w.employ(h, func(wk *Worker) {
					wk.Limiter, wk.AccountJobs = memory, 5
					wk.at = func(s stage, _ schemas.Call) error {
						if s == atLaunched { // long enough for an end to be told before the start
							time.Sleep(2 * time.Second)
						}
						return nil
					}
				})
				call := w.publish(w.background("one", c.script))
				r := w.want(call, schemas.Completed)
				if r.StatusID != string(call.Job) || !strings.Contains(r.Text, "do not poll") {
					t.Errorf("the call says %+v, want the job's id and not to poll", r)
				}
				done := w.ended(call)
				if done.State != c.state || done.Via != c.via || done.ExitCode == nil || *done.ExitCode != c.code || done.Logs != "hello\n" {
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

// free reports whether a cap of most places has room.
func free(t *testing.T, l limits.Limiter, key string, most int) bool {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, "the test", most, time.Minute)
	if err != nil {
		return false
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return true
}

// Wherever a worker dies, its call has one result and its job starts at most once and settles once.
func TestAWorkerMayDieAtEveryStageOfALaunch(t *testing.T) {
	for _, c := range []struct {
		at     stage
		status schemas.Status
		state  schemas.JobState
		starts int
	}{
		{atDelivered, schemas.Completed, schemas.JobCompleted, 1},
		{atPrepared, schemas.Completed, schemas.JobCompleted, 1},
		{atStarted, schemas.Broken, schemas.JobUnstarted, 0},
		{atLaunching, schemas.Broken, schemas.JobLost, 0},
		{atLaunched, schemas.Broken, schemas.JobCompleted, 1},
		{atRecorded, schemas.Completed, schemas.JobCompleted, 1},
		{atRan, schemas.Completed, schemas.JobCompleted, 1},
		{atFinished, schemas.Completed, schemas.JobCompleted, 1},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
				w.settleJobs()
				died := make(chan *employed, 1)
				var first *employed
				first = w.employ(h, w.dieAt(c.at, died, &first))
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

// A worker that was only asleep must not launch what others have called not launched.
func TestAWorkerThatSleptDoesNotLaunch(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		w.settleJobs()
		w.employ(h, func(wk *Worker) {
			wk.at = func(s stage, c schemas.Call) error {
				if s == atStarted { // what another worker does that finds the start and no lease
					s := (&Worker{Bus: w.bus, Provider: h}).begin()
					r, err := (&execution{w: s, call: c}).recovered(t.Context())
					if err != nil || r.Status != schemas.Broken || r.StatusID != "" {
						t.Errorf("the other worker says %+v, %v, want interrupted without a job", r, err)
					}
				}
				return nil
			}
		})
		call := w.publish(w.background("one", "print hello"))
		if r := w.want(call, schemas.Broken); r.StatusID != "" {
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
		{name: "its deadline has passed", change: []func(*schemas.Call){past}, status: schemas.Expired, reason: "deadline"},
		{name: "it was cancelled", cancel: true, status: schemas.Cancelled, reason: "enough"},
		{
			name: "its provider has no jobs", host: func(h *jobHost) providers.Provider { return &h.fake },
			status: schemas.Failed, reason: "background jobs are not available",
		},
		{name: "the provider refuses it", host: func(h *jobHost) providers.Provider {
			h.before = func(int) error { return schemas.Errorf(schemas.Unsupported, "start", "not in this box") }
			return h
		}, status: schemas.Failed, reason: "not in this box"},
		{name: "the provider stays away", host: func(h *jobHost) providers.Provider {
			h.before = func(int) error { return schemas.Errorf(schemas.Unavailable, "start", "nobody is at home") }
			return h
		}, status: schemas.Failed, reason: "nobody is at home"},
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
				if r.StatusID != "" || done.State != schemas.JobUnstarted || done.Via != schemas.ViaCall || !strings.Contains(done.Reason, c.reason) {
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
				return schemas.Errorf(schemas.Exhausted, "start", "no room")
			case 2: // the box is lost between its reservation and the start
				clear(h.boxes)
				h.released = append(h.released, "lost")
			}
			return nil
		}
		w.employ(h)
		call := w.publish(w.background("one", "sleep 1m"))
		w.want(call, schemas.Completed)
		if j := w.recordOf(call); j.State != schemas.JobRunning || j.Ref != h.jobs[call.Job].ref {
			t.Errorf("the record names %+v, want %+v", j.Ref, h.jobs[call.Job].ref)
		}
		w.ended(call)
	})
}

func TestAStartOfUnknownOutcomeIsFound(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		h.after = func(int) error { return schemas.Errorf(schemas.Interrupted, "start", "the connection broke") }
		w.employ(h)
		call := w.publish(w.background("one", "print hello\nsleep 5m"))
		if r := w.want(call, schemas.Broken); r.StatusID != string(call.Job) {
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

func TestTheCapOfJobsOfASandbox(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		memory := new(limits.Memory)
		w.settleJobs(func(s *maintenance.Settler) { s.Limiter = memory })
		for range 2 { // the cap is one over all workers
			w.employ(h, func(wk *Worker) { wk.Limiter, wk.Slots = memory, 16 })
		}
		var calls []schemas.Call
		for i := range schemas.DefaultJobs + 1 {
			calls = append(calls, w.publish(w.background(fmt.Sprint("n", i), "sleep 10m")))
		}
		refused := 0
		for _, c := range calls {
			r := w.result(c)
			if r.Status == schemas.Completed {
				continue
			}
			refused++
			if r.Error == nil || r.Error.Code != schemas.Exhausted || !strings.Contains(r.Text, "background job limit reached (10 concurrent)") {
				t.Errorf("the one above the cap says %+v", r)
			}
		}
		if refused != 1 || h.started() != schemas.DefaultJobs {
			t.Errorf("%d of %d were refused and %d run, want one and %d", refused, len(calls), h.started(), schemas.DefaultJobs)
		}
		for _, c := range calls {
			w.ended(c)
		}
		w.until("ten fit again", func() bool { return free(t, memory, "jobs."+sandboxes.Key(calls[0]), 1) })
		w.want(w.publish(w.background("later", "sleep 1s")), schemas.Completed)
	})
}

// wayward is a limiter that is away at times and may forget.
type wayward struct {
	limits.Limiter

	mu   sync.Mutex
	away bool
}

func (l *wayward) set(away bool, fresh limits.Limiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if fresh != nil {
		l.Limiter = fresh
	}
}

func (l *wayward) now() (limits.Limiter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, schemas.Errorf(schemas.Unavailable, "limiter", "connection refused")
	}
	return l.Limiter, nil
}

func (l *wayward) Acquire(ctx context.Context, key, holder string, most int, ttl time.Duration) (limits.Lease, error) {
	m, err := l.now()
	if err != nil {
		return limits.Lease{}, err
	}
	return m.Acquire(ctx, key, holder, most, ttl)
}

func (l *wayward) Renew(ctx context.Context, ttl time.Duration, leases ...limits.Lease) ([]limits.Lease, error) {
	m, err := l.now()
	if err != nil {
		return nil, err
	}
	return m.Renew(ctx, ttl, leases...)
}

func (l *wayward) Release(ctx context.Context, leases ...limits.Lease) error {
	m, err := l.now()
	if err != nil {
		return err
	}
	return m.Release(ctx, leases...)
}

func TestCallsWaitForALimiterThatIsAway(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		l := &wayward{Limiter: new(limits.Memory), away: true}
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.AccountCap = l, 5 })
		foreground, background := w.publish(w.call("fore", schemas.ToolBash)), w.publish(w.background("back", "sleep 1m"))
		time.Sleep(5 * time.Minute)
		if slices.Contains(w.types(foreground), schemas.CallStarted) || slices.Contains(w.types(background), schemas.CallStarted) {
			t.Error("a call was started while its cap could not be asked for")
		}
		l.set(false, nil)
		w.want(foreground, schemas.Completed)
		w.want(background, schemas.Completed)
	})
}

func TestPlacesThatALimiterForgotAreTakenAgain(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		l := &wayward{Limiter: new(limits.Memory)}
		w.settleJobs(func(s *maintenance.Settler) { s.Limiter = l })
		w.employ(h, func(wk *Worker) { wk.Limiter, wk.JobLimit = l, 1 })
		call := w.publish(w.background("one", "sleep 1h"))
		w.want(call, schemas.Completed)
		time.Sleep(10 * time.Minute)
		if free(t, l, "jobs."+sandboxes.Key(call), 1) {
			t.Fatal("the place of a job that runs was not kept")
		}
		l.set(true, nil)
		time.Sleep(10 * time.Minute)
		l.set(false, new(limits.Memory))
		w.until("the place is held again", func() bool { return !free(t, l, "jobs."+sandboxes.Key(call), 1) })
		if r := w.want(w.publish(w.background("two", "sleep 1s")), schemas.Failed); r.Error.Code != schemas.Exhausted {
			t.Errorf("another job beside it: %+v, want the cap to be kept", r)
		}
		w.ended(call)
		w.until("the place is free", func() bool { return free(t, l, "jobs."+sandboxes.Key(call), 1) })
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
				var first *employed
				if c.dies {
					first = w.employ(h, w.dieAt(atFinished, died, &first))
				}
				call := w.publish(w.background("one", "print hello\nsleep 10m"))
				w.want(call, schemas.Completed)
				if j := w.recordOf(call); !j.Own || j.Ref.Sandbox.ID != "job."+j.Key() {
					t.Errorf("the box is %+v, want one for this job", j.Ref.Sandbox)
				}
				if c.told {
					_, err := lifecycle.Complete(t.Context(), w.bus, schemas.Completion{
						Job: call.Job, Account: call.Account, State: schemas.JobCompleted, Via: schemas.ViaCallback, Finished: time.Now(),
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
		w.want(call, schemas.Completed)
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

func TestLifetimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ asked, want time.Duration }{
		{0, schemas.DefaultJobLifetime},
		{time.Minute, time.Minute},
		{100 * 24 * time.Hour, schemas.MaxJobLifetime},
	} {
		if got := lifetime(schemas.Sandbox{JobLifetime: schemas.Duration(c.asked)}); got != c.want {
			t.Errorf("asked for %s: %s, want %s", c.asked, got, c.want)
		}
	}
}

func TestRedeliveredResultsWithoutALaunchSettleTheJob(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		// A worker died after the result and before the completion: the result is there, and the call comes.
		call := w.background("one", "print hello")
		event := schemas.NewEvent(call, schemas.CallFinished, schemas.FinishedID(call.Account, call.ID), time.Now(),
			lifecycle.Result(call, schemas.Cancelled, "Cancelled before it was started."))
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

// Whoever gave up the call of a dead worker may not have known of the launch: the job counts.
func TestAResultWithoutAStatusIDDoesNotEndAJobThatRuns(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		died := make(chan *employed, 1)
		var first *employed
		first = w.employ(h, w.dieAt(atRecorded, died, &first))
		call := w.publish(w.background("one", "print hello\nsleep 5m"))
		<-died
		event := schemas.NewEvent(call, schemas.CallFinished, schemas.FinishedID(call.Account, call.ID), time.Now(), unrunResult(call, toInterrupt, ""))
		if err := streams.Events.Publish(t.Context(), w.bus, event); err != nil {
			t.Fatal(err)
		}
		w.employ(h)
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Errorf("the job is %s (%s), want it completed", done.State, done.Reason)
		}
	})
}
