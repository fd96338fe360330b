package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/streams/callstate"
	"github.com/sandjet/sandjet/workers/limits"
	"github.com/sandjet/sandjet/workers/maintenance"
)

// TestASettlerDiesAtEachStage lets a settler die between any two effects, and the next one come while
// the log knows the first one's events, or so late that it has forgotten them.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestASettlerDiesAtEachStage(t *testing.T) {
	for _, late := range []time.Duration{0, time.Hour} {
		for i, stage := range maintenance.SettleStages() {
			if late > 0 && i%3 != 0 && !longtest.Asked() {
				continue
			}
			t.Run(fmt.Sprintf("%s %s", stage, late), func(t *testing.T) {
				if late > 0 {
					natstest.Hours(t)
				}
				inWorld(t, func(t *testing.T, w *world) {
					caps := new(limits.Memory)
					agent := w.job(caps, "a", inTurn("turn_1"))
					chat := w.job(caps, "b", fromChannel)
					left, right := w.job(caps, "l", inTurn("turn_2"), inGroup("g", 2)), w.job(caps, "r", inTurn("turn_2"), inGroup("g", 2))
					for _, j := range []schemas.Job{agent, chat, left, right} {
						first := w.settler(with(caps), dieWhen(func(at maintenance.SettleStage) bool { return at == stage }))
						w.end(j)
						time.Sleep(time.Minute)
						first.stop()
						<-first.done
						time.Sleep(late)
						next := w.settler(with(caps))
						time.Sleep(time.Minute)
						next.stop()
						<-next.done
					}
					w.onceEach("c-shared", finishedID(agent.ID), followedID("", agent.ID), finishedID(left.ID), finishedID(right.ID), followedID("g", ""))
					w.onceEach(chat.Conversation, finishedID(chat.ID), followedID("", chat.ID))
					if turns := w.followUps(); len(turns) != 2 || len(turns[0].Results) != 1 || len(turns[1].Results) != 2 || turns[1].Turn != "turn_2" {
						t.Errorf("follow-ups %+v", turns)
					}
					chats := all(w, streams.Deliveries, "telegram")
					if len(chats) != 1 || string(chats[0].Route) != `{"chat":1}` || !strings.Contains(chats[0].Body, "job_b") {
						t.Errorf("on the channel: %+v", chats)
					}
					for _, j := range []schemas.Job{agent, chat, left, right} {
						r := w.record(j.ID)
						if r.State != schemas.JobCompleted || r.Completion == nil || r.FollowUp == "" {
							t.Errorf("record %+v", r)
						}
					}
					if _, err := caps.Acquire(t.Context(), "jobs", "other", 1, time.Minute); err != nil {
						t.Errorf("places are still held: %v", err)
					}
				})
			})
		}
	}
}

// TestTwoHundredJobsSettleOnce has settlers die at random places under a crowd of jobs.
//
//guarantee:a-result-of-a-job-reaches-the-agent-once
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestTwoHundredJobsSettleOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const jobs, groupSize = 200, 5
		caps := new(limits.Memory)
		var want []string
		var made []schemas.Job
		for i := range jobs {
			id := fmt.Sprint(i)
			change := []func(*schemas.Job){inTurn("turn_" + id)}
			if i%2 == 0 { // every other one in a group
				group := fmt.Sprintf("g%d", i/2/groupSize)
				change = []func(*schemas.Job){inTurn("turn_" + group), inGroup(group, groupSize)}
				want = append(want, followedID(group, ""))
			} else {
				want = append(want, followedID("", schemas.JobID("job_"+id)))
			}
			j := w.job(caps, id, change...)
			made = append(made, j)
			want = append(want, finishedID(j.ID))
		}
		slices.Sort(want)
		want = slices.Compact(want)
		rand.Shuffle(jobs, func(i, j int) { made[i], made[j] = made[j], made[i] })
		var sending sync.WaitGroup
		sending.Go(func() {
			for _, j := range made {
				w.end(j)
				time.Sleep(100 * time.Millisecond)
			}
		})
		const deaths = 12
		for range deaths {
			var left atomic.Int32
			left.Store(rand.Int32N(150))
			s := w.settler(with(caps), dieWhen(func(maintenance.SettleStage) bool { return left.Add(-1) < 0 }))
			select {
			case <-s.done:
			case <-time.After(time.Minute): // it had nothing to do any more
			}
			s.stop()
			<-s.done
		}
		sending.Wait()
		w.settler(with(caps))
		time.Sleep(10 * time.Minute)
		w.onceEach("c-shared", want...)
		results := map[schemas.JobID]int{}
		for _, f := range w.followUps() {
			for _, r := range f.Results {
				results[r.Job]++
			}
		}
		for _, j := range made {
			if results[j.ID] != 1 {
				t.Errorf("the result of %s came %d times, want once", j.ID, results[j.ID])
			}
		}
		if _, err := caps.Acquire(t.Context(), "jobs", "other", 1, time.Minute); err != nil {
			t.Errorf("places are still held: %v", err)
		}
	})
}

