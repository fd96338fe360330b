package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

const tourConversation schemas.ConversationID = "demo"

// step is one step of the tour. do returns an error if the result is not as promised.
type step struct {
	title, why string
	do         func(*demo, context.Context) error
}

func tour() []step {
	return []step{
		{"Tool calls in a sandbox", "write, read and bash share a workspace; nothing else of this host is in reach.", (*demo).sandbox},
		{"Output while it runs", "What a command prints is on the conversation's event stream at once.", (*demo).live},
		{"A call by plain NATS", "Any NATS client can publish a call; these few lines of TCP are one.", (*demo).plain},
		{"The same call twice", "An id makes a call idempotent: sending it again, after a timeout say, runs nothing twice.", (*demo).twice},
		{"A cancel that kills", "Cancelling ends the whole process tree, and the call has a result that says so.", (*demo).cancel},
		{"A job in the background", "The call returns a status id at once; the job's end comes to the conversation by itself, and goes on as " +
			"a follow-up.", (*demo).background},
		{"A worker dies", "kill -9 in the middle of two calls. No call is lost, and nothing with side effects runs twice.", (*demo).crash},
		{"Replay from a cursor", "Every event carries a cursor. A client that was away resumes there: no hole, no double.", (*demo).replay},
	}
}

// request returns a request of the tour.
func request(tool schemas.Tool, input map[string]any) schemas.Request {
	b, err := json.Marshal(input)
	if err != nil {
		panic(err) // texts and numbers can be marshalled
	}
	return schemas.Request{ID: schemas.NewCallID(), Conversation: tourConversation, Tool: tool, Input: b}
}

func bash(command string) schemas.Request {
	return request(schemas.ToolBash, map[string]any{"command": command})
}

// call makes a call, waits for its result and prints that. It fails unless the call has completed.
func (d *demo) call(ctx context.Context, r schemas.Request) (schemas.Result, error) {
	d.ask(r)
	res, err := d.client.Call(ctx, r)
	if err != nil {
		return res, fmt.Errorf("call %s: %w", r.Tool, err)
	}
	// The answer and the event stream are two connections: wait for both before continuing.
	for _, t := range []schemas.EventType{schemas.CallAccepted, schemas.CallFinished} {
		if _, err := d.story.wait(ctx, about(r.ID, t)); err != nil {
			return res, fmt.Errorf("%s of %s: %w", t, r.ID, err)
		}
	}
	if res.Status != schemas.StatusCompleted {
		return res, fmt.Errorf("call %s is %s, not completed: %s", r.Tool, res.Status, res.Text)
	}
	d.quote(res.Text)
	return res, nil
}

