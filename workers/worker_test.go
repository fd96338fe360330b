package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

func TestACallIsRunAndAnswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		var waited, ran, finished atomic.Int32
		w.employ(p, func(wk *Worker) {
			wk.Metrics = Metrics{
				Wait:     func(schemas.Tool, time.Duration) { waited.Add(1) },
				Run:      func(schemas.Tool, time.Duration) { ran.Add(1) },
				Finished: func(schemas.Tool, schemas.Status) { finished.Add(1) },
			}
		})
		c := w.publish(w.call("call_1", schemas.ToolBash))
		r := w.want(c, schemas.Completed)
		if r.Call != c.ID || r.Conversation != c.Conversation || r.Output.Stdout != "hello\n" || r.Started.IsZero() || r.Finished.IsZero() {
			t.Errorf("result %+v", r)
		}
		w.once(c)
		if got := w.types(c); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallOutput, schemas.CallFinished}) {
			t.Errorf("events %v", got)
		}
		if p.count() != 1 || waited.Load() != 1 || ran.Load() != 1 || finished.Load() != 1 {
			t.Errorf("%d runs, %d waits, %d ran, %d finished: want one of each", p.count(), waited.Load(), ran.Load(), finished.Load())
		}
		cmd := p.runs[0]
		want := "/mnt/workspaces/" + schemas.Namespace(testAccount, "ws_1")
		if cmd.Dir != want || cmd.Env["SECRET"] != "s3cret" || cmd.Timeout != schemas.DefaultTimeout || cmd.Spec.Account != testAccount {
			t.Errorf("command %+v", cmd)
		}
		for _, e := range w.events(c) {
			if strings.Contains(string(e.Data), "s3cret") {
				t.Errorf("a secret is on the log: %s", e.Data)
			}
		}
	})
}

func TestTheTimeoutIsTheSmallest(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		w.employ(p)
		c := w.call("call_1", schemas.ToolBash, func(c *schemas.Call) {
			c.Timeout, c.Deadline = schemas.Duration(time.Minute), time.Now().Add(10*time.Second)
		})
		w.want(w.publish(c), schemas.Completed)
		if d := p.runs[0].Timeout; d > 10*time.Second || d < 5*time.Second {
			t.Errorf("timeout %v of a call with a deadline in 10 s", d)
		}
	})
}

// TestAWorkerDiesAtEachStage is the first two promises in one process: whatever the stage at which a
// worker dies, the call gets one result, and one with side effects is run once at most.
func TestAWorkerDiesAtEachStage(t *testing.T) {
	type outcome struct {
		status schemas.Status
		runs   int // over both workers
	}
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		for at, want := range map[stage]outcome{
			atDelivered: {schemas.Completed, 1},
			atPrepared:  {schemas.Completed, 1},
			atStarted:   {schemas.Broken, 0},
			atRan:       {schemas.Broken, 1},
			atFinished:  {schemas.Completed, 1},
		} {
			if tool == schemas.ToolRead { // it is run again, and again
				want = map[stage]outcome{
					atDelivered: {schemas.Completed, 1}, atPrepared: {schemas.Completed, 1}, atStarted: {schemas.Completed, 1},
					atRan: {schemas.Completed, 2}, atFinished: {schemas.Completed, 1},
				}[at]
			}
			t.Run(fmt.Sprintf("%s %s", tool, at), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := &fake{run: answer(tool)}
					died := make(chan *employed, 1)
					var first *employed
					first = w.employ(p, w.dieAt(at, died, &first))
					c := w.publish(w.call("call_1", tool))
					<-died
					w.employ(p)
					w.want(c, want.status)
					w.once(c)
					if p.count() != want.runs {
						t.Errorf("%d runs, want %d", p.count(), want.runs)
					}
				})
			})
		}
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

func TestAStartThatTheLogForgotToHaveDelivered(t *testing.T) {
	for _, attempt := range []int{1, 2, 7} { // of the start; what was delivered before it may be forgotten too
		t.Run(fmt.Sprint("at attempt ", attempt), func(t *testing.T) { forgottenStart(t, attempt) })
	}
}

func forgottenStart(t *testing.T, attempt int) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.call("call_1", schemas.ToolBash)
		// What a worker left that was killed together with the log: the proof of its start, while the
		// log still counts the next delivery as the first.
		w.startedBy("worker_dead", c, attempt)
		w.publish(c)
		w.employ(p)
		w.want(c, schemas.Broken)
		w.once(c)
		if p.count() != 0 {
			t.Errorf("%d runs of a call that was started before, want none", p.count())
		}
	})
}

func TestCancelBeforeTheStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.cancel(c)
		w.employ(p)
		r := w.want(c, schemas.Cancelled)
		if !strings.Contains(r.Text, "enough") {
			t.Errorf("the reason is not told: %q", r.Text)
		}
		w.once(c)
		if p.count() != 0 {
			t.Errorf("%d runs of a cancelled call", p.count())
		}
	})
}

func TestCancelInTheQueueIsAnsweredAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{run: sleeper(20 * time.Second)}
		w.employ(p, func(wk *Worker) { wk.Slots = 1 })
		long := w.publish(w.call("call_long", schemas.ToolBash))
		w.untilStarted(long)
		queued := w.publish(w.call("call_queued", schemas.ToolBash))
		begun := time.Now()
		w.cancel(queued)
		w.want(queued, schemas.Cancelled)
		if d := time.Since(begun); d > 3*time.Second {
			t.Errorf("answered after %v, while the worker was busy; want at once", d)
		}
		w.want(long, schemas.Completed)
		w.once(queued)
		if p.count() != 1 {
			t.Errorf("%d runs, want only that of the other call", p.count())
		}
	})
}

func TestCancelWhileItRuns(t *testing.T) {
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		t.Run(string(tool), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var killed atomic.Bool
				p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					r, err := sleeper(time.Hour)(ctx, cmd)
					killed.Store(err != nil)
					return r, err
				}}
				w.employ(p)
				w.employ(p) // another one hears of it too, and leaves it alone
				c := w.publish(w.call("call_1", tool))
				w.untilStarted(c)
				w.cancel(c)
				r := w.want(c, schemas.Cancelled)
				if tool == schemas.ToolBash && (r.Output == nil || r.Output.Stdout != "begun\n" || !strings.Contains(r.Text, "enough")) {
					t.Errorf("what was printed or the reason is missing: %+v", r)
				}
				w.once(c)
				if !killed.Load() || p.count() != 1 {
					t.Errorf("killed: %v, runs: %d", killed.Load(), p.count())
				}
			})
		})
	}
}

func TestCancelAfterTheEndChangesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{})
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.Completed)
		w.cancel(c)
		w.once(c)
		w.want(c, schemas.Completed)
	})
}

func TestACallPastItsDeadlineIsNotRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(time.Minute) }))
		time.Sleep(2 * time.Minute)
		w.employ(p)
		w.want(c, schemas.Expired)
		w.once(c)
		if p.count() != 0 {
			t.Errorf("%d runs", p.count())
		}
	})
}

func TestAnAccountAtItsCapLeavesRoomForOthers(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		now, most := 0, 0
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Spec.Account != testAccount {
				return hello(ctx, cmd)
			}
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() { mu.Lock(); now--; mu.Unlock() }()
			return sleeper(10*time.Second)(ctx, cmd)
		}}
		shared := &limits.Memory{}
		var limited atomic.Int32
		cap2 := func(wk *Worker) {
			wk.Limiter, wk.AccountCap = shared, 2
			wk.Metrics.Limited = func(string) { limited.Add(1) }
		}
		w.employ(p, cap2)
		w.employ(p, cap2)
		var flood []schemas.Call
		for i := range 20 {
			flood = append(flood, w.publish(w.call(fmt.Sprint("flood_", i), schemas.ToolBash)))
		}
		other := w.publish(w.call("call_other", schemas.ToolBash, func(c *schemas.Call) { c.Account = "acct_2" }))
		begun := time.Now()
		w.want(other, schemas.Completed)
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("another account waited %v behind one that is at its cap", d)
		}
		for _, c := range flood { // some were put back far more often than a broken call may be
			w.want(c, schemas.Completed)
			w.once(c)
		}
		if most != 2 || limited.Load() == 0 || p.count() != 21 {
			t.Errorf("at most %d at the same time, %d times put back, %d runs: want 2, more than 0 and 21", most, limited.Load(), p.count())
		}
	})
}

