//go:build linux

package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/dockertest"
	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// contained is a cluster whose workers share containers of an engine, and of one sandbox there.
type contained struct {
	*cluster

	engine       *dockertest.Engine
	installation string
}

// startContained starts a server of the log, a gateway and workers on an engine.
func startContained(ctx context.Context, t *testing.T, e *dockertest.Engine, workers int, flags ...string) *contained {
	t.Helper()
	image := e.Image(t, dockertest.Tools)
	c := &contained{engine: e, installation: "crash-" + strings.ToLower(schemas.NewID(""))}
	t.Cleanup(func() { c.removeAll(t) })
	c.cluster = startPair(ctx, t)
	c.sandbox = "contained"
	args := append([]string{"worker", "--provider", "docker", "--slots", "8", "--docker-host", e.Host, "--docker-image", image,
		"--docker-pull", "never", "--docker-installation", c.installation, "--docker-volumes", "--docker-memory", "64MiB", "--probe-every", "1s",
		"--sandbox-jobs", "500"}, flags...)
	for n := range workers {
		c.role("worker-"+strconv.Itoa(n+1), args...)
	}
	c.startMissing(ctx, t)
	c.create(ctx, t, "/v1/accounts/me/sandboxes", `{"name":"contained","config":{"provider":"docker","persistent":true,"permissionMode":"bypass"}}`)
	return c
}

// list asks the engine for the ids of what the installation has.
func (c *contained) list(t *testing.T, what ...string) []string {
	t.Helper()
	return strings.Fields(c.engine.Run(t, append(what, "-q", "--filter", "label=sandjet.installation="+c.installation)...))
}

// removeAll removes what the installation has on an engine that others use too.
func (c *contained) removeAll(t *testing.T) {
	t.Helper()
	for _, kind := range [][]string{{"ps", "-a"}, {"volume", "ls"}, {"network", "ls"}} {
		if ids := c.list(t, kind...); len(ids) > 0 {
			rm := map[string][]string{"ps": {"rm", "-f"}, "volume": {"volume", "rm"}, "network": {"network", "rm"}}[kind[0]]
			c.engine.Run(t, append(rm, ids...)...)
		}
	}
}

