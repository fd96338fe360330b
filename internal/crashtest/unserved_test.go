package crashtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandjet/sandjet/internal/longtest"
	"github.com/sandjet/sandjet/schemas"
)

// bash is a request to run a command. What it does not say is added by the test.
func bash(t *testing.T, id, command string) schemas.Request {
	t.Helper()
	input, err := json.Marshal(schemas.BashInput{Command: command})
	if err != nil {
		t.Fatal(err)
	}
	return schemas.Request{ID: schemas.CallID(id), Conversation: "crash-0", Tool: schemas.ToolBash, Input: input}
}

// post sends a call once.
func (c *cluster) post(ctx context.Context, t *testing.T, r schemas.Request) (status int, answer string) {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	status, b, err := c.askOnce(ctx, http.MethodPost, "/v1/calls", body)
	if err != nil {
		t.Fatalf("%s: %v", r.ID, err)
	}
	return status, string(b)
}

// result waits for the result of a call.
func (c *cluster) result(ctx context.Context, t *testing.T, id string) schemas.Result {
	t.Helper()
	r, ok := c.results(ctx, t, []wanted{{id: id}})[id]
	if !ok {
		t.Fatalf("%s has no result", id)
	}
	return r
}

// interrupted makes a call at the command line that waits for a worker, and interrupts it: the call is cancelled, and the
// command ends.
func (c *cluster) interrupted(ctx context.Context, t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(ctx, c.program, "call", "--verbose", "--wait-for-worker", "--id", "interrupted", "--conversation", "crash-0",
		"bash", "echo interrupted >> "+mark)
	cmd.Env = append(os.Environ(), "SANDJET_URL=http://"+c.gateway, "SANDJET_KEY="+c.key)
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "call interrupted on conversation") {
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // until it has ended
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Errorf("the command that was interrupted ended with %v and not with 130", err)
	}
	if r := c.result(ctx, t, "interrupted"); r.Status != schemas.StatusCancelled {
		t.Errorf("the interrupted call is %s: %s", r.Status, r.Text)
	}
}

// TestCallsOfAProviderThatNoWorkerServes: no worker runs. A call is refused with a word that helps, or waits if it says so; one that
// waits ends by a cancel, by its deadline, or by the first worker that comes, and never runs after its end.
//
//guarantee:one-result-for-every-accepted-call
func TestCallsOfAProviderThatNoWorkerServes(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "half a minute with processes; what admission refuses is in package admission")
	s := sizeOf()
	ctx, cancel := context.WithTimeout(t.Context(), s.ends)
	defer cancel()
	c := startCluster(ctx, t, func(c *cluster, worker []string) []string {
		c.gatewayFlags = append(c.gatewayFlags, "--provider-grace", "1s")
		return worker
	}, withoutWorkers)

	var status int
	var answer string
	for status != http.StatusServiceUnavailable { // just started, a gateway waits for workers to come too
		if status, answer = c.post(ctx, t, bash(t, "", "true")); ctx.Err() != nil {
			t.Fatalf("a call of a provider that nobody serves is never refused: %d %s", status, answer)
		}
		pause(ctx, 200*time.Millisecond)
	}
	if !strings.Contains(answer, "wait_for_worker") || !strings.Contains(answer, string(schemas.Unavailable)) {
		t.Errorf("the refusal does not say what to do: %s", answer)
	}

	c.interrupted(ctx, t)
	waits := func(id string, deadline time.Duration) {
		t.Helper()
		r := bash(t, id, "echo "+id+" >> "+mark+"; echo done "+id)
		r.WaitForWorker = true
		if deadline > 0 {
			r.Deadline = time.Now().Add(deadline)
		}
		if status, answer := c.post(ctx, t, r); status != http.StatusAccepted {
			t.Fatalf("%s says that it waits, and is answered %d %s", id, status, answer)
		}
	}
	waits("cancelled", 0)
	if status, answer, err := c.askOnce(ctx, http.MethodPost, "/v1/calls/cancelled/cancel", nil); err != nil || status/100 != 2 {
		t.Fatalf("the cancel: %d %s %v", status, answer, err)
	}
	if r := c.result(ctx, t, "cancelled"); r.Status != schemas.StatusCancelled {
		t.Errorf("the cancelled call is %s: %s", r.Status, r.Text)
	}
	long := s.kills > 1
	if long { // it takes up to three minutes
		waits("overdue", 2*time.Second)
		if r := c.result(ctx, t, "overdue"); r.Status != schemas.StatusExpired {
			t.Errorf("the overdue call is %s: %s", r.Status, r.Text)
		}
	}
	waits("patient", 0)
	c.workers(ctx, t)
	c.startMissing(ctx, t)
	if r := c.result(ctx, t, "patient"); r.Status != schemas.StatusCompleted {
		t.Errorf("the call that waited for a worker is %s: %s", r.Status, r.Text)
	}
	if ran := c.ran(ctx, t); ran["patient"] != 1 || len(ran) != 1 {
		t.Errorf("these have run: %v", ran)
	}
}