func TestDrain(t *testing.T) {
	for name, c := range map[string]struct {
		tool schemas.Tool
		nap  time.Duration
		want schemas.Status
		runs int
	}{
		"finishes what is in hand":               {schemas.ToolBash, 5 * time.Second, schemas.Completed, 1},
		"interrupts what takes longer":           {schemas.ToolBash, time.Hour, schemas.Broken, 1},
		"hands back what has no side effects":    {schemas.ToolRead, time.Hour, schemas.Completed, 2},
		"finishes what has no side effects also": {schemas.ToolRead, 5 * time.Second, schemas.Completed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var runs atomic.Int32
				p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if runs.Add(1) > 1 {
						return providers.Result{Started: true, Stdout: []byte(readAnswer)}, nil
					}
					r, err := sleeper(c.nap)(ctx, cmd)
					if c.tool == schemas.ToolRead {
						r.Stdout = []byte(readAnswer)
					}
					return r, err
				}}
				e := w.employ(p, func(wk *Worker) { wk.Grace = 10 * time.Second })
				call := w.publish(w.call("call_1", c.tool))
				w.untilStarted(call)
				later := time.Now()
				e.retire()
				if d := time.Since(later); d > 20*time.Second {
					t.Errorf("the stop took %v, with a grace of 10 s", d)
				}
				if c.want == schemas.Broken { // told by the worker itself, with what was printed
					if r := w.want(call, c.want); r.Output == nil || r.Output.Stdout != "begun\n" || !strings.Contains(r.Text, "shut down") {
						t.Errorf("result %+v", r)
					}
				}
				w.employ(p)
				w.want(call, c.want)
				w.once(call)
				if n := int(runs.Load()); n != c.runs {
					t.Errorf("%d runs, want %d", n, c.runs)
				}
			})
		})
	}
}

func TestARedeliveryWaitsForALivingWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// The first worker's proof of the start and its lease, without its signs of life on the message.
		p := &fake{}
		c := w.call("call_1", schemas.ToolBash)
		all := leases.Open(w.bus)
		err := streams.Events.Publish(t.Context(), w.bus, schemas.NewEvent(c, schemas.CallStarted, schemas.StartedID(c.Account, c.ID, 1), time.Now(),
			schemas.StartedData{Call: c.ID, Tool: c.Tool, Worker: "worker_slow", Attempt: 1}))
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(30 * time.Second)
		w.publish(c)
		var again atomic.Int32
		w.employ(p, func(wk *Worker) { wk.Metrics.Redelivered = func() { again.Add(1) } })
		for time.Now().Before(until) {
			if _, err := all.Put(t.Context(), "worker_slow", leases.Record{Worker: "worker_slow"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if got := w.types(c); slices.Contains(got, schemas.CallFinished) {
			t.Fatalf("given up while its worker lives: %v", got)
		}
		w.want(c, schemas.Broken)
		w.once(c)
		if p.count() != 0 || again.Load() == 0 {
			t.Errorf("%d runs, %d redeliveries", p.count(), again.Load())
		}
	})
}

func TestAWorkerThatWasTakenForDeadDropsItsResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		// So long that the log alone would not recognise the second result any more.
		p := &fake{run: sleeper(30 * time.Minute)}
		var away atomic.Bool
		w.employ(p, func(wk *Worker) {
			wk.at = func(s stage, _ schemas.Call) error {
				if s == atRenewal && away.Load() {
					return errCrash
				}
				return nil
			}
		})
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }))
		w.untilStarted(c)
		away.Store(true)
		time.Sleep(2 * leases.TTL)
		now := time.Now()
		err := streams.Events.Publish(t.Context(), w.bus,
			schemas.NewEvent(c, schemas.CallFinished, schemas.FinishedID(c.Account, c.ID), now, unrunResult(c, toInterrupt, "")))
		if err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		time.Sleep(time.Hour)
		w.once(c)
		w.want(c, schemas.Broken)
	})
}

func TestAProviderThatIsShortOfRoomIsAskedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var asked atomic.Int32
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if asked.Add(1) < 4 {
				return providers.Result{}, schemas.Errorf(schemas.Exhausted, "run", "no room")
			}
			return hello(ctx, cmd)
		}}
		w.employ(p)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.Completed)
		w.once(c)
	})
}

func TestAProviderThatStaysAwayFailsTheCall(t *testing.T) {
	for name, err := range map[string]error{
		"exhausted":   schemas.Errorf(schemas.Exhausted, "run", "no room"),
		"unsupported": schemas.Errorf(schemas.Unsupported, "run", "not here"),
		"unknown":     errors.New("secret path"),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.employ(&fake{run: func(context.Context, providers.Command) (providers.Result, error) { return providers.Result{}, err }})
				c := w.publish(w.call("call_1", schemas.ToolBash))
				r := w.want(c, schemas.Failed)
				if r.Error == nil || r.Error.Code != schemas.CodeOf(err) || strings.Contains(r.Text, "secret") {
					t.Errorf("result %+v", r)
				}
				w.once(c)
			})
		})
	}
}

