package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/internal/wait"
	"github.com/sandjet/sandjet/schemas"
)

// callRun submits one call and follows it until its result.
type callRun struct {
	client  *client.Client
	request schemas.Request
	t       terminal
	verbose bool

	mu      sync.Mutex
	failed  error            // first error of writing to stdout
	printed map[string]int64 // bytes shown of each stream; allShown if their number is unknown
}

// allShown marks a stream of which nothing more is printed.
const allShown = math.MaxInt64

func (c *callRun) do(ctx context.Context) (schemas.Result, error) {
	// Ctrl-C does not end the call, it only asks for its cancellation. So this context lives until the result arrives.
	on, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var live chan schemas.Result // nil while no output is shown; no result arrives on it then
	var showing sync.WaitGroup
	defer showing.Wait()
	defer end(nil)
	attach := func(conversation schemas.ConversationID, after schemas.Cursor) <-chan struct{} {
		attached := make(chan struct{})
		live = make(chan schemas.Result, 1)
		showing.Go(func() { c.show(on, conversation, after, attached, live) })
		return attached
	}
	wanted := c.request.Tool == schemas.ToolBash && !c.t.json
	if wanted && c.request.Conversation != "" { // its history may be long: read from its end, and before the call is submitted
		select {
		case <-attach(c.request.Conversation, schemas.Tail):
		case <-ctx.Done():
			return schemas.Result{}, cancelledBefore()
		}
	}
	state, err := c.client.Submit(ctx, c.request)
	if err != nil {
		if ctx.Err() != nil {
			_ = c.askForEnd(on) // the request may have arrived
			return schemas.Result{}, cancelledBefore()
		}
		return schemas.Result{}, err
	}
	if wanted && c.request.Conversation == "" && state.Result == nil { // the conversation is new, or that of an earlier call with this id
		attach(state.Conversation, schemas.Cursor{})
	}
	c.say("call %s on conversation %s", state.ID, state.Conversation)
	if state.Approval != "" {
		fmt.Fprintf(c.t.err, "sandjet: Waiting for approval. Run: sandjet approvals approve %s (or deny)\n", state.Approval)
	}
	defer context.AfterFunc(ctx, func() {
		if err := c.askForEnd(on); err != nil {
			end(err)
		}
	})()
	result, err := c.wait(on, state, live)
	if err != nil {
		if cause := context.Cause(on); cause != nil {
			err = cause
		}
		return result, err
	}
	end(nil) // output that arrives now must not be mixed with what print adds
	showing.Wait()
	return result, c.print(result)
}

func cancelledBefore() error {
	return &exitError{code: exitCancelled, err: errors.New("stopped before the call was accepted")}
}

