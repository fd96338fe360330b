package streams_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandjet/sandjet/internal/natstest"
	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// jobMirror is what a watch of jobs has reported.
type jobMirror struct {
	watch *lifecycle.JobWatch
	stop  func()

	mu    sync.Mutex
	count int
	jobs  map[string]schemas.JobState // "" when it was reported as removed
}

// mirrorJobs watches jobs in a bubble until it is stopped.
func mirrorJobs(t *testing.T, b *streams.Bus, provider string) *jobMirror {
	ctx, stop := context.WithCancel(t.Context())
	m := &jobMirror{watch: lifecycle.WatchJobs(b, provider), jobs: map[string]schemas.JobState{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p, err := range m.watch.Watch(ctx) {
			if err != nil {
				t.Errorf("%s: %v", p.Key, err)
			}
			m.mu.Lock()
			m.count++
			m.jobs[p.Key] = p.Value.State
			m.mu.Unlock()
		}
	}()
	m.stop = func() { stop(); <-done }
	t.Cleanup(m.stop)
	return m
}

func (m *jobMirror) told() (jobs map[string]schemas.JobState, count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.jobs), m.count
}

// open are the keys of the jobs that were reported as open last.
func (m *jobMirror) open() []string {
	jobs, _ := m.told()
	return slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, bool) bool) {
		for key, state := range jobs {
			if state != "" && !state.Final() && !yield(key, true) {
				return
			}
		}
	})))
}

func watchedJob(id string, state schemas.JobState) schemas.Job {
	j := schemas.Job{ID: schemas.JobID(schemas.JobPrefix + id), Account: "acct_1", Provider: "local", State: state}
	if state.Final() {
		j.Completion = &schemas.Completion{Job: j.ID, Account: j.Account, State: state, Logs: strings.Repeat("x", 8<<10)}
	}
	return j
}

// putJob writes a record as versions before the marks did.
func putJob(t *testing.T, b *streams.Bus, j schemas.Job) {
	t.Helper()
	if _, err := lifecycle.OpenJobs(b).Put(t.Context(), j.Key(), j); err != nil {
		t.Fatal(err)
	}
}