// ask prints a call that is about to be made.
func (d *demo) ask(r schemas.Request) {
	var in struct {
		Command  string `json:"command"`
		FilePath string `json:"file_path"`
		Content  string `json:"content"`
	}
	if json.Unmarshal(r.Input, &in) != nil {
		return // request has encoded it
	}
	switch {
	case in.Content != "":
		d.print("   → %s %s %q\n", r.Tool, in.FilePath, in.Content)
	case in.FilePath != "":
		d.print("   → %s %s\n", r.Tool, in.FilePath)
	default:
		d.print("   → %s\n", r.Tool)
		for line := range strings.Lines(in.Command) {
			d.print("     %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// quote prints a text as a quotation.
func (d *demo) quote(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		d.print("   │ %s\n", printable(strings.TrimRight(line, "\n")))
	}
}

var errTour = errors.New("not as promised")

// want returns an error that wraps errTour unless ok is true.
func want(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %s", errTour, fmt.Sprintf(format, args...))
}

func (d *demo) sandbox(ctx context.Context) error {
	if _, err := d.call(ctx, request(schemas.ToolWrite,
		map[string]any{"file_path": "greeting.txt", "content": "hello from the workspace\n"})); err != nil {
		return err
	}
	if _, err := d.call(ctx, request(schemas.ToolRead, map[string]any{"file_path": "greeting.txt"})); err != nil {
		return err
	}
	secret := filepath.Join(d.dir, "secret-of-the-host")
	if err := os.WriteFile(secret, []byte("nobody in a sandbox can read this\n"), privateFile); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	r, err := d.call(ctx, bash("cat greeting.txt\n"+
		"cat '"+secret+"' 2>/dev/null && echo LEAKED || echo 'a file of the host: not there'\n"+
		"echo \"processes in sight: $(ls -d /proc/[0-9]* | wc -l)\"\n"+
		"(exec 3<>/dev/tcp/127.0.0.1/"+port(d.at.URL)+") 2>/dev/null && echo REACHED || echo 'the network of the host: not there'"))
	if err != nil {
		return err
	}
	level := "unknown"
	if r.Output != nil && r.Output.Isolation != nil {
		level = r.Output.Isolation.Level
		d.print("   isolation %s: %s\n", level, strings.Join(r.Output.Isolation.Enforced, ", "))
		if len(r.Output.Isolation.Missing) > 0 {
			d.print("   this host lacks: %s (see sandjet doctor)\n", strings.Join(r.Output.Isolation.Missing, ", "))
		}
	}
	if r.Output == nil {
		return want(false, "the result of bash has no output")
	}
	leaked := strings.Contains(r.Output.Stdout, "LEAKED") || strings.Contains(r.Output.Stdout, "REACHED")
	if leaked && d.unisolated {
		d.print("   ! NOT isolated: this host cannot, and --allow-unisolated was given\n")
		return nil
	}
	return want(!leaked, "the command got out of its box (level %s)", level)
}

func port(url string) string { return url[strings.LastIndexByte(url, ':')+1:] }

// live runs a command that continues only after its first output was seen here, which proves that output is streamed.
func (d *demo) live(ctx context.Context) error {
	r := bash("echo 'step 1 of 3'\nuntil [ -e seen ]; do sleep 0.1; done\nfor i in 2 3; do echo \"step $i of 3\"; sleep 0.4; done")
	d.ask(r)
	begun := time.Now()
	if _, err := d.client.Submit(ctx, r); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	first, err := d.story.wait(ctx, func(e schemas.Event) bool {
		return about(r.ID, schemas.CallOutput)(e) || about(r.ID, schemas.CallFinished)(e)
	})
	if err != nil {
		return err
	}
	if err := want(first.Event.Type == schemas.CallOutput, "the command ended before its output came"); err != nil {
		return err
	}
	if _, err := d.call(ctx, request(schemas.ToolWrite, map[string]any{"file_path": "seen", "content": "step 1\n"})); err != nil {
		return err
	}
	res, err := d.story.result(ctx, r.ID)
	if err != nil {
		return err
	}
	var shown strings.Builder
	for _, e := range d.story.all() {
		if o, ok := decode[schemas.OutputData](e.Event); ok && about(r.ID, schemas.CallOutput)(e.Event) {
			shown.WriteString(o.Text)
			d.print("   │ %4d ms  %s\n", e.at.Sub(begun).Milliseconds(), strings.TrimSpace(printable(o.Text)))
		}
	}
	return errors.Join(
		want(res.Status == schemas.StatusCompleted, "the call is %s: %s", res.Status, res.Text),
		want(res.Output != nil && shown.String() == res.Output.Stdout, "live output %q is not that of the result", shown.String()))
}

func (d *demo) plain(ctx context.Context) error {
	r := bash(`echo "this call came over TCP port ` + port(d.at.NATSURL) + `"`)
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	subject := "sandjet.calls.auto." + string(d.at.Account)
	d.print("   PUB %s %d\n   %s\n", subject, len(body), body)
	if err := publishPlain(ctx, d.at.NATSURL, subject, body); err != nil {
		return err
	}
	res, err := d.story.result(ctx, r.ID)
	if err != nil {
		return err
	}
	d.quote(res.Text)
	return want(res.Status == schemas.StatusCompleted, "the call is %s: %s", res.Status, res.Text)
}

func (d *demo) twice(ctx context.Context) error {
	r := bash(`echo once >> journal; echo "lines in the journal: $(wc -l < journal)"`)
	first, err := d.call(ctx, r)
	if err != nil {
		return err
	}
	again, err := d.call(ctx, r)
	if err != nil {
		return err
	}
	other := bash("echo something else")
	other.ID = r.ID
	_, err = d.client.Call(ctx, other)
	d.print("   the same id for another command: %v\n", err)
	return errors.Join(
		want(first.Text == again.Text && first.Finished.Equal(again.Finished),
			"the second answer is another one: %q, %q", first.Text, again.Text),
		want(errors.Is(err, schemas.ErrConflict), "another command under the same id was not refused: %v", err))
}

func (d *demo) cancel(ctx context.Context) error {
	r := bash("echo working; while true; do date +%s%N > tick; sleep 0.05; done")
	d.ask(r)
	if _, err := d.client.Submit(ctx, r); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	if _, err := d.story.wait(ctx, about(r.ID, schemas.CallOutput)); err != nil {
		return err
	}
	d.print("   POST /v1/calls/%s/cancel\n", r.ID)
	begun := time.Now()
	if err := d.client.Cancel(ctx, r.ID, "the tour goes on"); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	res, err := d.story.result(ctx, r.ID)
	if err != nil {
		return err
	}
	d.print("   %s after %d ms\n", res.Status, time.Since(begun).Milliseconds())
	ticks, err := d.call(ctx, bash("a=$(cat tick); sleep 0.3; b=$(cat tick); [ \"$a\" = \"$b\" ] && echo 'nothing of it is left'"))
	if err != nil {
		return err
	}
	return errors.Join(
		want(res.Status == schemas.StatusCancelled, "the call is %s", res.Status),
		want(ticks.Output != nil && ticks.Output.ExitCode == 0, "something of the cancelled call still runs"))
}

func (d *demo) background(ctx context.Context) error {
	r := request(schemas.ToolBash, map[string]any{"command": "echo training…; sleep 1; echo 'loss 0.07'; exit 3", "background": true})
	res, err := d.call(ctx, r)
	if err != nil {
		return err
	}
	if err := want(res.StatusID != "", "the call names no job"); err != nil {
		return err
	}
	end, err := d.story.wait(ctx, func(e schemas.Event) bool { return e.Type == schemas.JobFinished && e.Subject == res.StatusID })
	if err != nil {
		return fmt.Errorf("end of the job: %w", err)
	}
	job, ok := decode[schemas.JobResult](end.Event)
	if err := want(ok && job.State == schemas.JobFailed && job.ExitCode != nil && *job.ExitCode == 3, "the job is %+v", job); err != nil {
		return err
	}
	d.print("   job.finished: %s with exit code %d after %d ms\n", job.State, *job.ExitCode, job.DurationMS)
	followed, err := d.story.wait(ctx, func(e schemas.Event) bool { return e.Type == schemas.FollowUpCreated && e.Subject == res.StatusID })
	if err != nil {
		return fmt.Errorf("follow-up of the job: %w", err)
	}
	f, ok := decode[schemas.FollowUp](followed.Event)
	d.print("   followup.created, for the agent:\n")
	d.quote(f.Text)
	return want(ok && len(f.Results) == 1 && strings.Contains(f.Text, "loss 0.07"), "the follow-up is %+v", f)
}

func (d *demo) crash(ctx context.Context) error {
	effect := bash("echo 'charged the card' >> ledger; echo 'working…'; sleep 30; echo done")
	d.ask(effect)
	if _, err := d.client.Submit(ctx, effect); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	if _, err := d.story.wait(ctx, about(effect.ID, schemas.CallOutput)); err != nil {
		return err
	}
	// A suspended worker receives the next call and does nothing with it. It is killed with both calls in flight.
	if err := d.worker.freeze(); err != nil {
		return err
	}
	look := request(schemas.ToolRead, map[string]any{"file_path": "greeting.txt"})
	d.ask(look)
	if _, err := d.client.Submit(ctx, look); err != nil {
		return fmt.Errorf("call: %w", err)
	}
	begun := time.Now()
	d.print("   kill -9 %d, the worker; then another one is started\n", d.worker.cmd.Process.Pid)
	d.worker.kill()
	var err error
	if d.worker, err = d.startWorker(ctx); err != nil {
		return err
	}
	read, err := d.story.result(ctx, look.ID)
	if err != nil {
		return err
	}
	ran, err := d.story.wait(ctx, about(look.ID, schemas.CallStarted))
	if err != nil {
		return err
	}
	by, _ := decode[schemas.StartedData](ran.Event)
	d.print("   read: %s after %.1f s, at attempt %d. It only reads, so it simply went to another worker.\n",
		read.Status, time.Since(begun).Seconds(), by.Attempt)
	lost, err := d.story.result(ctx, effect.ID)
	if err != nil {
		return err
	}
	d.print("   bash: %s after %.1f s. It had begun, so it is not run again. The model reads:\n", lost.Status, time.Since(begun).Seconds())
	d.quote(lost.Text)
	ledger, err := d.call(ctx, bash("wc -l < ledger"))
	if err != nil {
		return err
	}
	return errors.Join(
		want(read.Status == schemas.StatusCompleted, "the read is %s: %s", read.Status, read.Text),
		want(lost.Status == schemas.StatusInterrupted, "the bash call is %s: %s", lost.Status, lost.Text),
		want(ledger.Output != nil && strings.TrimSpace(ledger.Output.Stdout) == "1", "the card was not charged exactly once"))
}

func (d *demo) replay(ctx context.Context) error {
	all := d.story.all()
	const back = 6
	from := all[len(all)-1-back]
	d.print("   GET /v1/conversations/%s/events?after=%s\n", tourConversation, from.Cursor)
	var ids, wanted []string
	for _, e := range all[len(all)-back:] {
		wanted = append(wanted, e.Event.ID)
	}
	for item, err := range d.client.Events(ctx, tourConversation, from.Cursor) {
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if item.Live {
			break
		}
		ids = append(ids, item.Event.ID)
		d.print("   │ %s  %-14s %s\n", item.Cursor, item.Event.Type, item.Event.Subject)
	}
	d.print("   %d events in all; these %d came after the cursor, and then: live\n", len(all), len(ids))
	return want(slices.Equal(ids, wanted), "the replay differs: got %v, want %v", ids, wanted)
}