// keeping is a provider that keeps boxes and loses one.
type keeping struct {
	fake

	reserved atomic.Int32
}

func (k *keeping) Reserve(_ context.Context, key string, _ providers.Spec) (schemas.Ref, error) {
	return schemas.Ref{ID: key, Epoch: fmt.Sprint(k.reserved.Add(1))}, nil
}

func (k *keeping) Release(context.Context, schemas.Ref) error { return nil }

func TestALostBoxIsReservedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.specs.persistent = true
		k := &keeping{}
		k.run = func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if cmd.Sandbox.Epoch != "2" {
				return providers.Result{}, schemas.Errorf(schemas.NotFound, "run", "the box is gone")
			}
			return hello(ctx, cmd)
		}
		w.employ(k)
		c := w.publish(w.call("call_1", schemas.ToolBash))
		w.want(c, schemas.Completed)
		if k.reserved.Load() != 2 || k.runs[1].Sandbox.ID != "acct_1.sb_1.ws_1" {
			t.Errorf("reserved %d times, ran in %+v", k.reserved.Load(), k.runs[1].Sandbox)
		}
	})
}

// filer is a provider whose files are a folder of the host.
type filer struct {
	fake

	dir string
}

func (f *filer) OpenWorkspace(_ context.Context, _ schemas.AccountID, _ providers.Mount) (*safefs.Root, error) {
	return safefs.Open(f.dir, safefs.Options{UID: os.Getuid(), GID: os.Getgid()})
}

func TestFileToolsNeedNoRunWhereFilesAreAtHand(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		f := &filer{dir: dir}
		w.employ(f)
		write := w.publish(w.call("call_write", schemas.ToolWrite, func(c *schemas.Call) { c.Input = []byte(`{"file_path":"a.txt","content":"hello"}`) }))
		w.want(write, schemas.Completed)
		if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(b) != "hello" {
			t.Errorf("the file has %q, %v", b, err)
		}
		read := w.publish(w.call("call_read", schemas.ToolRead))
		if r := w.want(read, schemas.Completed); !strings.Contains(r.Text, "hello") || r.Call != read.ID || r.Started.IsZero() {
			t.Errorf("result %+v", r)
		}
		bash := w.publish(w.call("call_bash", schemas.ToolBash))
		w.want(bash, schemas.Completed)
		if got := w.types(write); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished}) {
			t.Errorf("events %v", got)
		}
		if f.count() != 1 {
			t.Errorf("%d runs, want only that of bash", f.count())
		}
	})
}

func TestAnotherProvidersCallIsLeftAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{})
		other := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Provider = "elsewhere" }))
		w.cancel(other) // heard by the worker, and not its to answer
		time.Sleep(time.Minute)
		if got := w.types(other); len(got) != 1 {
			t.Errorf("events %v of a call of another provider", got)
		}
	})
}

// TestTheLogIsRestartedWhileACallRuns is in the time of the wall, because the log must have files.
func TestTheLogIsRestartedWhileACallRuns(t *testing.T) {
	l := natstest.Start(t)
	running, finish := make(chan struct{}), make(chan struct{})
	p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
		close(running)
		<-finish
		return hello(ctx, cmd)
	}}
	ctx, stop := context.WithCancel(t.Context())
	var both sync.WaitGroup
	for range 2 {
		wk := &Worker{Bus: l.Bus, Provider: p, Specs: new(specs), Slots: 2}
		both.Go(func() {
			if err := wk.Run(ctx); err != nil {
				t.Errorf("worker: %v", err)
			}
		})
	}
	defer both.Wait()
	defer stop()
	w := &world{t: t, bus: l.Bus}
	c := w.publish(w.call("call_1", schemas.ToolBash))
	<-running
	l.Restart()
	close(finish)
	w.want(c, schemas.Completed)
	if p.count() != 1 {
		t.Errorf("%d runs, want one", p.count())
	}
}

func TestAPanicIsAResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{run: func(context.Context, providers.Command) (providers.Result, error) { panic("out of thin air") }})
		c := w.publish(w.call("call_1", schemas.ToolBash))
		if r := w.want(c, schemas.Failed); r.Error.Code != schemas.Internal || strings.Contains(r.Text, "thin air") {
			t.Errorf("result %+v", r)
		}
		w.once(c)
	})
}