func ensureJob(t *testing.T, b *streams.Bus, id string) streams.BucketEntry[schemas.Job] {
	t.Helper()
	p, err := lifecycle.EnsureJob(t.Context(), b,
		schemas.Call{Account: "acct_1", Job: schemas.JobID(schemas.JobPrefix + id), Provider: "local"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// settleJob makes a record final and says so as the settler does, unless that dies before.
func settleJob(t *testing.T, b *streams.Bus, key string, marks bool, change ...func(*schemas.Job)) {
	t.Helper()
	p, err := lifecycle.OpenJobs(b).Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	p.Value.State, p.Value.Completion = schemas.JobCompleted,
		&schemas.Completion{State: schemas.JobCompleted, Logs: strings.Repeat("x", 8<<10)}
	for _, f := range change {
		f(&p.Value)
	}
	if _, err = lifecycle.OpenJobs(b).UpdateFor(t.Context(), key, p.Value, p.Revision, streams.SettledKept); err != nil {
		t.Fatal(err)
	}
	if marks {
		lifecycle.MarkSettled(b, p.Value)
	}
}

func cover(t *testing.T, m *jobMirror) {
	t.Helper()
	synctest.Wait()
	if err := m.watch.Cover(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestSettledJobsAreNotReadWhenAWatchBegins(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		const settled, open = 2000, 7
		for i := range open {
			putJob(t, b, watchedJob(fmt.Sprintf("old%d", i), schemas.JobRunning)) // by a version before the marks
		}
		for i := range settled {
			putJob(t, b, watchedJob(fmt.Sprintf("over%d", i), schemas.JobCompleted))
		}
		first := mirrorJobs(t, b, "")
		settle(t)
		if _, count := first.told(); count != settled+open {
			t.Fatalf("a watch of an older log told %d values, want all %d", count, settled+open)
		}
		cover(t, first)
		first.stop()
		ensureJob(t, b, "new")
		settleJob(t, b, "acct_1.job_old0", true)

		before := b.Received()
		second := mirrorJobs(t, b, "")
		settle(t)
		got := b.Received() - before
		if len(second.open()) != open || slices.Contains(second.open(), "acct_1.job_old0") || !slices.Contains(second.open(), "acct_1.job_new") {
			t.Errorf("open by the second watch: %v", second.open())
		}
		if most := uint64(64 << 10); got > most {
			t.Errorf("the second watch has read %d bytes beside %d settled jobs of 8 KiB, want at most %d", got, settled, most)
		}
	})
}

func TestAWatchOfJobsMissesNoneWhenAWriterDied(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		a, c := ensureJob(t, b, "a"), ensureJob(t, b, "c")
		first := mirrorJobs(t, b, "")
		cover(t, first)
		settleJob(t, b, a.Key, false) // it died before it said so
		if err := lifecycle.OpenJobs(b).Delete(t.Context(), c.Key); err != nil {
			t.Fatal(err)
		}
		cover(t, first)
		first.stop()
		for round, want := range []map[string]schemas.JobState{
			{a.Key: schemas.JobCompleted, c.Key: ""}, // both marks are there
			{c.Key: ""},                              // the first has found out
		} {
			m := mirrorJobs(t, b, "")
			settle(t)
			if got, _ := m.told(); !maps.Equal(got, want) {
				t.Errorf("round %d: told %v, want %v", round, got, want)
			}
			m.stop()
		}
		// A process of an older version makes a record without a mark while a newer one watches, and both end.
		m := mirrorJobs(t, b, "")
		settle(t)
		putJob(t, b, watchedJob("unmarked", schemas.JobRunning))
		cover(t, m)
		m.stop()
		putJob(t, b, watchedJob("later", schemas.JobRunning)) // while none watches
		m = mirrorJobs(t, b, "")
		settle(t)
		if got, want := m.open(), []string{"acct_1.job_later", "acct_1.job_unmarked"}; !slices.Equal(got, want) {
			t.Errorf("open: %v, want %v", got, want)
		}
	})
}

func TestAWatchOfOneProviderTellsOfBoxesThatMayBeLeft(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		own, shared := ensureJob(t, b, "own"), ensureJob(t, b, "shared")
		first := mirrorJobs(t, b, "")
		cover(t, first)
		settleJob(t, b, own.Key, true, func(j *schemas.Job) { j.DedicatedSandbox = true })
		settleJob(t, b, shared.Key, true)
		cover(t, first)
		for _, c := range []struct {
			provider string
			after    time.Duration
			want     []string
		}{
			{provider: "local", want: []string{own.Key}},
			{provider: "other"},
			{provider: ""},
			{provider: "local", after: lifecycle.JobLeftFor},
		} {
			time.Sleep(c.after)
			m := mirrorJobs(t, b, c.provider)
			settle(t)
			got, _ := m.told()
			if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, c.want) {
				t.Errorf("provider %q after %s: told %v, want %v", c.provider, c.after, keys, c.want)
			}
			m.stop()
		}
	})
}

func TestAWatchOfJobsTellsWhatSettledWhileItsLogWasAnother(t *testing.T) {
	t.Parallel()
	natstest.Run(t, func(t *testing.T, b *streams.Bus) {
		a := ensureJob(t, b, "a")
		m := mirrorJobs(t, b, "local")
		settle(t)
		if err := b.DeleteStream(t.Context(), "KV_jobs"); err != nil {
			t.Fatal(err)
		}
		if err := b.Again(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Drop()
		settle(t)
		if got, _ := m.told(); got[a.Key] != "" {
			t.Errorf("told %v of a job whose record is gone", got)
		}
		p := ensureJob(t, b, "a") // its mark is there
		settle(t)
		if got, _ := m.told(); got[p.Key] != schemas.JobWaiting {
			t.Errorf("told %v of a job that was made anew", got)
		}
	})
}

// settle lets everything that is on its way arrive.
func settle(t *testing.T) {
	t.Helper()
	time.Sleep(10 * time.Second)
	synctest.Wait()
}
