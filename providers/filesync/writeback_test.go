package filesync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/s3test"
	"github.com/sandjet/sandjet/providers/bucket"
	"github.com/sandjet/sandjet/schemas"
)

//guarantee:bounds
func TestAccountsTakeTurns(t *testing.T) {
	of := func(account string, n int) (due []errand) {
		for i := range n {
			due = append(due, errand{copy: fmt.Sprint(account, i), account: schemas.AccountID(account)})
		}
		return due
	}
	busy := func(names ...string) map[string]schemas.AccountID {
		all := map[string]schemas.AccountID{}
		for _, n := range names {
			all[n] = schemas.AccountID(n[:1])
		}
		return all
	}
	for _, c := range []struct {
		name   string
		due    []errand
		busy   map[string]schemas.AccountID
		served map[schemas.AccountID]uint64
		want   string
	}{
		{"nothing", nil, nil, nil, ""},
		{"one has many", slices.Concat(of("a", 100), of("b", 1)), nil, nil, "a0 b0 a1"},
		{"one stalls", slices.Concat(of("a", 100), of("b", 3)), busy("ax", "ay"), nil, "b0 b1"},
		{"a copy is busy", of("a", 2), busy("a0"), nil, "a1"},
		{"last turns", slices.Concat(of("a", 1), of("b", 1), of("c", 1)), nil, map[schemas.AccountID]uint64{"a": 2, "b": 1}, "c0 b0 a0"},
		{"nearly all is busy", slices.Concat(of("a", 2), of("b", 2)), busy("c1", "c2", "d1", "d2", "e1", "e2", "f1"),
			map[schemas.AccountID]uint64{"a": 1}, "b0"},
	} {
		var got []string
		for _, e := range choose(c.due, c.busy, c.served) {
			got = append(got, e.copy)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", c.name, got, c.want)
		}
	}
}

// TestOneEndpointStallsNoOther has two accounts whose endpoints answer only when both were asked.
//
//guarantee:bounds
func TestOneEndpointStallsNoOther(t *testing.T) {
	s := s3test.Memory(t, "files")
	a := newHost(t, s.URL, "w/")
	second := a.w
	second.Account = "acct_2"
	var asked atomic.Int32
	both := make(chan struct{})
	a.Workspace = func(_ context.Context, id schemas.AccountID, _ schemas.WorkspaceID) (schemas.Workspace, error) {
		w := a.w
		w.Account = id
		return w, nil
	}
	for _, w := range []schemas.Workspace{a.w, second} {
		u, _, err := a.Begin(t.Context(), w, true)
		if err != nil {
			t.Fatal(err)
		}
		u.Leave()
	}
	a.write("x", "one")
	a.Bucket = func(context.Context, schemas.Workspace) (*bucket.Bucket, error) {
		if asked.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
			return bucketAt(t, s.URL, "w/"), nil
		case <-time.After(20 * time.Second):
			return nil, errors.New("the other's turn comes after this one's")
		}
	}
	a.sweep(t.Context())
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"x": "one"})
}

// TestAFailedCopyRests is not asked for again in each round.
//
//guarantee:bounds
func TestAFailedCopyRests(t *testing.T) {
	s := s3test.Memory(t, "files")
	a := newHost(t, s.URL, "w/")
	a.begin().Leave()
	a.write("x", "one")
	asked := 0
	works := a.Bucket
	a.Bucket = func(context.Context, schemas.Workspace) (*bucket.Bucket, error) {
		asked++
		return nil, errors.New("away")
	}
	w, now := newWriteBack(a.Copies), time.Now()
	round := func(now time.Time) {
		w.sweep(t.Context())
		w.start(t.Context(), now)
		w.running.Wait()
	}
	round(now)
	round(now)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	for range 100 { // however often it failed, it is asked again
		now = now.Add(2 * longestRest)
		round(now)
		w.failed[schemas.Namespace(a.w.Account, a.w.ID)] = failure{w.failed[schemas.Namespace(a.w.Account, a.w.ID)].times, now.Add(longestRest)}
	}
	if asked != 101 {
		t.Errorf("asked %d times", asked)
	}
	a.Bucket = works
	round(now.Add(2 * longestRest))
	wantFiles(t, "bucket", objects(t, bucketAt(t, s.URL, "w/")), map[string]string{"x": "one"})
	if len(w.failed) != 0 {
		t.Error("a failure is not forgotten")
	}
}

// TestAJobThatOutlivesItsWorkerIsStored has the process end that kept the use of a job, and the next one find the job running: what it
// writes later is stored, also when a call has come between, and its end is the end of the use.
//
//guarantee:a-file-on-s3-is-never-overwritten-unseen
func TestAJobThatOutlivesItsWorkerIsStored(t *testing.T) {
	s := s3test.Memory(t, "files")
	a, b := newHost(t, s.URL, "w/"), bucketAt(t, s.URL, "w/")
	job, runs := schemas.NewJobID(), true
	a.JobRuns = func(_ context.Context, account schemas.AccountID, id schemas.JobID) bool {
		return runs && id == job && account == a.w.Account
	}
	u, _, err := a.BeginJob(t.Context(), a.w, job)
	if err != nil {
		t.Fatal(err)
	}
	u.Keep()
	a.write("x", "one")
	u.Leave() // as the end of the process does
	a.kept = nil
	a.call(func() {})
	w := newWriteBack(a.Copies)
	round := func() {
		w.sweep(t.Context())
		w.keep(t.Context(), true)
		w.start(t.Context(), time.Now())
		w.running.Wait()
	}
	round()
	a.write("x", "two")
	round()
	wantFiles(t, "bucket", objects(t, b), map[string]string{"x": "two"})
	if len(a.kept) != 1 {
		t.Errorf("%d uses are kept", len(a.kept))
	}
	runs = false
	a.remove("x")
	a.write("y", "the last")
	round()
	wantFiles(t, "bucket", objects(t, b), map[string]string{"y": "the last"})
	if len(a.kept) != 0 || a.dead() != 0 {
		t.Errorf("%d uses are kept, %d marks stay", len(a.kept), a.dead())
	}
}
