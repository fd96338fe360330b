package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/lifecycle"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

// StatusWithin is what one async_status may take: above what a stop may.
const StatusWithin = 40 * time.Second

// logsPage is how many bytes of a job's output one answer shows.
const logsPage = 64 << 10

// Status answers what models ask about jobs with the tool async_status. Any worker can: the record is on the log, and
// what the job's own worker has to do is asked of it. It may be called from any number of goroutines.
type Status struct{ Bus *streams.Bus }

// Answer is the result of a call of async_status. An error is only that of a ctx that has ended. It blocks for
// [StatusWithin] at most.
func (s Status) Answer(ctx context.Context, c schemas.Call, in schemas.AsyncStatusInput) (schemas.Result, error) {
	began := time.Now()
	text, data, err := s.ask(ctx, c, in)
	if code := schemas.CodeOf(err); err != nil && ctx.Err() == nil {
		r := lifecycle.FailedResult(c, err)
		if code == schemas.NotFound && r.Error.Field == "" {
			r.Text = r.Error.Message
		}
		return r, nil
	}
	if err != nil {
		return schemas.Result{}, err
	}
	r := lifecycle.Result(c, schemas.StatusCompleted, text)
	r.Output = &schemas.Output{OK: true, Runtime: "native", DurationMS: time.Since(began).Milliseconds(), Data: data}
	return r, nil
}

// LogsData is the structure in the result of async_status with the action logs.
type LogsData struct {
	Offset int64 `json:"offset"` // of the first byte shown
	Next   int64 `json:"next"`   // where to read on
	Size   int64 `json:"size"`   // of all that was printed so far
	Ended  bool  `json:"ended"`  // after Size there is no more
	// InvalidBytes counts the bytes shown that are not UTF-8: the text has U+FFFD in their place.
	InvalidBytes int64 `json:"invalid_bytes,omitzero"`
}

// StatusData is the structure in the result of async_status with the action status.
type StatusData struct {
	Job     schemas.JobID       `json:"job"`
	State   schemas.JobState    `json:"state"`
	Actions []schemas.JobAction `json:"actions,omitzero"`
	Bytes   int64               `json:"bytes"`           // printed so far, as far as is known
	Result  *schemas.JobResult  `json:"result,omitzero"` // when it has settled
}

// ask finds the job and carries out the action. A job of another conversation is unknown, with the same text as a job that never existed.
func (s Status) ask(ctx context.Context, c schemas.Call, in schemas.AsyncStatusInput) (text string, data any, err error) {
	unknown := &schemas.Error{Code: schemas.NotFound, Message: "unknown — no record of " +
		schemas.Quotable(string(in.StatusID)) + " in this conversation"}
	p, err := lifecycle.FindJob(ctx, s.Bus, c.Account, in.StatusID)
	switch {
	case errors.Is(err, schemas.ErrNotFound), err == nil && p.Value.Conversation != c.Conversation:
		return "", nil, unknown
	case err != nil:
		return "", nil, fmt.Errorf("record of the job: %w", err)
	}
	cmd := schemas.JobCommand{Account: c.Account, Job: in.StatusID, Action: in.Action}
	switch in.Action {
	case schemas.JobActionStatus, "":
		cmd.Action = schemas.JobActionStatus
		return s.describe(ctx, p, cmd)
	case schemas.JobActionLogs:
		cmd.Offset, cmd.Limit = in.Offset, logsPage
	case schemas.JobActionStop:
		cmd.Reason = "the agent asked for its end"
	case schemas.JobActionStdin:
		cmd.Data, cmd.EOF = []byte(in.Data), in.EOF
	case schemas.JobActionSignal:
		cmd.Signal = in.Signal
	}
	reply, err := lifecycle.ControlJob(ctx, s.Bus, cmd)
	if err != nil {
		return "", nil, err
	}
	text, page := controlText(in, reply)
	if in.Action == schemas.JobActionLogs {
		return text, page, nil
	}
	return text, schemas.JobReply{Running: reply.Running, Ended: reply.Ended, Written: reply.Written}, nil
}

// describe describes a job. The result of a settled job counts as delivered from then on, in the same step as the read, so no follow-up
// repeats it.
func (s Status) describe(ctx context.Context, p streams.BucketEntry[schemas.Job], cmd schemas.JobCommand) (string, any, error) {
	jobs := lifecycle.OpenJobs(s.Bus)
	var contest streams.Contest
	for p.Value.State.Final() && p.Value.FollowUp == "" {
		seen := p.Value
		seen.FollowUp = schemas.Observed
		_, err := jobs.UpdateFor(ctx, p.Key, seen, p.Revision, streams.SettledKept)
		if err == nil {
			p.Value = seen
			break
		}
		if !errors.Is(err, schemas.ErrConflict) {
			return "", nil, fmt.Errorf("mark the result as read: %w", err)
		}
		if err := contest.Again(ctx); err != nil {
			return "", nil, err
		}
		if p, err = jobs.Get(ctx, p.Key); err != nil {
			return "", nil, fmt.Errorf("record of the job: %w", err)
		}
	}
	var printed int64
	if p.Value.State == schemas.JobRunning {
		if reply, err := lifecycle.ControlJob(ctx, s.Bus, cmd); err == nil {
			printed = reply.Size // the rest is on record: the model does not need to know that a worker is unreachable
		}
	}
	data := StatusData{Job: p.Value.ID, State: p.Value.State, Actions: p.Value.Actions, Bytes: printed}
	if end := p.Value.Completion; end != nil {
		r := schemas.JobResultOf(p.Value, *end)
		r.Logs = "" // the text shows them
		data.Result, data.Bytes = &r, end.LogBytes
	}
	return statusText(p.Value, printed), data, nil
}