//guarantee:a-result-of-a-job-reaches-the-agent-once
func TestAResultThatWasReadIsLeftOut(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var group []schemas.Job
		for i := range 3 {
			group = append(group, w.job(nil, fmt.Sprint(i), inTurn("turn_1"), inGroup("g", 3)))
		}
		w.settler()
		w.end(group[0])
		w.end(group[1], unstartedEnd)
		time.Sleep(time.Minute)
		jobs := lifecycle.OpenJobs(w.bus)
		p, err := jobs.Get(t.Context(), group[0].Key())
		if err != nil || p.Value.FollowUp != "" {
			t.Fatalf("the follow-up of %+v is %q, want it open: %v", p.Value.ID, p.Value.FollowUp, err)
		}
		p.Value.FollowUp = schemas.Observed
		if _, err := jobs.UpdateFor(t.Context(), p.Key, p.Value, p.Revision, streams.SettledKept); err != nil {
			t.Fatal(err)
		}
		w.end(group[2])
		time.Sleep(time.Minute)
		turns := w.followUps()
		if len(turns) != 1 || len(turns[0].Results) != 2 || turns[0].Results[0].Job != group[1].ID || turns[0].Results[1].Job != group[2].ID {
			t.Fatalf("follow-ups %+v", turns)
		}
		w.onceEach("c-shared", finishedID(group[0].ID), finishedID(group[2].ID), followedID("g", ""))

		late := w.job(nil, "late", inTurn("turn_1"), inGroup("g", 3)) // more than the group has
		w.end(late)
		time.Sleep(time.Minute)
		if turns := w.followUps(); len(turns) != 2 || turns[1].Group != "" || turns[1].Results[0].Job != late.ID {
			t.Errorf("follow-ups %+v", turns)
		}
	})
}

// TestAGroupKeepsWhatItHasUntilItIsWhole: its members end more than a week apart. When it is done they are forgotten as others.
//
//guarantee:a-result-of-a-job-reaches-the-agent-once
func TestAGroupKeepsWhatItHasUntilItIsWhole(t *testing.T) {
	longtest.Only(t, "it plays weeks of virtual time")
	inWorld(t, func(t *testing.T, w *world) {
		long := func(j *schemas.Job) { j.Deadline = time.Now().Add(schemas.MaxJobLifetime) }
		var group []schemas.Job
		for i := range 3 {
			group = append(group, w.job(nil, fmt.Sprint(i), inTurn("turn_1"), inGroup("g", 3), long))
		}
		settle := func() { // none runs in between: days of it take long even in virtual time
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if err := (&maintenance.Settler{Bus: w.bus}).Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
		none := []schemas.Job{w.job(nil, "x", inTurn("turn_1"), inGroup("none", 2), long),
			w.job(nil, "y", inTurn("turn_1"), inGroup("none", 2), long)}
		w.end(group[0])
		w.end(group[1], unstartedEnd)
		w.end(none[0], unstartedEnd)
		settle()
		time.Sleep(streams.SettledKept + 24*time.Hour)
		w.end(group[2])
		w.end(none[1], unstartedEnd)
		settle()
		turns := w.followUps()
		if len(turns) != 1 || len(turns[0].Results) != 3 || turns[0].Missing != 0 {
			t.Fatalf("follow-ups %+v, want one with the results of all", turns)
		}
		time.Sleep(streams.SettledKept + time.Hour)
		if keys, err := lifecycle.OpenJobs(w.bus).Keys(t.Context()); err != nil || len(keys) > 0 {
			t.Errorf("records %v are kept behind their time: %v", keys, err)
		}
	})
}

func TestNothingFollowsFromWhatWasNotStarted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		alone := w.job(nil, "1", inTurn("turn_1"))
		left, right := w.job(nil, "2", inTurn("turn_2"), inGroup("g", 2)), w.job(nil, "3", inTurn("turn_2"), inGroup("g", 2))
		w.settler()
		for _, j := range []schemas.Job{alone, left, right} {
			w.end(j, unstartedEnd)
		}
		time.Sleep(time.Minute)
		w.onceEach("c-shared")
		if turns := w.followUps(); len(turns) != 0 {
			t.Errorf("follow-ups %+v", turns)
		}
		g, err := lifecycle.OpenGroups(w.bus).Get(t.Context(), lifecycle.GroupKey(testAccount, "g"))
		if err != nil || !g.Value.Done {
			t.Errorf("the group is %+v, %v; want it done", g.Value, err)
		}
		if r := w.record(alone.ID); r.State != schemas.JobUnstarted || r.Completion.Reason != "cancelled" {
			t.Errorf("record %+v", r)
		}
	})
}

