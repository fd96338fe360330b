package workers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/safefs"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/limits"
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
		r := w.want(c, schemas.StatusCompleted)
		if r.Call != c.ID || r.Conversation != c.Conversation || r.Output.Stdout != "hello\n" || r.Started.IsZero() || r.Finished.IsZero() {
			t.Errorf("result %+v", r)
		}
		w.once(c)
		if got := w.types(c); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted,
			schemas.CallOutput, schemas.CallFinished}) {
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
		w.want(w.publish(c), schemas.StatusCompleted)
		if d := p.runs[0].Timeout; d > 10*time.Second || d < 5*time.Second {
			t.Errorf("timeout %v of a call with a deadline in 10 s", d)
		}
	})
}

// TestAWorkerDiesAtEachStage is the first two promises in one process: whatever the stage at which a
// worker dies, the call gets one result, and one with side effects is run once at most.
//
//guarantee:one-result-for-every-accepted-call
//guarantee:side-effects-are-started-at-most-once
func TestAWorkerDiesAtEachStage(t *testing.T) {
	type outcome struct {
		status schemas.Status
		runs   int // over both workers
	}
	for _, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
		for at, want := range map[stage]outcome{
			atDelivered: {schemas.StatusCompleted, 1},
			atPrepared:  {schemas.StatusCompleted, 1},
			atStarted:   {schemas.StatusInterrupted, 0},
			atRan:       {schemas.StatusInterrupted, 1},
			atFinished:  {schemas.StatusCompleted, 1},
		} {
			if tool == schemas.ToolRead { // it is run again, and again
				want = map[stage]outcome{
					atDelivered: {schemas.StatusCompleted, 1}, atPrepared: {schemas.StatusCompleted, 1}, atStarted: {schemas.StatusCompleted, 1},
					atRan: {schemas.StatusCompleted, 2}, atFinished: {schemas.StatusCompleted, 1},
				}[at]
			}
			t.Run(fmt.Sprintf("%s %s", tool, at), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := &fake{run: answer(tool)}
					died := make(chan *employed, 1)
					w.employ(p, w.dieAt(at, died))
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

func TestACallPastItsDeadlineIsNotRun(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{}
		c := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(time.Minute) }))
		time.Sleep(2 * time.Minute)
		w.employ(p)
		w.want(c, schemas.StatusExpired)
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
		w.want(other, schemas.StatusCompleted)
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("another account waited %v behind one that is at its cap", d)
		}
		for _, c := range flood { // some were nak'ed far more often than a broken call may be
			w.want(c, schemas.StatusCompleted)
			w.once(c)
		}
		if most != 2 || limited.Load() == 0 || p.count() != 21 {
			t.Errorf("at most %d at the same time, %d times put back, %d runs: want 2, more than 0 and 21", most, limited.Load(), p.count())
		}
	})
}

// filer is a provider whose files are a folder of the host.
type filer struct {
	fake

	dir string
}

func (f *filer) OpenWorkspace(_ context.Context, _ schemas.AccountID, _ providers.Mount) (workspacefs.FS, error) {
	return safefs.Open(f.dir, safefs.Options{UID: os.Getuid(), GID: os.Getgid()})
}

func TestFileToolsNeedNoRunWhereFilesAreAtHand(t *testing.T) {
	dir := t.TempDir()
	inWorld(t, func(t *testing.T, w *world) {
		f := &filer{dir: dir}
		w.employ(f)
		write := w.publish(w.call("call_write", schemas.ToolWrite,
			func(c *schemas.Call) { c.Input = []byte(`{"file_path":"a.txt","content":"hello"}`) }))
		w.want(write, schemas.StatusCompleted)
		if b, err := os.ReadFile(filepath.Join(dir, "a.txt")); err != nil || string(b) != "hello" {
			t.Errorf("the file has %q, %v", b, err)
		}
		read := w.publish(w.call("call_read", schemas.ToolRead))
		if r := w.want(read, schemas.StatusCompleted); !strings.Contains(r.Text, "hello") || r.Call != read.ID || r.Started.IsZero() {
			t.Errorf("result %+v", r)
		}
		bash := w.publish(w.call("call_bash", schemas.ToolBash))
		w.want(bash, schemas.StatusCompleted)
		if got := w.types(write); !slices.Equal(got, []schemas.EventType{schemas.CallAccepted, schemas.CallStarted, schemas.CallFinished}) {
			t.Errorf("events %v", got)
		}
		if f.count() != 1 {
			t.Errorf("%d runs, want only that of bash", f.count())
		}
	})
}

// distant is a provider some of whose workspaces cannot be reached from its worker.
type distant struct {
	fake

	err error
}

