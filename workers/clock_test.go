package workers

import (
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// hostAhead makes the clocks of all processes that are started from now on be so much ahead of the log's, and
// returns the log's time.
func (w *world) hostAhead(d time.Duration) (now func() time.Time) {
	now = func() time.Time { return time.Now().Add(-d).UTC() }
	w.log.LogClock = now
	return now
}

// Deadlines are judged by the log's clock, whatever the worker's says, also from its start on.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAWorkerWhoseClockIsWrongEndsNoCallBeforeItsTime(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 24 * time.Hour, -time.Hour} {
		inWorld(t, func(t *testing.T, w *world) {
			now := w.hostAhead(ahead)
			due := w.publish(w.call("due", schemas.ToolBash, func(c *schemas.Call) { c.Accepted, c.Deadline = now(), now().Add(10*time.Minute) }))
			over := w.publish(w.call("over", schemas.ToolBash, func(c *schemas.Call) {
				c.Accepted, c.Deadline = now().Add(-10*time.Minute), now().Add(-time.Second)
				c.Approval = "ap_1" // it was on the log before: its stamp, which is the host's here, says nothing
			}))
			w.employ(new(fake))
			w.want(due, schemas.StatusCompleted)
			w.want(over, schemas.StatusExpired)
			for _, e := range w.events(due) {
				if d := e.Time.Sub(now()); d.Abs() > time.Minute {
					t.Errorf("%s is stamped %s off the log's time", e.Type, d)
				}
			}
		})
	}
}

//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestAWorkerWhoseClockIsWrongStopsNoJobBeforeItsTime(t *testing.T) {
	for _, ahead := range []time.Duration{24 * time.Hour, -time.Hour} {
		inJobWorld(t, func(t *testing.T, w *world, h *jobHost) {
			now := w.hostAhead(ahead)
			w.specs.change = func(s *schemas.Sandbox) { s.JobLifetime = schemas.Duration(10 * time.Minute) }
			first := w.employ(&sluggish{h})
			call := w.background("one", "sleep 9m\nexit 4")
			call.Accepted, call.Deadline = now(), now().Add(time.Hour)
			w.publish(call)
			w.want(call, schemas.StatusCompleted)
			first.retire()
			w.employ(&sluggish{h}) // takes it over
			w.sweepUp()
			if done := w.ended(call); done.State != schemas.JobFailed || *done.ExitCode != 4 {
				t.Errorf("ahead by %s, it ended as %+v", ahead, done)
			}
		})
	}
}

// TestACallMayBeAnnouncedAfterAWorkerHasIt: a gateway that does not follow a log whose clock was set ahead by an hour has published a call, and
// announces only then that it was accepted. To a worker it looks like one that was published again, of which nothing is known. It waits a
// moment, and says so where nothing comes.
func TestACallMayBeAnnouncedAfterAWorkerHasIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		accepted := func(c *schemas.Call) {
			c.Accepted = time.Now().Add(-time.Hour).UTC()
			c.Deadline = c.Accepted.Add(10 * time.Minute)
		}
		w.employ(new(fake))
		for id, late := range map[string]time.Duration{"soon": 0, "later": 3 * time.Second, "never": 0} {
			c := w.publishOnly(w.call(id, schemas.ToolBash, accepted, func(c *schemas.Call) { c.Conversation = schemas.ConversationID(id) }))
			begun := time.Now()
			if id == "never" {
				w.want(c, schemas.StatusInterrupted)
				if took := time.Since(begun); took < announcedWithin {
					t.Errorf("the call that is not announced ends after %s, want %s at least", took, announcedWithin)
				}
				continue
			}
			time.Sleep(late)
			w.announce(c)
			w.want(c, schemas.StatusCompleted)
		}
	})
}

// TestACallIsNotOverdueWhenItIsAccepted: the log's clock was set ahead by an hour. A gateway that does not follow it yet accepts calls, and
// processes that have just begun go by it.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestACallIsNotOverdueWhenItIsAccepted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const life = 10 * time.Minute
		accepted := func(c *schemas.Call) {
			c.Accepted = time.Now().Add(-time.Hour).UTC()
			c.Deadline = c.Accepted.Add(life)
		}
		defer closing(w, "absent")()
		begun := time.Now()
		left := w.publish(w.call("left", schemas.ToolBash, accepted, func(c *schemas.Call) { c.Provider = "absent" }))
		w.employ(new(fake))
		w.want(w.publish(w.call("taken", schemas.ToolBash, accepted)), schemas.StatusCompleted)
		w.want(left, schemas.StatusExpired)
		if waited := time.Since(begun); waited < life {
			t.Errorf("a call that no worker takes expired after %s, and may wait for %s", waited, life)
		}
	})
}