// wait returns the result as soon as it arrives, on the event stream (live) or as the answer to a waiting request.
func (c *callRun) wait(ctx context.Context, state client.State, live <-chan schemas.Result) (schemas.Result, error) {
	if state.Result != nil {
		return *state.Result, nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type answer struct {
		result schemas.Result
		err    error
	}
	var explaining sync.WaitGroup
	defer explaining.Wait()
	defer stop()
	explaining.Go(func() { c.explain(ctx, state) })
	asked := make(chan answer, 1)
	go func() {
		r, err := c.client.Wait(ctx, state.ID)
		asked <- answer{r, err}
	}()
	select {
	case r := <-live:
		return r, nil
	case a := <-asked:
		if a.err != nil {
			return a.result, a.err
		}
		if live == nil {
			return a.result, nil
		}
		// All output is on the conversation before the result: wait briefly until it is shown.
		const moment = 2 * time.Second
		select {
		case <-live:
		case <-time.After(moment):
		}
		return a.result, nil
	}
}

// explain prints what a queued call waits for, once it has waited for patientFor: other calls before it, or a worker. It leaves an
// unresponsive gateway or log to the client's transport, and a needed approval to do, which has printed it.
func (c *callRun) explain(ctx context.Context, state client.State) {
	const many = 100
	if !wait.Sleep(ctx, patientFor) || state.Approval != "" {
		return
	}
	now, err := c.client.Get(ctx, state.ID)
	if err != nil || now.Status != "queued" {
		return
	}
	calls, _, err := c.client.Calls(ctx, client.CallsQuery{Limit: many})
	if err != nil {
		return
	}
	fmt.Fprintf(c.t.err, "sandjet: %s\n", whyQueued(state.ID, calls))
}

// whyQueued describes what a queued call waits for, from the list of the account's newest calls.
func whyQueued(id schemas.CallID, calls []schemas.CallSummary) string {
	running, before, found := 0, 0, false
	for _, s := range calls {
		switch {
		case s.ID == id:
			found = true
		case s.Status == "running":
			running++
		case s.Status == "queued" && found:
			before++
		}
	}
	switch {
	case running == 0 && before == 0:
		return "queued: no worker has taken the call yet, and none runs a call of this account. Is a worker up? (Ctrl-C cancels)"
	case running == 0:
		return fmt.Sprintf("queued behind %s, and none of this account is running. Is a worker up? (Ctrl-C cancels)", count(before, "call"))
	case before == 0:
		return fmt.Sprintf("queued: it is the next one, while %s running (Ctrl-C cancels)", are(running, "call"))
	}
	return fmt.Sprintf("queued behind %s, while %s running (Ctrl-C cancels)", count(before, "call"), are(running, "call"))
}

// show prints the call's output as it arrives, until the result, which it sends to live, or until ctx ends. It closes attached when it has
// caught up with the conversation, so that no later event is missed.
func (c *callRun) show(ctx context.Context, conversation schemas.ConversationID, after schemas.Cursor,
	attached chan<- struct{}, live chan<- schemas.Result,
) {
	once := sync.OnceFunc(func() { close(attached) })
	defer once()
	for item, err := range c.client.Events(ctx, conversation, after) {
		switch {
		case err != nil:
			return
		case item.Live:
			once()
		case item.Event.Subject != string(c.request.ID):
		case item.Event.Type == schemas.CallOutput:
			var d schemas.OutputData
			if json.Unmarshal(item.Event.Data, &d) == nil {
				c.piece(d)
			}
		case item.Event.Type == schemas.CallFinished:
			var r schemas.Result
			if json.Unmarshal(item.Event.Data, &r) == nil {
				live <- r
			}
			return
		}
	}
}

// piece prints one chunk of output and records how much was shown.
func (c *callRun) piece(d schemas.OutputData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Capped {
		fmt.Fprintln(c.t.err, "sandjet: more output follows than is shown live")
		for stream := range c.printed {
			c.printed[stream] = allShown
		}
		return
	}
	w := c.t.out
	if d.Stream == "stderr" {
		w = c.t.err
	}
	if _, err := io.WriteString(w, d.Text); err != nil && w == c.t.out {
		c.failed = cmp.Or(c.failed, err)
	}
	if c.printed == nil {
		c.printed = map[string]int64{}
	}
	switch {
	case c.printed[d.Stream] == allShown:
	case d.Bytes != len(d.Text): // the output was not UTF-8, so offsets in the result differ
		c.printed[d.Stream] = allShown
	default:
		c.printed[d.Stream] = d.Offset + int64(d.Bytes)
	}
}

// rest returns the part of a stream's output that was not shown live; empty if it cannot be determined.
func (c *callRun) rest(stream, output string, truncated bool) string {
	shown := c.printed[stream]
	if shown > 0 && truncated || shown > int64(len(output)) {
		return ""
	}
	return output[shown:]
}

// print prints what was not shown live: the rest of the output, notices, artifacts and the status.
func (c *callRun) print(r schemas.Result) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t.json {
		return printJSON(c.t.out, r)
	}
	switch o := r.Output; {
	case r.StatusID != "": // the id alone on stdout, for scripts; the hint for people on stderr
		if _, err := fmt.Fprintln(c.t.out, r.StatusID); err != nil {
			return wrapOutput(err)
		}
		fmt.Fprintf(c.t.err, "sandjet: Started in the background. Follow it: sandjet jobs logs -f %s\n", r.StatusID)
	case r.Tool != schemas.ToolBash:
		switch {
		case r.Status == schemas.StatusCompleted:
			if _, err := fmt.Fprintln(c.t.out, r.Text); err != nil {
				return wrapOutput(err)
			}
		case r.Error == nil || !strings.Contains(r.Text, r.Error.Message): // else the error below includes it
			fmt.Fprintln(c.t.err, r.Text)
		}
	case o != nil && o.Denied == nil: // a denied command is reported below
		_, err := io.WriteString(c.t.out, c.rest("stdout", o.Stdout, o.Truncated))
		if err := cmp.Or(c.failed, err); err != nil {
			return wrapOutput(err)
		}
		_, _ = io.WriteString(c.t.err, c.rest("stderr", o.Stderr, o.Truncated))
		if o.TimedOut {
			fmt.Fprintln(c.t.err, "sandjet: it timed out and was killed")
		}
		if o.OOMKilled {
			fmt.Fprintln(c.t.err,
				"sandjet: it ran out of memory and a process was killed: give its sandbox more with \"sandjet sandboxes set ID --memory MIB\"")
		}
		if o.InvalidBytes > 0 {
			fmt.Fprintf(c.t.err, "sandjet: %s not UTF-8 and shown as U+FFFD; to pass binary data on, use base64 or a file\n",
				are(o.InvalidBytes, "byte"))
		}
		if o.FullOutput != "" {
			fmt.Fprintf(c.t.err, "sandjet: the whole output is in %s in the workspace\n", printable(o.FullOutput))
		}
	}
	if r.Tool == schemas.ToolBash || r.StatusID != "" { // the texts of other tools include the notices
		for _, n := range r.Notices {
			fmt.Fprintf(c.t.err, "sandjet: %s\n", printable(n))
		}
	}
	c.printArtifacts(r)
	if r.Status != schemas.StatusCompleted && r.Error != nil {
		fmt.Fprintf(c.t.err, "sandjet: call %s: %s\n", r.Status, printable(r.Error.Error()))
	} else if r.Status != schemas.StatusCompleted && r.Tool == schemas.ToolBash {
		fmt.Fprintf(c.t.err, "sandjet: call %s\n", r.Status)
	}
	if r.Started.IsZero() { // it was never started, or its worker did not know when
		c.say("%s", r.Status)
	} else {
		c.say("%s after %s", r.Status, r.Finished.Sub(r.Started).Round(time.Millisecond))
	}
	return nil
}