func (d *distant) OpenWorkspace(context.Context, schemas.AccountID, providers.Mount) (workspacefs.FS, error) {
	return nil, d.err
}

// TestFileToolsRunInTheBoxWhereFilesAreNotAtHand: a provider that cannot reach one workspace says unsupported, and the box does it.
// Any other failure is the call's.
func TestFileToolsRunInTheBoxWhereFilesAreNotAtHand(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want schemas.Status
		code schemas.Code // of the result
		runs int
	}{
		"unsupported": {schemas.OpErrorf(schemas.Unsupported, "open", "it lies in a bucket"), schemas.StatusCompleted, "", 1},
		"denied":      {schemas.OpErrorf(schemas.Denied, "open", "not yours"), schemas.StatusFailed, schemas.Denied, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				d := &distant{err: c.err}
				d.run = answer(schemas.ToolRead)
				w.employ(d)
				call := w.publish(w.call("call_read", schemas.ToolRead))
				if r := w.want(call, c.want); c.code != "" && r.Error.Code != c.code {
					t.Errorf("the result's code is %s, want %s", r.Error.Code, c.code)
				}
				if d.count() != c.runs {
					t.Errorf("%d runs in the box, want %d", d.count(), c.runs)
				}
				w.once(call)
			})
		})
	}
}

func TestAnotherProvidersCallIsLeftAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{})
		other := w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Provider = "elsewhere" }))
		w.cancel(other) // the worker is notified of it, and it is not the worker's to answer
		time.Sleep(time.Minute)
		if got := w.types(other); len(got) != 1 {
			t.Errorf("events %v of a call of another provider", got)
		}
	})
}

//guarantee:one-result-for-every-accepted-call
func TestAPanicIsAResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{run: func(context.Context, providers.Command) (providers.Result, error) { panic("out of thin air") }})
		c := w.publish(w.call("call_1", schemas.ToolBash))
		if r := w.want(c, schemas.StatusFailed); r.Error.Code != schemas.Internal || strings.Contains(r.Text, "thin air") {
			t.Errorf("result %+v", r)
		}
		w.once(c)
	})
}

// TestABrokenProviderEndsNoWorker: a provider that panics at each look at a job and at each question about it ends neither the worker
// nor the job.
//
//guarantee:one-result-for-every-accepted-call
func TestABrokenProviderEndsNoWorker(t *testing.T) {
	inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
		var broken atomic.Bool
		h.blocked = func(context.Context, schemas.JobRef) error {
			if broken.Load() {
				panic("out of thin air")
			}
			return nil
		}
		w.employ(h)
		call := w.publish(w.background("one", "sleep 20m"))
		w.want(call, schemas.StatusCompleted)
		broken.Store(true)
		time.Sleep(5 * time.Minute) // many looks
		logs := w.publish(w.ask("logs", call, `,"action":"logs"`))
		if r := w.want(logs, schemas.StatusFailed); r.Error.Code != schemas.Internal || strings.Contains(r.Text, "thin air") {
			t.Errorf("asked for its output: %+v", r)
		}
		broken.Store(false)
		if done := w.ended(call); done.State != schemas.JobCompleted {
			t.Errorf("it ended as %+v, want it completed", done)
		}
	})
}

func TestRecordsThatAreMissingOrAway(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.specs.err = schemas.OpErrorf(schemas.NotFound, "sandbox", "there is no sandbox sb_1")
			w.employ(&fake{})
			c := w.publish(w.call("call_1", schemas.ToolBash))
			if r := w.want(c, schemas.StatusFailed); r.Error.Code != schemas.NotFound {
				t.Errorf("result %+v", r)
			}
		})
	})
	t.Run("away", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.specs.err = schemas.OpErrorf(schemas.Unavailable, "sandbox", "the records are away")
			p := &fake{}
			e := w.employ(p)
			c := w.publish(w.call("call_1", schemas.ToolBash))
			time.Sleep(5 * time.Minute) // many more tries than a broken message gets
			e.retire()
			w.specs.err = nil
			w.employ(p)
			w.want(c, schemas.StatusCompleted)
			w.once(c)
			if p.count() != 1 {
				t.Errorf("%d runs", p.count())
			}
		})
	})
}

// TestNothingFollowsAResult: a worker that was taken for dead publishes nothing more of a call that another process has ended, and ends
// its run.
//
//guarantee:one-result-for-every-accepted-call
func TestNothingFollowsAResult(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		over := make(chan error, 1)
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			for range 4 { // it prints nothing while its worker is unavailable
				cmd.Output(providers.Chunk{Data: []byte("tick\n")})
				if !wait.Sleep(ctx, 30*time.Second) {
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
