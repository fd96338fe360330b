package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
)

func TestJudgeOrphan(t *testing.T) {
	t.Parallel()
	const every = 15 * time.Second
	for _, c := range []struct {
		name string
		f    orphanFacts
		want orphanVerdict
	}{
		{"its worker lives", orphanFacts{state: schemas.JobRunning, tied: true, overdue: time.Hour}, orphanLeave},
		{"its worker was missed once", orphanFacts{state: schemas.JobRunning, tied: true, absent: every}, orphanLeave},
		{"its sandbox ended with its worker", orphanFacts{state: schemas.JobRunning, tied: true, absent: 2 * every}, orphanLost},
		{"it was being launched there", orphanFacts{state: schemas.JobLaunching, tied: true, absent: 2 * every}, orphanLost},
		{"another worker can take it over", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: -time.Hour}, orphanLeave},
		{"its time is just over", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: every}, orphanLeave},
		{"its time is over and nobody came", orphanFacts{state: schemas.JobRunning, absent: time.Hour, overdue: 2 * every}, orphanExpired},
		{"it has settled", orphanFacts{state: schemas.JobFailed, tied: true, absent: time.Hour}, orphanLeave},
		{"it waits since a moment", orphanFacts{state: schemas.JobWaiting, age: time.Second, unlooked: time.Second}, orphanLeave},
		{"it waits since a minute", orphanFacts{state: schemas.JobWaiting, age: time.Minute, unlooked: time.Minute}, orphanLook},
		{"it was looked at a while ago", orphanFacts{state: schemas.JobWaiting, age: time.Hour, unlooked: 10 * time.Minute}, orphanLeave},
		{"it was looked at long ago", orphanFacts{state: schemas.JobWaiting, age: time.Hour, unlooked: 15 * time.Minute}, orphanLook},
		{"its call waits", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callOpen}, orphanLeave},
		{"its call has ended", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callResult}, orphanUnstarted},
		{"its call is not there yet", orphanFacts{state: schemas.JobWaiting, age: time.Hour, call: callUnknown}, orphanLeave},
		{"its call is gone", orphanFacts{state: schemas.JobWaiting, age: 25 * time.Hour, call: callUnknown}, orphanForgotten},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.f.every = every
			if got := judgeOrphan(c.f); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestGroupDue(t *testing.T) {
	t.Parallel()
	now := time.Now()
	past, ahead := now.Add(-time.Hour), now.Add(time.Hour)
	for _, c := range []struct {
		name             string
		deadline, latest time.Time
		done, want       bool
	}{
		{"its time is to come", ahead, time.Time{}, false, false},
		{"its time is over and nobody is known to come", past, time.Time{}, false, true},
		{"a member runs on", past, ahead, false, false},
		{"a member should have ended just now", past, now.Add(-time.Second), false, false},
		{"a member should have ended long ago", past, past, false, true},
		{"it is done", past, time.Time{}, true, false},
	} {
		if got := groupDue(schemas.Group{Deadline: c.deadline, Done: c.done}, c.latest, now, 15*time.Second); got != c.want {
			t.Errorf("%s: due %v, want %v", c.name, got, c.want)
		}
	}
}

// sweepUp runs a settler and a sweeper.
func (w *world) sweepUp() {
	w.t.Helper()
	w.settler()
	s := &Sweeper{Bus: w.open(), Endpoints: new(endpoints)}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(w.t.Context())
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("the sweeper ended with %v", err)
		}
	}()
	w.closers = append(w.closers, func() { stop(); <-done })
}

func at(worker string, change func(*schemas.Job)) func(*schemas.Job) {
	return func(j *schemas.Job) { j.Worker = worker; change(j) }
}

func TestJobsOfDeadWorkersAreSweptUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(w.t.Context())
		living := leases.New(w.bus, leases.Record{Worker: "living"}, nil, nil)
		done := make(chan struct{})
		go func() { defer close(done); living.Keep(ctx, func() {}) }()
		w.closers = append(w.closers, func() { stop(); <-done })
		tie := func(j *schemas.Job) { j.Tied = true }
		soon := func(j *schemas.Job) { j.Deadline = j.Created.Add(10 * time.Minute) }
		tied, kept := w.job(nil, "1", at("dead", tie)), w.job(nil, "2", at("living", tie))
		moved, late := w.job(nil, "3", at("dead", func(*schemas.Job) {})), w.job(nil, "4", at("dead", soon)) // of which another worker may take over
		w.sweepUp()
		time.Sleep(2 * time.Minute)
		if r := w.record(tied.ID); r.State != schemas.JobLost || r.Completion.Reason != reasonLost {
			t.Errorf("a job whose box ended with its worker: %s", r.State)
		}
		for _, j := range []schemas.Job{kept, moved, late} {
			if r := w.record(j.ID); r.State != schemas.JobRunning {
				t.Errorf("%s is %s, want it to be left alone", j.ID, r.State)
			}
		}
		time.Sleep(10 * time.Minute)
		if r := w.record(late.ID); r.State != schemas.JobExpired || r.Completion.Reason != reasonExpired {
			t.Errorf("a job whose time is over: %s", r.State)
		}
		for _, j := range []schemas.Job{kept, moved} {
			if r := w.record(j.ID); r.State != schemas.JobRunning {
				t.Errorf("%s is %s, want it to be left alone", j.ID, r.State)
			}
		}
	})
}

func TestJobsOfEndedCallsAreSweptUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.sweepUp()
		background := func(id string) schemas.Call {
			c := w.call(id, schemas.ToolBash, func(c *schemas.Call) { c.Job = schemas.JobID("job_" + id) })
			if _, err := lifecycle.EnsureJob(t.Context(), w.bus, c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		ended, open, lost := w.publish(background("1")), w.publish(background("2")), background("3")
		r := unrunResult(ended, toCancel, "enough")
		event := schemas.NewEvent(ended, schemas.CallFinished, schemas.FinishedID(ended.Account, ended.ID), time.Now(), r)
		if err := streams.Events.Publish(t.Context(), w.bus, event); err != nil { // and then its worker died
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if r := w.record(ended.Job); r.State != schemas.JobUnstarted || !strings.Contains(r.Completion.Reason, "enough") {
			t.Errorf("the job of an ended call is %s", r.State)
		}
		for _, c := range []schemas.Call{open, lost} {
			if r := w.record(c.Job); r.State != schemas.JobWaiting {
				t.Errorf("%s is %s, want it to wait", c.Job, r.State)
			}
		}
		time.Sleep(36 * time.Hour)
		if r := w.record(lost.Job); r.State != schemas.JobLost || r.Completion.Reason != reasonForgotten {
			t.Errorf("the job of a call that never was is %s", r.State)
		}
	})
}

func TestAGroupGoesOnWithoutCallsThatNeverCome(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.sweepUp()
		first := w.job(nil, "1", inTurn("turn_1"), inGroup("g", 3))
		second := w.job(nil, "2", inTurn("turn_1"), inGroup("g", 3), at("dead", func(j *schemas.Job) { j.Deadline = j.Created.Add(48 * time.Hour) }))
		w.end(first)
		time.Sleep(30 * time.Hour)
		if turns := w.followUps(); len(turns) != 0 {
			t.Fatalf("follow-ups %+v while a member runs", turns)
		}
		w.end(second)
		time.Sleep(time.Minute)
		turns := w.followUps()
		if len(turns) != 1 || len(turns[0].Results) != 2 || turns[0].Missing != 1 || !strings.Contains(turns[0].Text, "Another call of this group") {
			t.Fatalf("follow-ups %+v", turns)
		}
		third := w.job(nil, "3", inTurn("turn_1"), inGroup("g", 3))
		w.end(third)
		time.Sleep(time.Minute)
		if turns := w.followUps(); len(turns) != 2 || len(turns[1].Results) != 1 || turns[1].Group != "" {
			t.Errorf("follow-ups %+v", turns)
		}
		w.onceEach("c-shared", finishedID(first.ID), finishedID(second.ID), finishedID(third.ID), followedID("g", ""), followedID("", third.ID))
	})
}
