package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/redistest"
	"github.com/sandjet/sandjet/schemas"
)

// TestEveryJobComesHomeInSpiteOfKills holds Sandjet to its promises about background jobs: while jobs start, run and end, each role and
// the Redis server of their caps is killed with SIGKILL again and again. At the end every job has settled once, its end was published
// once on its conversation, and one follow-up was made of it. The webhook receiver, which fails now and then, has received each end;
// repeats have the same id. Each job that ended by itself has its artifact once, or says why not.
//
//guarantee:an-artifact-is-announced-once-with-all-of-its-bytes
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestEveryJobComesHomeInSpiteOfKills(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "jobs in spite of kills; calls in spite of kills are in the short form")
	s := sizeOf()
	s.calls = map[bool]int{true: 200, false: 40}[s.calls > 100]
	seed := longtest.Seed(t)
	t.Logf("%d jobs", s.calls)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()

	sink := newReceiver(t, rand.New(rand.NewPCG(seed, 3)))
	redis := redistest.Start(t)
	c := startCluster(ctx, t, withDelivery, withRedis(redis.URL()))
	c.subscribe(ctx, t, sink.server.URL)
	calls := newJobCalls(s, rand.New(rand.NewPCG(seed, 1)))
	chaos, quiet := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { c.killAtRandom(chaos, t, s, rand.New(rand.NewPCG(seed, 2))) })
	killer.Go(func() { restartAtRandom(chaos, c, redis, s, rand.New(rand.NewPCG(seed, 4))) })
	accepted := c.submitAs(ctx, t, calls, true)
	results := c.results(ctx, t, accepted)
	c.awaitKills(ctx, t, s.kills)
	quiet()
	killer.Wait()
	c.startMissing(ctx, t)

	jobs := c.settled(ctx, t, results)
	c.checkJobs(ctx, t, accepted, results, jobs, sink)
}

// restartAtRandom kills Redis, which keeps nothing, and starts it again after a while, until ctx ends.
func restartAtRandom(ctx context.Context, c *cluster, redis *redistest.Server, s size, r *rand.Rand) {
	for pause(ctx, time.Duration(r.Int64N(int64(2*s.between)))); ctx.Err() == nil; pause(ctx, time.Duration(r.Int64N(int64(4*s.between)))) {
		c.log.note("--- kill -9 redis")
		redis.Kill()
		pause(ctx, time.Duration(r.Int64N(int64(s.between))))
		redis.Restart()
		c.log.note("--- up again: redis")
	}
}

// newJobCalls makes jobs that end in different ways, after different times.
func newJobCalls(s size, r *rand.Rand) []wanted {
	calls := make([]wanted, s.calls)
	for i := range calls {
		id := fmt.Sprintf("job-%04d", i)
		nap := time.Duration(r.Int64N(int64(2 * s.naps))).Seconds()
		end := []string{"echo done " + id, "exit 3", "kill -9 $$", "exec sleep 0.1"}[i%4]
		calls[i] = wanted{
			id: id, conversation: fmt.Sprintf("jobs-%d", i%8),
			command:  fmt.Sprintf("echo %s >> %s; sleep %.3f; echo %s > %s.txt; %s", id, mark, nap, id, id, end),
			artifact: id + ".txt",
		}
	}
	return calls
}

// subscribe makes the receiver an endpoint of the account.
func (c *cluster) subscribe(ctx context.Context, t *testing.T, at string) {
	t.Helper()
	status, answer, err := c.ask(ctx, http.MethodPost, "/v1/webhooks", map[string]any{
		"url": at, "events": []schemas.EventType{schemas.JobFinished, schemas.FollowUpCreated},
	})
	if err != nil || status != http.StatusCreated {
		t.Fatalf("the endpoint was not accepted: %d %s %v", status, answer, err)
	}
}

// settled waits until every job has ended and returns the jobs by the ID of their call.
func (c *cluster) settled(ctx context.Context, t *testing.T, results map[string]schemas.Result) map[string]schemas.Job {
	t.Helper()
	for {
		status, answer, err := c.ask(ctx, http.MethodGet, "/v1/jobs?limit=500", nil)
		var list struct {
			Jobs []schemas.Job `json:"jobs"`
		}
		if err != nil || status != http.StatusOK || json.Unmarshal(answer, &list) != nil {
			t.Fatalf("the jobs cannot be listed: %d %.300s %v", status, answer, err)
		}
		open, byCall := 0, map[string]schemas.Job{}
		for _, j := range list.Jobs {
			byCall[string(j.Call)] = j
			if !j.State.Final() {
				open++
			}
		}
		if open == 0 && len(byCall) >= len(results) {
			return byCall
		}
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("%d of %d jobs have not settled, for %d calls\n%s", open, len(byCall), len(results), c.log)
		}
	}
}