func TestRecordsThatAreMissingOrAway(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.specs.err = schemas.Errorf(schemas.NotFound, "sandbox", "there is no sandbox sb_1")
			w.employ(&fake{})
			c := w.publish(w.call("call_1", schemas.ToolBash))
			if r := w.want(c, schemas.Failed); r.Error.Code != schemas.NotFound {
				t.Errorf("result %+v", r)
			}
		})
	})
	t.Run("away", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.specs.err = schemas.Errorf(schemas.Unavailable, "sandbox", "the records are away")
			p := &fake{}
			e := w.employ(p)
			c := w.publish(w.call("call_1", schemas.ToolBash))
			time.Sleep(5 * time.Minute) // many more tries than a broken message gets
			e.retire()
			w.specs.err = nil
			w.employ(p)
			w.want(c, schemas.Completed)
			w.once(c)
			if p.count() != 1 {
				t.Errorf("%d runs", p.count())
			}
		})
	})
}

func TestADeadLetterGetsItsResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		closer := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		bad := w.call("call_bad", schemas.ToolBash, func(c *schemas.Call) { c.Workspace = "" })
		w.publish(bad)
		w.employ(&fake{})
		if r := w.want(bad, schemas.Failed); r.Error == nil || r.Error.Code != schemas.Invalid {
			t.Errorf("result %+v", r)
		}
		w.once(bad)
		stop()
		if err := <-done; err != nil {
			t.Errorf("closer: %v", err)
		}
	})
}

// TestOverdueCallsEndWithoutAWorker: a call that nobody takes has its result soon after its deadline,
// one that a worker died over is told to be interrupted, and a worker that comes later runs neither.
func TestOverdueCallsEndWithoutAWorker(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		soon := func(c *schemas.Call) { c.Deadline = time.Now().Add(10 * time.Minute) }
		never, begun, later := w.publish(w.call("call_never", schemas.ToolBash, soon)), w.publish(w.call("call_begun", schemas.ToolBash, soon)),
			w.publish(w.call("call_later", schemas.ToolBash))
		bus := w.open()
		dead := schemas.NewEvent(begun, schemas.CallStarted, schemas.StartedID(begun.Account, begun.ID, 1), time.Now(),
			schemas.StartedData{Call: begun.ID, Tool: begun.Tool, Worker: "worker_dead", Attempt: 1})
		if err := streams.Events.Publish(t.Context(), bus, dead); err != nil {
			t.Fatal(err)
		}
		closer := &maintenance.CallExpirer{Bus: bus, Log: slog.New(slog.DiscardHandler), Providers: []string{never.Provider, "absent"}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- closer.Run(ctx) }()
		w.want(never, schemas.Expired)
		w.want(begun, schemas.Broken)
		const overdue, looks = time.Minute, time.Minute // as the expirer leaves calls to workers, and looks
		if late := time.Since(never.Deadline); late < overdue || late > overdue+2*looks {
			t.Errorf("expired %s after its deadline, want about %s", late, overdue)
		}
		p := &fake{}
		w.employ(p)
		w.want(later, schemas.Completed)
		w.once(never)
		w.once(begun)
		if p.count() != 1 {
			t.Errorf("%d runs, want the one that is not overdue", p.count())
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("closer: %v", err)
		}
	})
}

// TestStartAndStop stops workers before, at and after their start, more than once, with work about.
func TestStartAndStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		bus := w.open()
		var calls []schemas.Call
		p := &fake{}
		for round := range 30 {
			calls = append(calls, w.publish(w.call(fmt.Sprint("call_", round), schemas.ToolBash)))
			for _, after := range []time.Duration{-1, 0, time.Millisecond, 50 * time.Millisecond, time.Second} {
				startAndStop(t, &Worker{Bus: bus, Provider: p, Specs: w.specs, Grace: time.Second}, after)
			}
		}
		w.employ(p)
		for _, c := range calls {
			w.result(c)
		}
		w.once(calls[0])
		if p.count() > len(calls) {
			t.Errorf("%d runs of %d calls", p.count(), len(calls))
		}
	})
}

// startAndStop runs a worker for so long; below 0 it is stopped before it is started.
func startAndStop(t *testing.T, wk *Worker, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after < 0 {
		cancel()
	}
	done := make(chan error, 1)
	go func() { done <- wk.Run(ctx) }()
	time.Sleep(max(after, 0))
	for range 10 {
		go cancel()
	}
	if err := <-done; err != nil {
		t.Fatalf("stop after %v: %v; want nil", after, err)
	}
}

