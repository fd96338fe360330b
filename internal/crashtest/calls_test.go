package crashtest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

// submitters is how many clients send and wait at the same time.
const submitters = 16

// ask sends a request to the gateway until it is answered with anything below 500: a client of a
// gateway that may be killed at any moment. What it sends has an id, so sending it again is safe.
func (c *cluster) ask(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var sent []byte
	if body != nil {
		if sent, err = json.Marshal(body); err != nil {
			return 0, nil, fmt.Errorf("encode: %w", err)
		}
	}
	for {
		status, answer, err = c.askOnce(ctx, method, path, sent)
		if err == nil && status < http.StatusInternalServerError && status != http.StatusTooManyRequests {
			return status, answer, nil
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return status, answer, fmt.Errorf("no answer to %s %s (last: %d %s): %w", method, path, status, answer, errors.Join(err, ctx.Err()))
		}
	}
}

func (c *cluster) askOnce(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.gateway+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// submit sends all calls in the foreground and returns those that were accepted.
func (c *cluster) submit(ctx context.Context, t *testing.T, calls []wanted) []wanted {
	t.Helper()
	return c.submitAs(ctx, t, calls, false)
}

// submitAs sends all calls, as background jobs or not.
func (c *cluster) submitAs(ctx context.Context, t *testing.T, calls []wanted, background bool) []wanted {
	t.Helper()
	var refused atomic.Bool
	parallel(calls, func(w wanted) {
		input, err := json.Marshal(schemas.BashInput{Command: w.command, Background: background})
		if err != nil {
			t.Error(err)
			return
		}
		r := schemas.Request{
			ID: schemas.CallID(w.id), Conversation: schemas.ConversationID(w.conversation), Tool: schemas.ToolBash, Input: input,
			Sandbox: cmp.Or(w.sandbox, c.sandbox),
		}
		if w.artifact != "" {
			r.Artifacts = []string{w.artifact}
		}
		status, answer, err := c.ask(ctx, http.MethodPost, "/v1/calls", r)
		if err != nil || status != http.StatusAccepted && status != http.StatusOK {
			t.Errorf("%s was not accepted: %d %s %v", w.id, status, answer, err)
			refused.Store(true)
		}
	})
	if refused.Load() {
		t.Fatalf("not all calls were accepted\n%s", c.log)
	}
	return calls
}

// results waits for the result of each call.
func (c *cluster) results(ctx context.Context, t *testing.T, calls []wanted) map[string]schemas.Result {
	t.Helper()
	var mu sync.Mutex
	got := make(map[string]schemas.Result, len(calls))
	parallel(calls, func(w wanted) {
		for {
			status, answer, err := c.ask(ctx, http.MethodGet, "/v1/calls/"+w.id+"?wait=10s", nil)
			if err != nil {
				t.Errorf("%s has no result: %v", w.id, err)
				return
			}
			if status == http.StatusAccepted {
				continue // not yet
			}
			var r schemas.Result
			if err := json.Unmarshal(answer, &r); err != nil || status != http.StatusOK {
				t.Errorf("%s: %d %s %v", w.id, status, answer, err)
				return
			}
			mu.Lock()
			got[w.id] = r
			mu.Unlock()
			return
		}
	})
	return got
}

// check compares the results, the conversations and the workspace with the promises.
func (c *cluster) check(ctx context.Context, t *testing.T, calls []wanted, results map[string]schemas.Result) {
	t.Helper()
	ran := c.ran(ctx, t)
	finished := c.finished(ctx, t, calls)
	count := map[schemas.Status]int{}
	for _, w := range calls {
		r, ok := results[w.id]
		if !ok {
			t.Errorf("%s has no result", w.id)
			continue
		}
		count[r.Status]++
		n := ran[w.id]
		switch {
		case n > 1:
			t.Errorf("%s ran %d times", w.id, n)
		case r.Status == schemas.StatusCompleted && n != 1:
			t.Errorf("%s is completed and ran %d times", w.id, n)
		case r.Status == schemas.StatusCompleted && (r.Output == nil || r.Output.Stdout != "done "+w.id+"\n"):
			t.Errorf("%s: the output of another call or none: %+v", w.id, r)
		case r.Status != schemas.StatusCompleted && r.Status != schemas.StatusInterrupted:
			t.Errorf("%s is %s: %s", w.id, r.Status, r.Text)
		}
		events := finished[w.id]
		if len(events) != 1 {
			t.Errorf("%s has %d result events: %v", w.id, len(events), events)
			continue
		}
		if events[0] != r.Status {
			t.Errorf("%s: the gateway said %s, the conversation says %s", w.id, r.Status, events[0])
		}
	}
	if n := len(results); n != len(calls) {
		t.Errorf("%d results for %d calls", n, len(calls))
	}
	if count[schemas.StatusCompleted] == 0 {
		t.Error("no call was completed: the roles were never up together")
	}
	for _, p := range c.roles {
		t.Logf("%s was killed %d times", p.name, p.kills)
	}
	t.Logf("results: %v", count)
}

// ran counts how often each call left its mark in the workspace.
func (c *cluster) ran(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	check := []wanted{{id: "crash-check", conversation: "crash-check", command: "cat " + mark}}
	r, ok := c.results(ctx, t, c.submit(ctx, t, check))["crash-check"]
	if !ok || r.Output == nil || r.Output.Truncated {
		t.Fatalf("the marks could not be read: %+v", r)
	}
	n := map[string]int{}
	for _, id := range lines(r.Output.Stdout) {
		n[id]++
	}
	return n
}

// finished reads the conversations from their beginning and collects the results in them.
func (c *cluster) finished(ctx context.Context, t *testing.T, calls []wanted) map[string][]schemas.Status {
	t.Helper()
	got := map[string][]schemas.Status{}
	c.eachOnce(ctx, t, calls, func(e schemas.Event) {
		var r schemas.Result
		if e.Type == schemas.CallFinished && json.Unmarshal(e.Data, &r) == nil {
			got[string(r.Call)] = append(got[string(r.Call)], r.Status)
		}
	})
	return got
}

// parallel calls f for each call, some at a time.
func parallel(calls []wanted, f func(wanted)) {
	work := make(chan wanted)
	var all sync.WaitGroup
	for range submitters {
		all.Go(func() {
			for w := range work {
				f(w)
			}
		})
	}
	for _, w := range calls {
		work <- w
	}
	close(work)
	all.Wait()
}