// checkJobs compares records, conversations, files and deliveries with the promises.
func (c *cluster) checkJobs(
	ctx context.Context, t *testing.T, calls []wanted, results map[string]schemas.Result, jobs map[string]schemas.Job, sink *receiver,
) {
	t.Helper()
	ran := c.ran(ctx, t)
	told := c.told(ctx, t, calls)
	// A record is final a moment before the event is published: what is missing may be under way.
	for began := time.Now(); !told.all(jobs) && time.Since(began) < patience && ctx.Err() == nil; told = c.told(ctx, t, calls) {
		pause(ctx, 200*time.Millisecond)
	}
	count, skipped := map[schemas.JobState]int{}, map[schemas.SkipReason]int{}
	for _, w := range calls {
		j, ok := jobs[w.id]
		r := results[w.id]
		switch {
		case !ok:
			t.Errorf("%s has no job: %s %q", w.id, r.Status, r.Text)
			continue
		case r.StatusID != "" && r.StatusID != string(j.ID):
			t.Errorf("%s: the result names %s, the record is %s", w.id, r.StatusID, j.ID)
		case r.Status == schemas.StatusCompleted && r.StatusID == "":
			t.Errorf("%s is completed and names no job", w.id)
		case ran[w.id] > 1:
			t.Errorf("%s ran %d times", w.id, ran[w.id])
		}
		count[j.State]++
		if j.State == schemas.JobUnstarted {
			if n := told.finished[j.ID]; n != 0 || ran[w.id] != 0 {
				t.Errorf("%s was not started, and was told %d times and ran %d times", w.id, n, ran[w.id])
			}
			continue
		}
		want := []schemas.JobState{schemas.JobCompleted, schemas.JobFailed, schemas.JobFailed, schemas.JobCompleted}[index(w.id)%4]
		// With its sandbox gone, or made again, it cannot be known how far the job came.
		cut := j.State == schemas.JobLost || j.Completion != nil && j.Completion.Code == schemas.Interrupted
		if j.State != want && !cut {
			t.Errorf("%s is %s (%+v), want %s, lost or interrupted", w.id, j.State, j.Completion, want)
		}
		if !cut && ran[w.id] != 1 {
			t.Errorf("%s is %s and ran %d times", w.id, j.State, ran[w.id])
		}
		if n := told.finished[j.ID]; n != 1 {
			t.Errorf("%s (%s): job.finished was told %d times", w.id, j.ID, n)
		}
		if n := told.followUps[j.ID]; n != 1 {
			t.Errorf("%s (%s): %d follow-ups have its result", w.id, j.ID, n)
		}
		a := told.artifacts[j.ID]
		for _, s := range a.SkippedArtifacts {
			skipped[s.Reason]++
		}
		if n := len(a.Artifacts); n > 1 || !cut && n+len(a.SkippedArtifacts) != 1 || n == 1 && a.Artifacts[0].Path != w.artifact {
			t.Errorf("%s (%s) left %+v", w.id, j.State, a)
		}
		if n := told.announced[j.Call]; n != len(a.Artifacts) {
			t.Errorf("%s: job.finished lists %d artifacts, %d were announced before", w.id, len(a.Artifacts), n)
		}
		sink.await(ctx, t, schemas.JobFinishedID(j.Account, j.ID))
	}
	for _, p := range c.roles {
		t.Logf("%s was killed %d times", p.name, p.kills)
	}
	t.Logf("jobs: %v; artifacts not kept: %v; %s", count, skipped, sink.summary())
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for _, wrong := range sink.wrong {
		t.Error(wrong)
	}
	if count[schemas.JobCompleted] == 0 {
		t.Error("no job ended by itself: the roles were never up together")
	}
}

// index returns the number in an ID such as kept-0012, or -1 if it has none.
func index(id string) int {
	var n int
	if _, err := fmt.Sscanf(id[strings.IndexByte(id, '-')+1:], "%d", &n); err != nil {
		return -1
	}
	return n
}

// toldOf counts the events of conversations about jobs.
type toldOf struct {
	finished  map[schemas.JobID]int
	followUps map[schemas.JobID]int
	artifacts map[schemas.JobID]schemas.JobArtifacts // by job.finished
	announced map[schemas.CallID]int                 // before it
}

// all reports whether the end of each job that was started has been published and delivered.
func (o toldOf) all(jobs map[string]schemas.Job) bool {
	for _, j := range jobs {
		if j.State != schemas.JobUnstarted && (o.finished[j.ID] == 0 || o.followUps[j.ID] == 0) {
			return false
		}
	}
	return true
}