// printArtifacts prints the artifacts of the call and, for bash, the files that were not stored.
func (c *callRun) printArtifacts(r schemas.Result) {
	a := schemas.JobArtifacts{Artifacts: r.Artifacts, SkippedArtifacts: r.SkippedArtifacts}
	if r.Tool != schemas.ToolBash {
		a.SkippedArtifacts = nil // the texts of other tools include them
	}
	for _, line := range artifactLines(a) {
		fmt.Fprintf(c.t.err, "sandjet: %s\n", line)
	}
}

// askForEnd cancels the call because the user pressed Ctrl-C. A call that has already ended, or never arrived, is no error.
func (c *callRun) askForEnd(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	fmt.Fprintf(c.t.err, "\nsandjet: cancelling %s (again to leave at once)\n", c.request.ID)
	err := c.client.Cancel(ctx, c.request.ID, "stopped at the command line")
	if err == nil || errors.Is(err, schemas.ErrConflict) || errors.Is(err, schemas.ErrNotFound) {
		return nil
	}
	return schemas.Errorf(schemas.Unavailable, "%s could not be cancelled, it continues: %v", c.request.ID, err)
}

const cancelPatience = 10 * time.Second

func (c *callRun) say(format string, args ...any) {
	if c.verbose {
		fmt.Fprintf(c.t.err, "sandjet: "+format+"\n", args...)
	}
}
