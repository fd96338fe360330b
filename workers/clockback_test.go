package workers

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
)

// TestACallIsNotRunTwiceWhenTheLogsClockIsSetBack: a worker dies when its call has started, or has its result, and is not acknowledged.
// Before the next worker takes the call, the log's server is restarted with its clock set back. Each of the two parts has a separate
// virtual time, and both begin at the same moment.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestACallIsNotRunTwiceWhenTheLogsClockIsSetBack(t *testing.T) {
	for _, c := range []struct {
		by   time.Duration
		at   stage
		want schemas.Status
	}{
		{4 * time.Minute, atStarted, schemas.StatusInterrupted}, // when the lease of the dead worker ends, by that clock
		{4 * time.Minute, atFinished, schemas.StatusCompleted},
		{time.Hour, atFinished, schemas.StatusCompleted},
	} {
		t.Run(fmt.Sprint(c.by, " at ", c.at), func(t *testing.T) { setBackAfter(t, c.by, c.at, c.want) })
	}
}

func setBackAfter(t *testing.T, by time.Duration, at stage, want schemas.Status) {
	t.Helper()
	dir, p := natstest.Dir(t.TempDir()), &fake{}
	var call schemas.Call
	inWorld(t, func(t *testing.T, w *world) {
		died := make(chan *employed, 1)
		w.employ(p, w.dieAt(at, died))
		call = w.publish(w.call("call_1", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(5 * time.Hour) }))
		<-died
	}, dir, func(*natstest.Settings) { time.Sleep(by) })
	before := p.count()
	inWorld(t, func(t *testing.T, w *world) {
		w.publish(w.call("call_2", schemas.ToolBash)) // so that the newest stamps are those of the clock that was set
		w.employ(p)
		w.want(call, want)
		w.once(call)
		if n := p.count() - before; n != 1 {
			t.Errorf("%d runs after the worker's death, want that of the other call alone", n)
		}
	}, dir)
}

// TestACancelIsReceivedWhenTheLogsClockIsSetBack: the cancel is stored with a stamp earlier than that of the call. It ends a call that runs,
// one that waits, one that no worker serves, and one that a worker takes later.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestACancelIsReceivedWhenTheLogsClockIsSetBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		accepted := func(c *schemas.Call) { // before the clock was set back
			c.Accepted = time.Now().Add(time.Hour).UTC()
			c.Deadline = c.Accepted.Add(time.Hour)
		}
		cancel := func(c schemas.Call) {
			t.Helper()
			if err := lifecycle.Cancel(t.Context(), w.bus, c, "enough"); err != nil {
				t.Fatal(err)
			}
		}
		defer closing(w, "absent")()
		later := w.publish(w.call("later", schemas.ToolBash, accepted))
		cancel(later)
		absent := w.publish(w.call("absent", schemas.ToolBash, accepted, func(c *schemas.Call) { c.Provider = "absent" }))
		cancel(absent)
		w.want(absent, schemas.StatusCancelled)
		w.employ(&fake{run: sleeper(30 * time.Minute)}, func(wk *Worker) { wk.Slots = 1 })
		w.want(later, schemas.StatusCancelled)
		long := func(c *schemas.Call) { c.Timeout = schemas.Duration(10 * time.Minute) }
		running := w.publish(w.call("running", schemas.ToolBash, accepted, long))
		w.untilStarted(running)
		waiting := w.publish(w.call("waiting", schemas.ToolBash, accepted))
		begun := time.Now()
		cancel(waiting)
		w.want(waiting, schemas.StatusCancelled)
		cancel(running)
		w.want(running, schemas.StatusCancelled)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