// TestARunThatDoesNotEndGivesItsSlotBack: whatever a tool or a provider does, the call has its result, the next one
// is run, and the worker can stop.
func TestARunThatDoesNotEndGivesItsSlotBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release, ended := make(chan struct{}), make(chan struct{}, 4)
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if !strings.Contains(cmd.Script, "stuck") {
				return hello(ctx, cmd)
			}
			<-release // it ignores its context
			cmd.Output(providers.Chunk{Data: []byte("too late\n")})
			ended <- struct{}{}
			return providers.Result{Started: true}, nil
		}}
		var stuck atomic.Int32
		e := w.employ(p, func(wk *Worker) {
			wk.Slots, wk.Grace = 1, 5*time.Second
			wk.Metrics.Stuck = func(_ string, n int) { stuck.Store(int32(n)) }
		})
		hangs := func(c *schemas.Call) {
			c.Input, c.Timeout = []byte(`{"command":"stuck"}`), schemas.Duration(10*time.Second)
		}
		c := w.publish(w.call("call_stuck", schemas.ToolBash, hangs))
		begun := time.Now()
		if r := w.want(c, schemas.Failed); r.Error == nil || r.Error.Code != schemas.Timeout {
			t.Errorf("result %+v", r)
		}
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("the result came after %v, with a timeout of 10 s", d)
		}
		if stuck.Load() != 1 {
			t.Errorf("%d runs are told to be stuck, want one", stuck.Load())
		}
		next := w.publish(w.call("call_next", schemas.ToolBash)) // as many do not end as there are slots: not here
		time.Sleep(time.Minute)
		if got := w.types(next); len(got) != 1 {
			t.Errorf("a worker full of runs that do not end took a call: %v", got)
		}
		close(release)
		<-ended
		w.want(next, schemas.Completed)
		if stuck.Load() != 0 {
			t.Errorf("%d runs are told to be stuck, want none any more", stuck.Load())
		}
		w.once(c)
		if got := w.types(c); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished}) {
			t.Errorf("events %v: want nothing behind the result", got)
		}
		e.retire()
	})
}

// TestAWorkerStopsWithoutARunThatDoesNotEnd: the call of a run that cannot be ended is told to be interrupted.
func TestAWorkerStopsWithoutARunThatDoesNotEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		release, ended := make(chan struct{}), make(chan struct{})
		p := &fake{run: func(context.Context, providers.Command) (providers.Result, error) {
			defer close(ended)
			<-release
			return providers.Result{Started: true}, nil
		}}
		e := w.employ(p, func(wk *Worker) { wk.Grace = 5 * time.Second })
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }))
		w.untilStarted(c)
		begun := time.Now()
		e.retire()
		if d := time.Since(begun); d > 30*time.Second {
			t.Errorf("the stop took %v, with a grace of 5 s", d)
		}
		w.want(c, schemas.Broken)
		close(release)
		<-ended
		w.once(c)
	})
}

// TestNothingFollowsAResult: a worker that was taken for dead tells nothing more of a call that others have ended, and
// ends its run.
func TestNothingFollowsAResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		over := make(chan error, 1)
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			for range 4 { // it prints nothing while its worker is away
				cmd.Output(providers.Chunk{Data: []byte("tick\n")})
				if !sleep(ctx, 30*time.Second) {
					break
				}
			}
			over <- ctx.Err()
			return providers.Result{Started: true}, ctx.Err()
		}}
		var away atomic.Bool
		w.employ(p, func(wk *Worker) {
			wk.at = func(s stage, _ schemas.Call) error {
				if s == atRenewal && away.Load() {
					return errCrash
				}
				return nil
			}
		})
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Timeout = schemas.Duration(5 * time.Minute) }))
		w.untilStarted(c)
		time.Sleep(5 * time.Second)
		away.Store(true)
		time.Sleep(leases.TTL + time.Second)
		w.endedElsewhere(c, unrunResult(c, toInterrupt, ""))
		away.Store(false)
		if err := <-over; err == nil {
			t.Error("the run went on to its end")
		}
		w.once(c)
		if got := w.types(c); got[len(got)-1] != schemas.CallFinished {
			t.Errorf("events behind the result: %v", got)
		}
	})
}