func TestAnEndWithoutARecordIsADeadLetter(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.settler()
		w.end(schemas.Job{ID: "job_foreign", Account: testAccount})
		time.Sleep(time.Minute)
		if letters := all(w, streams.Dead, "JOBS"); len(letters) != 1 || letters[0].Code != schemas.NotFound {
			t.Errorf("dead letters %+v", letters)
		}
	})
}

func TestASettlerWaitsForTheRecordsOfEndpoints(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		e := new(endpoints)
		e.err.Store(&schemas.Error{Code: schemas.Denied, Message: "no"})
		w.settler(func(s *maintenance.Settler, _ *settles) { s.Endpoints = e })
		j := w.job(nil, "1")
		w.end(j)
		time.Sleep(time.Hour)
		w.onceEach(j.Conversation)
		e.err.Store(nil)
		time.Sleep(time.Minute)
		w.onceEach(j.Conversation, finishedID(j.ID), followedID("", j.ID))
	})
}

// TestWhatIsNoTextSettlesToo ends a job whose output is as large as JSON can make it.
func TestWhatIsNoTextSettlesToo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j := w.job(nil, "1", func(j *schemas.Job) { j.Command = strings.Repeat("\x01", schemas.MaxJobCommand) })
		w.settler()
		w.end(j, func(c *schemas.Completion) {
			c.Logs, c.LogBytes = strings.Repeat("\x00", schemas.MaxJobLogs), schemas.MaxJobLogs
			c.Reason = strings.Repeat("ü", 200<<10)
		})
		time.Sleep(time.Minute)
		r := w.record(j.ID)
		if !r.State.Final() || !r.Completion.LogTruncated || r.Completion.Logs == "" {
			t.Errorf("state %s, %d bytes of logs, truncated %v", r.State, len(r.Completion.Logs), r.Completion.LogTruncated)
		}
		w.onceEach(j.Conversation, finishedID(j.ID), followedID("", j.ID))
	})
}

// TestTheWorstEndOfAJobSettles ends a job all of whose texts are as large as JSON can make them.
//
//guarantee:bounds
func TestTheWorstEndOfAJobSettles(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const separator = "\u2028" // three bytes in the JSON that came in, six on the log
		j := w.job(nil, "1", func(j *schemas.Job) {
			j.Command = strings.Repeat("\x01", schemas.MaxJobCommand)
			j.Origin = &schemas.Origin{
				Kind:  schemas.OriginChannel,
				Route: json.RawMessage(`{"a":"` + strings.Repeat(separator, (schemas.MaxOrigin-8)/len(separator)) + `"}`),
			}
		})
		w.settler()
		w.end(j, func(c *schemas.Completion) {
			c.Logs, c.LogBytes = strings.Repeat("\x01", schemas.MaxJobLogs), schemas.MaxJobLogs
			c.Reason = strings.Repeat("\x01", 4<<10)
			for range schemas.MaxArtifacts {
				c.Artifacts = append(c.Artifacts, schemas.Artifact{Path: strings.Repeat(separator, schemas.MaxFilePath/len(separator))})
			}
		})
		time.Sleep(time.Minute)
		r := w.record(j.ID)
		if !r.State.Final() || r.Completion == nil || !r.Completion.LogTruncated || r.Completion.Logs == "" || !strings.HasSuffix(r.Completion.Reason, "…") {
			t.Errorf("state %s, %+.100v", r.State, r.Completion)
		}
		w.onceEach(j.Conversation, finishedID(j.ID), followedID("", j.ID))
		if dead, err := streams.OpenDeadLetters(w.bus).List(w.t.Context(), "", 1); err != nil || len(dead) > 0 {
			t.Errorf("%d dead letters, %v", len(dead), err)
		}
	})
}

