package workers

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/clock"
	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/limits"
)

func TestHowLongACallStaysAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		attempt, mine, all int
		want               time.Duration
	}{
		{1, 1, 1, 250 * time.Millisecond},
		{3, 1, 1, time.Second},
		{1000, 1, 1, 4 * time.Second},
		{1, 2000, 2000, 10 * time.Second},
		{1, 1, 10_000, 20 * time.Second},
		{1, 100_000, 100_000, longestAway},
	} {
		if got := delayFor(c.attempt, c.mine, c.all); got != c.want {
			t.Errorf("attempt %d, %d of the account and %d of all wait: %v away, want %v", c.attempt, c.mine, c.all, got, c.want)
		}
	}
}

// TestReturnsOfWaitingCallsAreBounded: whatever waits, it comes back no more often than it may.
//
//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestReturnsOfWaitingCallsAreBounded(t *testing.T) {
	t.Parallel()
	for _, all := range []int{10, 1000, 5000, 30_000} {
		if perSecond := float64(all) / delayFor(1000, all, all).Seconds(); perSecond > allReturns {
			t.Errorf("%d calls of one account come back %.0f times a second", all, perSecond)
		}
	}
}

func TestPutBacksAreRemembered(t *testing.T) {
	t.Parallel()
	w, c := newWaitingCalls(), schemas.Call{Account: testAccount, ID: "call_1"}
	sure := streams.Certainty{Since: clock.Now(), Generation: 7}
	w.add(c, 3, sure, true)
	if got, own := w.resumed(c.EventID(), 4); !own || got != sure {
		t.Error("the next delivery of a call that was put back is not known")
	}
	if _, own := w.resumed(c.EventID(), 5); own {
		t.Error("a call that somebody else had in between counts as one's own")
	}
	w.add(c, 5, sure, false)
	if _, own := w.resumed(c.EventID(), 6); own {
		t.Error("a call of which it is not known whether it was started counts as not started")
	}
	if len(w.calls) != 1 || w.of[testAccount] != 1 {
		t.Errorf("%d calls are remembered, %d of the account: want one", len(w.calls), w.of[testAccount])
	}
	w.forget(c.EventID())
	if len(w.calls)+len(w.of) != 0 {
		t.Error("a call that waits no more is remembered")
	}
	w.add(c, 1, sure, true)
	w.sweep(clock.Now().Asleep(time.Hour))
	if len(w.calls)+len(w.of) != 0 {
		t.Error("a call that does not come again is remembered")
	}
}

// TestWaitingCallsCostOthersNothing: hundreds of calls above a cap, on a conversation with as many events, are hardly
// ever looked up while they wait, and another account's call is run at once.
//
//guarantee:caps-hold-and-losing-redis-loses-nothing
func TestWaitingCallsCostOthersNothing(t *testing.T) {
	const flood, printed = 300, 300
	inWorld(t, func(t *testing.T, w *world) {
		p := &fake{run: func(ctx context.Context, cmd providers.Command) (providers.Result, error) {
			if strings.Contains(cmd.Script, "hello") {
				return hello(ctx, cmd)
			}
			return sleeper(5*time.Minute)(ctx, cmd)
		}}
		one := func(c *schemas.Call) { c.Conversation = "c-busy" }
		long := func(c *schemas.Call) {
			c.Input, c.Timeout = []byte(`{"command":"long"}`), schemas.Duration(10*time.Minute)
		}
		first := w.publish(w.call("call_first", schemas.ToolBash, one, long))
		for n := range printed {
			event := schemas.NewEvent(first, schemas.CallOutput, schemas.OutputID(first.Account, first.ID, 9, n), time.Now(),
				schemas.OutputData{Call: first.ID, Text: "x"})
			if _, err := streams.Events.PublishAsync(t.Context(), w.bus, event); err != nil {
				t.Fatal(err)
			}
		}
		var looked, again, limited atomic.Int32
		w.employ(p, func(wk *Worker) {
			wk.Limiter, wk.AccountCap = new(limits.Memory), 1
			wk.Metrics.Looked = func() { looked.Add(1) }
			wk.Metrics.Redelivered = func() { again.Add(1) }
			wk.Metrics.Limited = func(string) { limited.Add(1) }
		})
		w.untilStarted(first)
		for n := range flood {
			w.publish(w.call(fmt.Sprint("flood_", n), schemas.ToolBash, one, long))
		}
		time.Sleep(30 * time.Second)
		begun := time.Now()
		w.want(w.publish(w.call("call_other", schemas.ToolBash, func(c *schemas.Call) { c.Account = "acct_2" })), schemas.StatusCompleted)
		if d := time.Since(begun); d > time.Second {
			t.Errorf("another account's call waited %v", d)
		}
		if again.Load() < flood || limited.Load() < flood {
			t.Errorf("%d came again, %d were put back: the calls do not wait for their place", again.Load(), limited.Load())
		}
		if n := looked.Load(); n > 5 {
			t.Errorf("%d looks at a conversation for %d returns of calls that only wait", n, again.Load())
		}
	})
}

// TestPutBacksOfOneAccountLeaveOthersTheirMemory: calls of one account that wait in their thousands do not keep those of others from being
// remembered.
//
//guarantee:bounds
func TestPutBacksOfOneAccountLeaveOthersTheirMemory(t *testing.T) {
	t.Parallel()
	w := newWaitingCalls()
	for i := range maxOfOne + 100 {
		w.add(schemas.Call{Account: "acct_1", ID: schemas.CallID(fmt.Sprint("call_", i))}, 1, streams.Certainty{}, true)
	}
	other := schemas.Call{Account: "acct_2", ID: "call_1"}
	w.add(other, 1, streams.Certainty{}, true)
	if _, ok := w.resumed(other.EventID(), 2); !ok || w.of["acct_1"] != maxOfOne {
		t.Errorf("%d of one account are remembered, and the other's: %v", w.of["acct_1"], ok)
	}
}
