package workers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/providers/workspacefs"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// TestOneAccountsCallsLeaveOthersTheirTurn: without any cap, an account has hundreds of long calls waiting. Another's call
// is run when the next place is free; what is cancelled and what is overdue ends at its time although no place comes; a
// worker that is replaced loses nothing; and everything ends once.
//
//guarantee:what-one-tenant-can-do-to-another
func TestOneAccountsCallsLeaveOthersTheirTurn(t *testing.T) {
	const flood, slots, each = 300, 4, time.Minute
	inWorld(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		runs := map[string]int{}
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			mu.Lock()
			runs[string(cmd.Spec.Account)]++
			mu.Unlock()
			return sleeper(each)(ctx, cmd)
		}}
		long := func(c *schemas.Call) {
			c.Timeout, c.Deadline = schemas.Duration(5*time.Minute), time.Now().Add(20*time.Hour)
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return runs[string(testAccount)]
		}
		ctx, stop := context.WithCancel(t.Context())
		closer, closed := &maintenance.CallExpirer{Bus: w.open(), Log: slog.New(slog.DiscardHandler)}, make(chan error, 1)
		go func() { closed <- closer.Run(ctx) }()
		first := w.employ(p, func(wk *Worker) { wk.Slots, wk.Grace = slots, 2*each })
		var calls []schemas.Call
		for n := range flood {
			calls = append(calls, w.publish(w.call(fmt.Sprint("flood_", n), schemas.ToolBash, long)))
		}
		due := w.publish(w.call("call_due", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(each / 2) }))
		unwanted := w.publish(w.call("call_unwanted", schemas.ToolBash, long))
		w.cancel(unwanted) // until the first place is free again, neither can have begun
		w.want(unwanted, schemas.StatusCancelled)
		for n := range 3 {
			time.Sleep(each / 2) // all places are taken: what starts from now on is ahead of it
			before := count()
			other := w.publish(w.call(fmt.Sprint("call_other_", n), schemas.ToolBash, long, func(c *schemas.Call) { c.Account = "acct_2" }))
			w.untilStarted(other)
			if behind := count() - before; behind > slots {
				t.Errorf("%s was run behind %d others that waited before it; want no more than %d", other.ID, behind, slots)
			}
		}
		w.want(due, schemas.StatusExpired)
		if late := time.Since(due.Deadline); late > 3*time.Minute {
			t.Errorf("what was overdue ended %s after its deadline", late)
		}
		first.retire()
		w.employ(p, func(wk *Worker) { wk.Slots = slots })
		for range 20 {
			if time.Sleep(10 * each); count() == flood {
				break
			}
		}
		for _, c := range calls {
			w.want(c, schemas.StatusCompleted)
		}
		if n := count(); n != flood {
			t.Errorf("%d runs of %d calls", n, flood)
		}
		stop()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// searching is a provider where the searches of an account run in this process until their context ends.
type searching struct {
	*fake

	account schemas.AccountID
}

func (s searching) OpenWorkspace(ctx context.Context, a schemas.AccountID, _ providers.Mount) (workspacefs.FS, error) {
	if a != s.account {
		return nil, schemas.OpErrorf(schemas.Unsupported, "open", "its files are in the box")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAQuietAccountFindsASlotAfterEachPause: an account that was active minutes ago finds a slot for its next call, whatever runs of an
// account that floods the worker: commands of seconds, those of 40 s, or searches that do not end.
//
//guarantee:what-one-tenant-can-do-to-another
func TestAQuietAccountFindsASlotAfterEachPause(t *testing.T) {
	const quiet, pause, within = schemas.AccountID("acct_2"), 3 * time.Second, time.Second
	for name, c := range map[string]struct {
		slots, calls int
		tool         schemas.Tool
		each         time.Duration
	}{
		"commands of 8 s":              {16, 400, schemas.ToolBash, 8 * time.Second},
		"commands of 8 s on two slots": {2, 100, schemas.ToolBash, 8 * time.Second},
		"forty commands of 40 s":       {16, 40, schemas.ToolBash, 40 * time.Second},
		"searches without an end":      {4, 40, schemas.ToolGrep, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				begun := make(chan time.Time, 1)
				p := searching{fake: &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
					if cmd.Spec.Account != quiet {
						return sleeper(c.each)(ctx, cmd)
					}
					begun <- time.Now()
					return hello(ctx, cmd)
				}}}
				if c.tool == schemas.ToolGrep {
					p.account = testAccount
				}
				w.employ(p, func(wk *Worker) { wk.Slots = c.slots })
				n := 0
				lone := func() {
					n++
					sent := time.Now()
					call := w.publish(w.call(fmt.Sprint("call_lone_", n), schemas.ToolBash, func(c *schemas.Call) { c.Account = quiet }))
					if took := (<-begun).Sub(sent); took > within {
						t.Errorf("call %d began after %s; want %s at most", n, took, within)
					}
					w.want(call, schemas.StatusCompleted)
				}
				lone()
				for n := range c.calls {
					w.publish(w.call(fmt.Sprint("call_flood_", n), c.tool, func(call *schemas.Call) {
						call.Timeout = schemas.Duration(10 * time.Minute)
						if c.tool == schemas.ToolGrep {
							call.Input = []byte(`{"pattern":"x"}`)
						}
					}))
				}
				for range 20 {
					time.Sleep(pause)
					lone()
				}
				time.Sleep(time.Minute)
				lone()
			})
		})
	}
}