// It reads the conversations of the calls, counts their events about jobs, and fails if an artifact is announced after the end of its job.
func (c *cluster) told(ctx context.Context, t *testing.T, calls []wanted) toldOf {
	t.Helper()
	got := toldOf{map[schemas.JobID]int{}, map[schemas.JobID]int{}, map[schemas.JobID]schemas.JobArtifacts{}, map[schemas.CallID]int{}}
	ended := map[schemas.CallID]bool{}
	c.eachOnce(ctx, t, calls, func(e schemas.Event) {
		var r schemas.JobResult
		var f schemas.FollowUp
		var a schemas.Artifact
		switch {
		case e.Type == schemas.ArtifactCreated && json.Unmarshal(e.Data, &a) == nil:
			if got.announced[a.Call]++; ended[a.Call] {
				t.Errorf("%s of %s is announced behind the end of its job", a.Path, a.Call)
			}
		case e.Type == schemas.JobFinished && json.Unmarshal(e.Data, &r) == nil:
			got.finished[r.Job]++
			got.artifacts[r.Job], ended[r.Call] = r.JobArtifacts, true
		case e.Type == schemas.FollowUpCreated && json.Unmarshal(e.Data, &f) == nil:
			for _, r := range f.Results {
				got.followUps[r.Job]++
			}
		}
	})
	return got
}

// eachOnce calls f with each event of the calls' conversations, and fails if an event is there twice.
func (c *cluster) eachOnce(ctx context.Context, t *testing.T, calls []wanted, f func(schemas.Event)) {
	t.Helper()
	read, seen := map[string]bool{}, map[string]bool{}
	for _, w := range calls {
		if read[w.conversation] {
			continue
		}
		read[w.conversation] = true
		c.eachEvent(ctx, t, w.conversation, func(e schemas.Event) {
			if seen[e.ID] {
				t.Errorf("event %s is there twice", e.ID)
			}
			seen[e.ID] = true
			f(e)
		})
	}
}

// eachEvent calls f with each event of a conversation, from its beginning, and fails at a gap.
func (c *cluster) eachEvent(ctx context.Context, t *testing.T, conversation string, f func(schemas.Event)) {
	t.Helper()
	for after, last := "-1", false; !last; {
		page := c.eventsAfter(ctx, t, conversation, after)
		if !page.Recovered {
			t.Fatalf("conversation %s has a gap after %s", conversation, after)
		}
		for _, e := range page.Events {
			f(e.Event)
		}
		after, last = page.Next, page.UpToDate
	}
}

// receiver is a webhook receiver that records every request and then answers each tenth with an error, like one that dies before it can
// respond.
type receiver struct {
	server *httptest.Server

	mu       sync.Mutex
	chance   *rand.Rand
	ids      map[string]string // webhook-id by event
	bodies   map[string]string // body by webhook-id
	ok       map[string]bool   // events that were taken
	requests int
	wrong    []string

	refusedOnce map[string]bool // events
}

func newReceiver(t *testing.T, r *rand.Rand) *receiver {
	t.Helper()
	s := &receiver{chance: r, ids: map[string]string{}, bodies: map[string]string{}, ok: map[string]bool{}, refusedOnce: map[string]bool{}}
	s.server = httptest.NewServer(s)
	t.Cleanup(s.server.Close)
	return s
}

func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var e struct {
		ID string `json:"id"`
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	id := r.Header.Get("webhook-id")
	switch {
	case err != nil:
		return // it was cut off: it comes again
	case json.Unmarshal(body, &e) != nil || id == "" || r.Header.Get("webhook-signature") == "":
		s.wrong = append(s.wrong, fmt.Sprintf("a request without id, signature or event: %.100s", body))
	case s.ids[e.ID] != "" && s.ids[e.ID] != id:
		s.wrong = append(s.wrong, fmt.Sprintf("event %s came as %s and as %s", e.ID, s.ids[e.ID], id))
	case s.bodies[id] != "" && s.bodies[id] != string(body):
		s.wrong = append(s.wrong, "another body under the same id "+id)
	}
	s.ids[e.ID], s.bodies[id] = id, string(body)
	if s.chance.IntN(10) == 0 && !s.refusedOnce[e.ID] { // a second time would make it wait for minutes
		s.refusedOnce[e.ID] = true
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.ok[e.ID] = true
	w.WriteHeader(http.StatusNoContent)
}

// await waits until an event was taken.
func (s *receiver) await(ctx context.Context, t *testing.T, event string) {
	t.Helper()
	for {
		s.mu.Lock()
		ok := s.ok[event]
		s.mu.Unlock()
		if ok {
			return
		}
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			t.Errorf("event %s was never delivered", event)
			return
		}
	}
}

func (s *receiver) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d requests for %d events, %d refused", s.requests, len(s.ids), len(s.refusedOnce))
}
