//go:build linux

package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/internal/redistest"
	"github.com/sandjet/sandjet/schemas"
)

// TestNothingIsLeftOnAnEngineInSpiteOfKills: while calls and jobs run in containers that are kept and in such that are not, each role,
// Redis and the engine itself are killed with SIGKILL again and again. Each call has one result and ran once at most, each job has
// one end; and when the sandboxes are deleted, the engine has no container, network or process of theirs, and the log no instance.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestNothingIsLeftOnAnEngineInSpiteOfKills(t *testing.T) {
	longtest.Only(t, "an engine that is killed")
	t.Parallel()
	s := sizeOf()
	s.calls, s.kills = 120, 2
	seed := longtest.Seed(t)
	t.Logf("%d calls and %d jobs", s.calls, s.calls/4)
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()

	e := dockertest.Private(t)
	e.Image(t, dockertest.Tools)
	idle := len(onEngine(t, e))
	redis := redistest.Start(t)
	c := startContained(ctx, t, e, 2, "--redis-url", redis.URL())
	c.create(ctx, t, "/v1/accounts/me/sandboxes", `{"name":"fresh","config":{"provider":"docker","persistent":false,"permissionMode":"bypass"}}`)
	calls := newCalls(s, rand.New(rand.NewPCG(seed, 1)))
	for i := range calls {
		calls[i].sandbox = []string{"contained", "fresh"}[i%2]
	}
	jobs := make([]wanted, s.calls/4)
	for i := range jobs {
		id := fmt.Sprintf("job-%04d", i)
		jobs[i] = wanted{id: id, conversation: "jobs-" + strconv.Itoa(i%4), command: "echo " + id + " >> " + mark + "; sleep 1; echo done"}
	}

	chaos, quiet := context.WithCancel(ctx)
	var killer sync.WaitGroup
	killer.Go(func() { c.killAtRandom(chaos, t, s, rand.New(rand.NewPCG(seed, 2))) })
	killer.Go(func() { restartAtRandom(chaos, c.cluster, redis, s, rand.New(rand.NewPCG(seed, 4))) })
	var engineKills atomic.Int64
	killer.Go(func() { c.killEngine(chaos, t, rand.New(rand.NewPCG(seed, 5)), &engineKills) })
	c.submitAs(ctx, t, jobs, true)
	c.submit(ctx, t, calls)
	c.awaitKills(ctx, t, s.kills)
	for ctx.Err() == nil && engineKills.Load() < int64(s.kills) {
		pause(ctx, 100*time.Millisecond)
	}
	quiet() // calls that find no engine wait for up to half a minute: with kills until the last has its result there is no end
	killer.Wait()
	c.startMissing(ctx, t)
	results, begun := c.results(ctx, t, calls), c.results(ctx, t, jobs)
	c.check(ctx, t, calls, results)
	ran := c.ran(ctx, t)
	count := map[schemas.JobState]int{}
	settled := c.settled(ctx, t, begun)
	told := c.told(ctx, t, jobs)
	for began := time.Now(); !told.all(settled) && time.Since(began) < patience; told = c.told(ctx, t, jobs) {
		pause(ctx, 100*time.Millisecond)
	}
	for _, w := range jobs {
		j := settled[w.id]
		count[j.State]++
		if n := ran[w.id]; n > 1 || j.State == schemas.JobCompleted && n != 1 {
			t.Errorf("%s is %s and ran %d times", w.id, j.State, n)
		}
		if n := told.finished[j.ID]; j.State != schemas.JobUnstarted && n != 1 {
			t.Errorf("the end of %s (%s) was told %d times", w.id, j.State, n)
		}
	}
	t.Logf("jobs: %v; the engine was killed %d times", count, engineKills.Load())

	c.deleteSandboxes(ctx, t)
	c.sweep(ctx, t)
	var left string
	for began := time.Now(); time.Since(began) < patience; pause(ctx, 200*time.Millisecond) {
		if left = c.left(ctx, t, idle); left == "" {
			return
		}
	}
	t.Errorf("this is left: %s\n%s", left, c.log)
}