// statusText describes the state of a job.
func statusText(j schemas.Job, printed int64) string {
	c := j.Completion
	if j.State.Final() && c != nil {
		return endText(j.State, *c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (job %s", j.State, j.ID)
	if !j.Launched.IsZero() {
		fmt.Fprintf(&b, ", since %s", j.Launched.UTC().Format(time.RFC3339))
	}
	if printed > 0 {
		fmt.Fprintf(&b, ", %d bytes of output", printed)
	}
	return b.String() + "). " + lifecycle.TextNotified
}

// endText describes how a job ended, with the tail of its output.
func endText(s schemas.JobState, c schemas.Completion) string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(string(s), "_", " "))
	if c.ExitCode != nil {
		fmt.Fprintf(&b, " (exit %d)", *c.ExitCode)
	}
	if c.Reason != "" {
		b.WriteString(" — " + c.Reason)
	}
	if c.Logs != "" {
		if c.LogBytes > int64(len(c.Logs)) {
			fmt.Fprintf(&b, "\n[the last %d of %d bytes]", len(c.Logs), c.LogBytes)
		}
		b.WriteString("\n" + strings.TrimSuffix(c.Logs, "\n"))
	}
	b.WriteString(notText(c.LogInvalidBytes))
	if c.OOMKilled {
		b.WriteString("\n[killed: out of memory]")
	}
	if c.ChildrenLeft > 0 {
		fmt.Fprintf(&b, "\n[%d processes that it left behind were ended]", c.ChildrenLeft)
	}
	b.WriteString(lifecycle.JobArtifactsText(c.JobArtifacts))
	return b.String()
}

// controlText describes the outcome of an action, and returns the page of output that the text shows for the action logs.
func controlText(in schemas.AsyncStatusInput, r schemas.JobReply) (string, LogsData) {
	switch in.Action {
	case schemas.JobActionLogs:
		return logsText(in.Offset, r)
	case schemas.JobActionStop:
		return "Stopped job " + string(in.StatusID) + ": nothing of it runs any more.", LogsData{}
	case schemas.JobActionStdin:
		text := fmt.Sprintf("Wrote %d bytes to job %s.", r.Written, in.StatusID)
		if in.EOF {
			text += " Its standard input is closed now."
		}
		return text, LogsData{}
	case schemas.JobActionSignal:
		return "Sent " + in.Signal + " to job " + string(in.StatusID) + ".", LogsData{}
	case schemas.JobActionStatus:
	}
	return "", LogsData{}
}

// notText says on a line of its own how many bytes of a job's output were not UTF-8, as the result of bash does; nothing for 0.
func notText(n int64) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "\n[1 byte of the output was not UTF-8: shown as U+FFFD]"
	}
	return fmt.Sprintf("\n[%d bytes of the output were not UTF-8: shown as U+FFFD]", n)
}

// logsText shows a piece of a job's output and says where to continue. A character that the piece cuts in two is left to the next one.
func logsText(from int64, r schemas.JobReply) (string, LogsData) {
	data := r.Data
	if end := r.Offset + int64(len(data)); !r.Ended || end < r.Size {
		if n := schemas.WholeText(data); n > 0 {
			data = data[:n]
		}
	}
	page := LogsData{
		Offset: r.Offset, Next: r.Offset + int64(len(data)), Size: r.Size, Ended: r.Ended, InvalidBytes: schemas.InvalidBytes(data),
	}
	var b strings.Builder
	if r.Offset > from && len(data) > 0 {
		fmt.Fprintf(&b, "[bytes %d to %d are no longer kept]\n", from, r.Offset)
	}
	b.WriteString(strings.ToValidUTF8(string(data), "\uFFFD"))
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(strings.TrimPrefix(notText(page.InvalidBytes)+"\n", "\n"))
	switch more := page.Next < page.Size; {
	case more:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. Read on with offset %d]", page.Offset, page.Next, page.Size, page.Next)
	case page.Ended:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. The job has ended: there is no more]", page.Offset, page.Next, page.Size)
	default:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. The job runs: what it prints next begins at offset %d. %s]", page.Offset, page.Next, page.Size,
			page.Next, lifecycle.TextNotified)
	}
	return b.String(), page
}
