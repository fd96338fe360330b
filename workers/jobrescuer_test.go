package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
	"github.com/sandjet/sandjet/workers/leases"
	"github.com/sandjet/sandjet/workers/maintenance"
)

func (w *world) sweepUp() {
	w.t.Helper()
	w.settler()
	s := &maintenance.JobRescuer{Bus: w.open(), Endpoints: new(endpoints)}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(w.t.Context())
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("the job rescuer ended with %v", err)
		}
	}()
	w.closers = append(w.closers, func() { stop(); <-done })
}

func at(worker string, change func(*schemas.Job)) func(*schemas.Job) {
	return func(j *schemas.Job) { j.Worker = worker; change(j) }
}

//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestJobsOfDeadWorkersAreSweptUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(w.t.Context())
		living := leases.New(w.bus, leases.Record{Worker: "living"}, nil, nil)
		done := make(chan struct{})
		go func() { defer close(done); living.Keep(ctx, func() {}) }()
		w.closers = append(w.closers, func() { stop(); <-done })
		tie := func(j *schemas.Job) { j.EndsWithWorker = true }
		soon := func(j *schemas.Job) { j.Deadline = j.Created.Add(10 * time.Minute) }
		tied, kept := w.job(nil, "1", at("dead", tie)), w.job(nil, "2", at("living", tie))
		// of which another worker may take over
		moved, late := w.job(nil, "3", at("dead", func(*schemas.Job) {})), w.job(nil, "4", at("dead", soon))
		w.sweepUp()
		time.Sleep(2 * time.Minute)
		if r := w.record(tied.ID); r.State != schemas.JobLost || r.Completion.Reason != "the worker that kept its sandbox ended" {
			t.Errorf("a job whose box ended with its worker: %s", r.State)
		}
		for _, j := range []schemas.Job{kept, moved, late} {
			if r := w.record(j.ID); r.State != schemas.JobRunning {
				t.Errorf("%s is %s, want it to be left alone", j.ID, r.State)
			}
		}
		time.Sleep(10 * time.Minute)
		if r := w.record(late.ID); r.State != schemas.JobExpired || r.Completion.Reason != "nobody was there to stop it" {
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
	longtest.Only(t, "36 hours of virtual time")
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
		if r := w.record(lost.Job); r.State != schemas.JobLost || r.Completion.Reason != "its call is no longer known" {
			t.Errorf("the job of a call that never was is %s", r.State)
		}
	})
}

//guarantee:a-result-of-a-job-reaches-the-agent-once
func TestAGroupGoesOnWithoutCallsThatNeverCome(t *testing.T) {
	longtest.Only(t, "30 hours of virtual time")
	inWorld(t, func(t *testing.T, w *world) {
		w.sweepUp()
		first := w.job(nil, "1", inTurn("turn_1"), inGroup("g", 3))
		second := w.job(nil, "2", inTurn("turn_1"), inGroup("g", 3),
			at("dead", func(j *schemas.Job) { j.Deadline = j.Created.Add(48 * time.Hour) }))
		w.end(first)
		time.Sleep(30 * time.Hour)
		if turns := w.followUps(); len(turns) != 0 {
			t.Fatalf("follow-ups %+v while a member runs", turns)
		}
		w.end(second)
		time.Sleep(time.Minute)
		turns := w.followUps()
		if len(turns) != 1 || len(turns[0].Results) != 2 || turns[0].Missing != 1 ||
			!strings.Contains(turns[0].Text, "Another call of this group") {
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

// TestJobsAreSweptUpInTurn: hundreds of jobs of one account are left over beside one of another, which is younger than all of them.
// It is settled behind one of the first account, whatever their number.
//
//guarantee:what-one-tenant-can-do-to-another
func TestJobsAreSweptUpInTurn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const flood = 300
		tied := at("dead", func(j *schemas.Job) { j.EndsWithWorker = true })
		for n := range flood {
			w.job(nil, fmt.Sprint("flood", n), tied)
		}
		time.Sleep(time.Second)
		w.job(nil, "other", tied, func(j *schemas.Job) { j.Account = "acct_other" })
		w.sweepUp()
		time.Sleep(5 * time.Minute)
		ends := all(w, streams.Completions, "")
		if len(ends) != flood+1 {
			t.Fatalf("%d jobs were settled, want %d", len(ends), flood+1)
		}
		if n := slices.IndexFunc(ends, func(c schemas.Completion) bool { return c.Account == "acct_other" }); n > 1 {
			t.Errorf("the other account's job was settled behind %d of the flood, want one", n)
		}
	})
}