// killEngine kills the engine and starts it again, until ctx ends. What ran in its containers ends when it comes back.
func (c *contained) killEngine(ctx context.Context, t *testing.T, r *rand.Rand, kills *atomic.Int64) {
	t.Helper()
	for pause(ctx, untilEngine(r)); ctx.Err() == nil; pause(ctx, untilEngine(r)) {
		c.log.note("--- kill -9 engine")
		if err := c.engine.Stop("KILL"); err != nil {
			t.Error(err)
		}
		pause(ctx, time.Duration(r.Int64N(int64(time.Second))))
		if err := c.engine.Start(); err != nil {
			t.Errorf("the engine does not come up again: %v", err)
			return
		}
		kills.Add(1)
		c.log.note("--- up again: engine")
	}
}

// untilEngine returns a random time, 4 to 12 s, until the engine is killed next: long enough for calls to begin.
func untilEngine(r *rand.Rand) time.Duration {
	return 4*time.Second + time.Duration(r.Int64N(int64(8*time.Second)))
}

// deleteSandboxes deletes all sandboxes of the account.
func (c *contained) deleteSandboxes(ctx context.Context, t *testing.T) {
	t.Helper()
	const all = "/v1/accounts/me/sandboxes"
	status, answer, err := c.ask(ctx, http.MethodGet, all, nil)
	var page struct {
		Sandboxes []schemas.Sandbox `json:"sandboxes"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &page) != nil || len(page.Sandboxes) < 2 {
		t.Fatalf("the sandboxes: %d %s %v", status, answer, err)
	}
	for _, s := range page.Sandboxes {
		if status, answer, err := c.ask(ctx, http.MethodDelete, all+"/"+string(s.ID), nil); err != nil || status >= 300 {
			t.Fatalf("delete the sandbox %s: %d %s %v", s.Name, status, answer, err)
		}
	}
}

// sweep removes, by `sandjet sandboxes instances sweep`, what a killed worker has created and not recorded, without the usual wait until
// it is old.
func (c *contained) sweep(ctx context.Context, t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(ctx, c.program, "sandboxes", "instances", "sweep", "--grace", "0s", "--data-dir", c.data)
	cmd.Env = settings(os.Environ())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the sweep: %v: %s", err, out)
	}
	t.Logf("the sweep: %s", out)
}

// onEngine lists the processes in the engine's namespaces, but not what the engine itself loses: if containerd is killed after it started
// a container's shim and before it recorded the shim, the shim remains, and perhaps runc, before it executed a program of ours. These
// processes belong to no container, so that only the host can end them.
func onEngine(t *testing.T, e *dockertest.Engine) []dockertest.Process {
	t.Helper()
	all, err := e.Processes()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(p dockertest.Process) bool {
		return p.Name == "(containerd-shim)" || strings.HasPrefix(p.Name, "(runc:[")
	})
}

// left lists what the installation has left on the engine and in the log.
func (c *contained) left(ctx context.Context, t *testing.T, idle int) string {
	t.Helper()
	var left []string
	for what, of := range map[string]struct {
		list  []string
		about string
	}{
		"containers": {[]string{"ps", "-a"}, "{{json .State}} {{json .Config.Labels}}"},
		"networks":   {[]string{"network", "ls"}, "{{json .Labels}}"},
	} {
		for _, id := range c.list(t, of.list...) {
			about, _ := c.engine.Docker(nil, "inspect", "--format", of.about, id) // it may just have gone
			left = append(left, fmt.Sprintf("%s: %s %.500s", what, id, about))
		}
	}
	status, answer, err := c.ask(ctx, http.MethodGet, "/v1/instances", nil)
	var page struct {
		Instances []schemas.Instance `json:"instances"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &page) != nil {
		t.Fatalf("the instances: %d %s %v", status, answer, err)
	}
	for _, i := range page.Instances {
		left = append(left, fmt.Sprintf("instance: %+v", i))
	}
	if len(left) == 0 {
		if now := onEngine(t, c.engine); len(now) > idle {
			left = append(left, fmt.Sprintf("%d processes on the engine, %d before:", len(now), idle))
			for _, p := range now {
				left = append(left, fmt.Sprintf("%.200s", fmt.Sprintf("%+v", p)))
			}
		}
	}
	return strings.Join(left, "\n")
}