func TestACallThatIsGivenUpSettlesItsJob(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.settler()
		background := func(id string) schemas.Call {
			return w.publish(w.call(id, schemas.ToolBash, func(c *schemas.Call) {
				c.Job, c.Input = schemas.JobID("job_"+id), []byte(`{"command":"make","background":true}`)
			}))
		}
		waiting, launched := background("1"), background("2")
		p, err := lifecycle.EnsureJob(t.Context(), w.bus, launched)
		if err != nil {
			t.Fatal(err)
		}
		p.Value.State = schemas.JobLaunching
		if _, err := lifecycle.OpenJobs(w.bus).Update(t.Context(), p.Key, p.Value, p.Revision); err != nil {
			t.Fatal(err)
		}
		running := background("4")
		if p, err = lifecycle.EnsureJob(t.Context(), w.bus, running); err != nil {
			t.Fatal(err)
		}
		p.Value.State = schemas.JobRunning
		if _, err := lifecycle.OpenJobs(w.bus).Update(t.Context(), p.Key, p.Value, p.Revision); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			call   schemas.Call
			status schemas.Status
			named  bool
		}{{waiting, schemas.StatusCancelled, false}, {launched, schemas.StatusInterrupted, true}, {running, schemas.StatusCompleted, true}} {
			if _, err := lifecycle.FinishUnheld(t.Context(), w.bus, unrunResult(c.call, toCancel, "enough"),
				callstate.State{Call: c.call, Accepted: true}, w.bus.Certainty()); err != nil {
				t.Fatal(err)
			}
			if r := w.want(c.call, c.status); (r.StatusID == string(c.call.Job)) != c.named {
				t.Errorf("%s: the result names the job %q", c.call.ID, r.StatusID)
			}
		}
		time.Sleep(time.Minute)
		if r := w.record(waiting.Job); r.State != schemas.JobUnstarted || !strings.Contains(r.Completion.Reason, "enough") {
			t.Errorf("the waiting job is %+v", r)
		}
		if r := w.record(launched.Job); r.State != schemas.JobLaunching {
			t.Errorf("the launched job is %s: its end is not known", r.State)
		}
		if err := lifecycle.SettleNotStarted(t.Context(), w.bus, schemas.Call{ID: "3"}, "", lifecycle.Certainly); err != nil {
			t.Errorf("a call in the foreground: %v", err)
		}
		if _, err := lifecycle.FindJob(t.Context(), w.bus, testAccount, ""); !errors.Is(err, schemas.ErrNotFound) {
			t.Error(err)
		}
	})
}

// TestEndsOfJobsAreSettledInTurn: hundreds of ends of one account's jobs wait for a settler that takes a while for each. Another
// account's, which comes behind them, is settled when a few more are.
//
//guarantee:what-one-tenant-can-do-to-another
func TestEndsOfJobsAreSettledInTurn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const flood, slots, each = 300, 4, time.Second
		for n := range flood {
			w.end(w.job(nil, fmt.Sprint("flood", n)))
		}
		w.settler(func(s *maintenance.Settler, _ *settles) {
			s.Slots = slots
			first := maintenance.SettleStages()[0]
			s.At = func(at maintenance.SettleStage) error {
				if at == first {
					time.Sleep(each)
				}
				return nil
			}
		})
		settled := func() (n int) {
			for _, e := range all(w, streams.Deliveries, schemas.WebhookChannel) {
				if e.Account == testAccount && e.Type == schemas.JobFinished {
					n++
				}
			}
			return n
		}
		for n := range 3 {
			time.Sleep(3 * each)
			before := settled()
			other := w.job(nil, fmt.Sprint("other", n), func(j *schemas.Job) { j.Account = "acct_other" })
			w.end(other)
			for range flood {
				p, err := lifecycle.FindJob(t.Context(), w.bus, other.Account, other.ID)
				if err != nil {
					t.Fatal(err)
				}
				if p.Value.State.Final() {
					break
				}
				time.Sleep(each / 10)
			}
			if behind := settled() - before; behind > 3*slots {
				t.Errorf("end %d was settled behind %d of the other account, want %d at most", n, behind, 3*slots)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := settled(); n != flood {
			t.Errorf("%d ends were settled, want %d", n, flood)
		}
	})
}
