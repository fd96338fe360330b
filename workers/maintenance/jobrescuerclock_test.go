package maintenance

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// TestARescuerDoesNotCountAJumpOfTheLogsClockAsTimeThatPassed: a JobRescuer remembers when it first missed the lease of a worker, when it
// read the call of a waiting job, and when it wrote its mark of open jobs. Then the server's clock is set by an hour.
//
//guarantee:a-wrong-clock-ends-nothing-before-its-time
func TestARescuerDoesNotCountAJumpOfTheLogsClockAsTimeThatPassed(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("by ", jump), func(t *testing.T) {
			var set atomic.Int64 // each process reads the clock when it sends a request to the server
			inWorld(t, func(w *world) {
				rescueAcrossJump(w, func() { set.Store(int64(jump)) })
			}, func(s *natstest.Settings) {
				s.Log.LogClock = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
			})
		})
	}
}

func rescueAcrossJump(w *world, jump func()) {
	w.Helper()
	r := rescuing(w.bus)
	clear(r.absent)
	r.watched = lifecycle.WatchJobs(w.bus, "")
	tied := w.running("1", "dead")
	waiting := w.running("2", "", func(j *schemas.Job) { j.State = schemas.JobWaiting })
	judge := func() {
		w.Helper()
		for _, j := range []openJob{openJobOf(tied), openJobOf(waiting)} {
			if err := r.sweepJob(w.Context(), j); err != nil {
				w.Fatal(err)
			}
		}
		r.cover(w.Context())
	}
	sweep := func() {
		w.Helper()
		if err := r.lookForWorkers(w.Context(), []openJob{openJobOf(tied), openJobOf(waiting)}); err != nil {
			w.Fatal(err)
		}
		judge()
	}
	time.Sleep(2 * time.Minute) // a JobRescuer reads the call of a job that has waited for a minute
	sweep()
	read, covered := r.looked[waiting.Key()], r.covered
	if read.IsZero() || covered.IsZero() {
		w.Fatal("the call of the waiting job was not read, or the mark not written")
	}
	jump()
	r.bus = w.open() // this one reads the server's time at once, as a Bus may after a reconnect
	defer cut(r.bus)
	time.Sleep(r.every)
	judge()
	if c, ended := w.completed(tied); ended {
		w.Fatalf("a job whose worker was missed once is %s", c.State)
	}
	if again := r.looked[waiting.Key()]; !again.Equal(read) {
		w.Errorf("the call of the waiting job was read at %s and again at %s", read, again)
	}
	if !r.covered.Equal(covered) {
		w.Errorf("the mark was written at %s and again at %s", covered, r.covered)
	}

	time.Sleep(r.every)
	sweep()
	if c, ended := w.completed(tied); !ended || c.State != schemas.JobLost {
		w.Errorf("a job whose worker was missed for two intervals: state %q, want it lost", c.State)
	}
	time.Sleep(30 * time.Minute)
	judge()
	if r.looked[waiting.Key()].Equal(read) {
		w.Error("the call of the waiting job is not read again within half an hour")
	}
	if r.covered.Equal(covered) {
		w.Error("the mark is not written again within half an hour")
	}
}

// TestARescuerKeepsLittleOfAJob: the memory contains no part of the request that started the job, which may be large.
//
//guarantee:bounds
func TestARescuerKeepsLittleOfAJob(t *testing.T) {
	large := strings.Repeat("x", 4<<10)
	r := &rescue{followUps: newFollowUps(nil, nil, nil), watched: &lifecycle.JobWatch{}}
	r.bus = new(streams.Bus)
	r.mirror()
	kept, open := r.jobs.Keep(streams.BucketEntry[schemas.Job]{Value: schemas.Job{
		ID: "job_1", Account: "acct_1", Call: "call_1", State: schemas.JobRunning, Worker: "w", Command: large, TokenHash: large,
		Origin: &schemas.Origin{Route: []byte(`"` + large + `"`)}, Group: &schemas.GroupRef{ID: "g"},
	}})
	if text := fmt.Sprintf("%+v", kept); !open || len(text) > 1000 || kept.group != "g" || kept.worker != "w" || kept.key() != "acct_1.job_1" {
		t.Errorf("%d bytes are kept: %.1000s", len(text), text)
	}
}