// startedBy is the process whose worker has started a call.
func (c *contained) startedBy(ctx context.Context, t *testing.T, w wanted) *process {
	t.Helper()
	k := &keptBox{c: c.cluster}
	var name string
	for ctx.Err() == nil {
		if name = k.startedBy(ctx, t, w); name != "" {
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	for _, p := range c.roles {
		if c.log.has(p.name+": ", name) {
			return p
		}
	}
	t.Fatalf("no process has the worker %q", name)
	return nil
}

// one carries a call out and wants it completed.
func (c *contained) one(ctx context.Context, t *testing.T, id, command string) schemas.Result {
	t.Helper()
	calls := []wanted{{id: id, conversation: id, command: command}}
	r := c.results(ctx, t, c.submit(ctx, t, calls))[id]
	if r.Status != schemas.StatusCompleted || r.Output == nil || r.Output.ExitCode != 0 {
		t.Fatalf("%s: %+v\n%s", id, r, c.log)
	}
	return r
}

// processes lists those in the kept container whose command line has a word.
func (c *contained) processes(t *testing.T, word string) string {
	t.Helper()
	kept := c.list(t, "ps", "--filter", "label=sandjet.kind=kept")
	if len(kept) != 1 {
		t.Fatalf("%d kept containers, want one", len(kept))
	}
	pattern := "[" + word[:1] + "]" + word[1:] // which is not in the command line of who looks
	return c.engine.Run(t, "exec", kept[0], "sh", "-c",
		"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '"+pattern+"' && echo ${p#/proc/}; done; true")
}

// TestWhatSurvivesAWorkerOnDocker: a worker is killed or suspended. Its job continues in its container, and the other worker manages it
// from then on: its log is whole, and it ends once. The worker's command is interrupted, and nothing of it runs any more when that is
// reported.
//
//guarantee:every-background-job-settles-once-and-what-follows-happens-once
func TestWhatSurvivesAWorkerOnDocker(t *testing.T) {
	longtest.Only(t, "workers on an engine, killed and standing still")
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *process){
		"killed":       func(_ *testing.T, p *process) { p.kill() },
		"stands still": func(t *testing.T, p *process) { t.Helper(); p.signal(t, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			e := dockertest.Get(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			c := startContained(ctx, t, e, 1)
			job := c.submitAs(ctx, t, []wanted{{id: "job", conversation: "job",
				command: "echo begun; until [ -e go ]; do sleep 0.05; done; seq 1 5000; echo over; exit 7"}}, true)
			if r := c.results(ctx, t, job)["job"]; r.Status != schemas.StatusCompleted {
				t.Fatalf("the job was not started: %+v\n%s", r, c.log)
			}
			run := c.submit(ctx, t, []wanted{{id: "run", conversation: "run",
				command: `beat() { trap '' TERM HUP; while :; do echo x >>beats; sleep 0.05; done; }; export -f beat; (setsid bash -c beat &); beat`}})
			c.one(ctx, t, "begun", "until [ -s beats ]; do sleep 0.05; done")
			first := c.startedBy(ctx, t, run[0])

			c.role("worker-2", first.args[:len(first.args)-len(c.shared)-2]...)
			c.startMissing(ctx, t)
			end(t, first)

			if r := c.results(ctx, t, run)["run"]; r.Status != schemas.StatusInterrupted {
				t.Errorf("the command is %s: %s", r.Status, r.Text)
			}
			if left := c.processes(t, "beat"); left != "" {
				t.Errorf("the command goes on behind its result: %q", left)
			}
			c.one(ctx, t, "go", "touch go")
			jobs := c.settled(ctx, t, map[string]schemas.Result{"job": {}})
			j := jobs["job"]
			if j.State != schemas.JobFailed || j.Completion == nil || j.Completion.ExitCode == nil || *j.Completion.ExitCode != 7 {
				t.Errorf("the job is %s: %+v", j.State, j.Completion)
			}
			c.wantLog(ctx, t, j.ID)
			told := c.told(ctx, t, job)
			for began := time.Now(); !told.all(jobs) && time.Since(began) < patience; told = c.told(ctx, t, job) {
				pause(ctx, 100*time.Millisecond)
			}
			if told.finished[j.ID] != 1 || told.followUps[j.ID] != 1 {
				t.Errorf("its end was told %d times, with %d follow-ups", told.finished[j.ID], told.followUps[j.ID])
			}
			if name == "stands still" {
				first.signal(t, syscall.SIGCONT)
				c.one(ctx, t, "again", "true") // by whichever worker
			}
			c.finishedOnce(ctx, t, run[0])
		})
	}
}

// wantLog wants the whole log of the job.
func (c *contained) wantLog(ctx context.Context, t *testing.T, id schemas.JobID) {
	t.Helper()
	var want strings.Builder
	want.WriteString("begun\n")
	for i := range 5000 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("over\n")
	status, answer, err := c.ask(ctx, http.MethodGet, "/v1/jobs/"+string(id)+"/logs", nil)
	var page struct {
		Text string `json:"text"`
	}
	if err != nil || status != http.StatusOK || json.Unmarshal(answer, &page) != nil || page.Text != want.String() {
		t.Errorf("the log of the job: %d %v, %d bytes of %d: %.100q", status, err, len(page.Text), want.Len(), page.Text)
	}
}

// finishedOnce wants one result of a call, also after a moment.
func (c *contained) finishedOnce(ctx context.Context, t *testing.T, w wanted) {
	t.Helper()
	if got := c.finished(ctx, t, []wanted{w})[w.id]; len(got) != 1 {
		t.Errorf("%s has these results: %v", w.id, got)
	}
}
