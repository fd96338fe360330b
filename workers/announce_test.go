package workers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// wantOrder fails unless call.accepted is the first event of a call and its result the last, each once.
func (w *world) wantOrder(c schemas.Call) {
	w.t.Helper()
	types := w.types(c)
	count := func(t schemas.EventType) (n int) {
		for _, have := range types {
			if have == t {
				n++
			}
		}
		return n
	}
	if len(types) == 0 || types[0] != schemas.CallAccepted || types[len(types)-1] != schemas.CallFinished ||
		count(schemas.CallAccepted) != 1 || count(schemas.CallFinished) != 1 {
		w.t.Errorf("%s has the events %v, want one call.accepted first and one call.finished last", c.ID, types)
	}
}

// TestCallsAreAcceptedBeforeAllElse: hundreds of calls whose admission publishes them at once, late or never,
// while they are run, refused and cancelled.
//
//guarantee:one-result-for-every-accepted-call
func TestCallsAreAcceptedBeforeAllElse(t *testing.T) {
	const calls = 300
	inWorld(t, func(t *testing.T, w *world) {
		w.employ(&fake{run: answer(schemas.ToolRead)}, func(wk *Worker) { wk.Slots = 16 })
		w.employ(&fake{run: answer(schemas.ToolRead)}, func(wk *Worker) { wk.Slots = 16 })
		var doors sync.WaitGroup
		admitted := make([]schemas.Call, calls)
		for i := range admitted {
			tool := []schemas.Tool{schemas.ToolBash, schemas.ToolRead}[i%2]
			c := w.call(fmt.Sprintf("call_%d", i), tool, func(c *schemas.Call) {
				if i%7 == 0 {
					c.Refused = "refused"
				}
			})
			admitted[i] = c
			doors.Go(func() {
				if err := streams.Calls.Publish(t.Context(), w.bus, c); err != nil {
					t.Error(err)
				}
				if i%5 == 0 {
					if err := streams.Cancels.Publish(t.Context(), w.bus,
						schemas.Cancel{Account: c.Account, Call: c.ID, Time: time.Now().UTC()}); err != nil {
						t.Error(err)
					}
				}
				if i%3 == 0 { // it dies here
					return
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				if _, err := streams.StoreOnce(t.Context(), w.bus, schemas.AcceptedEvent(c), w.bus.AbsentAt(c.Accepted)); err != nil {
					t.Error(err)
				}
			})
		}
		doors.Wait()
		for _, c := range admitted {
			w.result(c)
		}
		time.Sleep(time.Minute)
		for _, c := range admitted {
			w.wantOrder(c)
		}
	})
}

// TestWhoHasAdmittedACallNeedNotAnnounceItAgain: admission and worker are one process, and the log has confirmed what it published.
//
//guarantee:one-result-for-every-accepted-call
func TestWhoHasAdmittedACallNeedNotAnnounceItAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var calls []schemas.Call
		for n, tool := range []schemas.Tool{schemas.ToolBash, schemas.ToolRead} {
			c := w.call(fmt.Sprint("call_", n), tool)
			if _, err := streams.StoreOnce(t.Context(), w.bus, schemas.AcceptedEvent(c), w.bus.Absent()); err != nil {
				t.Fatal(err)
			}
			w.publishOnly(c)
			calls = append(calls, c)
		}
		w.employ(&fake{run: answer(schemas.ToolRead)}, func(wk *Worker) { wk.Bus = w.bus })
		for _, c := range calls {
			w.want(c, schemas.StatusCompleted)
			w.wantOrder(c)
			if w.bus.Announced(c) {
				t.Errorf("nobody asked whether %s was announced", c.ID)
			}
		}
	})
}

// TestACallIsAnnouncedOnceHoweverLate: a call that waited for long is announced by the process that starts or ends it, unless it is
// announced already, which duplicate detection may no longer cover.
//
//guarantee:one-result-for-every-accepted-call
func TestACallIsAnnouncedOnceHoweverLate(t *testing.T) {
	const wait = 11 * time.Minute
	for _, told := range []bool{true, false} {
		for name, end := range map[string]struct {
			tool   schemas.Tool
			status schemas.Status
			change func(*world, *schemas.Call)
			do     func(*world, schemas.Call)
		}{
			"run":  {schemas.ToolBash, schemas.StatusCompleted, nil, nil},
			"read": {schemas.ToolRead, schemas.StatusCompleted, nil, nil},
			"expired": {schemas.ToolBash, schemas.StatusExpired, func(_ *world, c *schemas.Call) {
				c.Deadline = time.Now().Add(wait - time.Minute)
			}, nil},
			"refused":   {schemas.ToolBash, schemas.StatusDenied, func(_ *world, c *schemas.Call) { c.Refused = "no" }, nil},
			"cancelled": {schemas.ToolBash, schemas.StatusCancelled, nil, func(w *world, c schemas.Call) { w.cancel(c) }},
			"started elsewhere": {schemas.ToolBash, schemas.StatusInterrupted, nil, func(w *world, c schemas.Call) {
				w.startedBy("worker_other", c, 1)
			}},
		} {
			t.Run(fmt.Sprintf("%s told %v", name, told), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					c := w.call("call_1", end.tool, func(c *schemas.Call) {
						if end.change != nil {
							end.change(w, c)
						}
					})
					if w.publishOnly(c); told {
						w.announce(c)
					}
					time.Sleep(wait)
					if end.do != nil {
						end.do(w, c)
					}
					w.employ(&fake{run: answer(end.tool)})
					w.want(c, end.status)
					w.once(c)
					if name == "started elsewhere" && !told { // by a worker that announces nothing
						want := []schemas.EventType{schemas.CallStarted, schemas.CallAccepted, schemas.CallFinished}
						if got := w.types(c); !slices.Equal(got, want) {
							t.Errorf("events %v, want %v", got, want)
						}
						return
					}
					w.wantOrder(c)
				})
			})
		}
	}
}

// TestTheCallExpirerAnnouncesWhatItEnds: the CallExpirer announces the calls that it ends and that no worker has in flight.
//
//guarantee:one-result-for-every-accepted-call
func TestTheCallExpirerAnnouncesWhatItEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		defer closing(w, "fake")()
		cancelled := w.publishOnly(w.call("call_cancelled", schemas.ToolBash))
		expired := w.publishOnly(w.call("call_expired", schemas.ToolBash, func(c *schemas.Call) { c.Deadline = time.Now().Add(time.Minute) }))
		w.cancel(cancelled)
		w.want(cancelled, schemas.StatusCancelled)
		w.want(expired, schemas.StatusExpired)
		w.wantOrder(cancelled)
		w.wantOrder(expired)
	})
}
