package workers

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

// statusWithin is what one async_status may take: above what a stop may.
const statusWithin = 40 * time.Second

// logsPage is how many bytes of a job's output one answer shows.
const logsPage = 64 << 10

// prepareStatus prepares an async_status, which needs neither box nor workspace.
func (t *execution) prepareStatus() (o preparedCall, err error) {
	o.input, err = schemas.DecodeAcceptedInput(t.call.Tool, t.call.Input)
	o.command.Timeout = statusWithin
	return o, err
}

// status carries out an async_status in this process. Any worker can: the record is on the log, and
// what the job's own worker has to do is asked of it.
func (t *execution) status(ctx context.Context, o preparedCall) (r schemas.Result, handled bool, err error) {
	in, ok := o.input.(schemas.AsyncStatusInput)
	if !ok {
		return r, false, nil
	}
	began := time.Now()
	text, data, err := t.askJob(ctx, in)
	if code := schemas.CodeOf(err); err != nil && ctx.Err() == nil {
		r = lifecycle.FailedResult(t.call, err)
		if code == schemas.NotFound && r.Error.Field == "" {
			r.Text = r.Error.Message
		}
		return r, true, nil
	}
	if err != nil {
		return r, true, err
	}
	r = lifecycle.Result(t.call, schemas.Completed, text)
	r.Output = &schemas.Output{OK: true, Runtime: "native", DurationMS: time.Since(began).Milliseconds(), Data: data}
	return r, true, nil
}

// JobLogsData is the structure in the result of async_status with the action logs.
type JobLogsData struct {
	Offset int64 `json:"offset"` // of the first byte shown
	Next   int64 `json:"next"`   // where to read on
	Size   int64 `json:"size"`   // of all that was printed so far
	Ended  bool  `json:"ended"`  // after Size there is no more
}

// JobStatusData is the structure in the result of async_status with the action status.
type JobStatusData struct {
	Job     schemas.JobID       `json:"job"`
	State   schemas.JobState    `json:"state"`
	Actions []schemas.JobAction `json:"actions,omitzero"`
	Bytes   int64               `json:"bytes"`           // printed so far, as far as is known
	Result  *schemas.JobResult  `json:"result,omitzero"` // when it has settled
}

// askJob finds the job and does what is asked. A job of another conversation is unknown, in the same
// words as one that never was.
func (t *execution) askJob(ctx context.Context, in schemas.AsyncStatusInput) (text string, data any, err error) {
	unknown := &schemas.Error{Code: schemas.NotFound, Message: "unknown — no record of " + schemas.Quotable(string(in.StatusID)) + " in this conversation"}
	p, err := lifecycle.FindJob(ctx, t.w.Bus, t.call.Account, in.StatusID)
	switch {
	case errors.Is(err, schemas.ErrNotFound), err == nil && p.Value.Conversation != t.call.Conversation:
		return "", nil, unknown
	case err != nil:
		return "", nil, fmt.Errorf("record of the job: %w", err)
	}
	cmd := schemas.JobCommand{Account: t.call.Account, Job: in.StatusID, Action: in.Action}
	switch in.Action {
	case schemas.JobActionStatus, "":
		cmd.Action = schemas.JobActionStatus
		return t.tellStatus(ctx, p, cmd)
	case schemas.JobActionLogs:
		cmd.Offset, cmd.Limit = in.Offset, logsPage
	case schemas.JobActionStop:
		cmd.Reason = "the agent asked for its end"
	case schemas.JobActionStdin:
		cmd.Data, cmd.EOF = []byte(in.Data), in.EOF
	case schemas.JobActionSignal:
		cmd.Signal = in.Signal
	}
	reply, err := lifecycle.ControlJob(ctx, t.w.Bus, cmd)
	if err != nil {
		return "", nil, err
	}
	text, page := controlText(in, reply)
	if in.Action == schemas.JobActionLogs {
		return text, page, nil
	}
	return text, schemas.JobReply{Running: reply.Running, Ended: reply.Ended, Written: reply.Written}, nil
}

// tellStatus words how a job is. The result of one that has settled counts as delivered from then on,
// in one step with the reading: no follow-up repeats it.
func (t *execution) tellStatus(ctx context.Context, p streams.Pair[schemas.Job], cmd schemas.JobCommand) (string, any, error) {
	jobs := lifecycle.OpenJobs(t.w.Bus)
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
		if p, err = jobs.Get(ctx, p.Key); err != nil {
			return "", nil, fmt.Errorf("record of the job: %w", err)
		}
	}
	var printed int64
	if p.Value.State == schemas.JobRunning {
		if reply, err := lifecycle.ControlJob(ctx, t.w.Bus, cmd); err == nil {
			printed = reply.Size // the rest is on record: the model does not need to know that a worker is away
		}
	}
	data := JobStatusData{Job: p.Value.ID, State: p.Value.State, Actions: p.Value.Actions, Bytes: printed}
	if c := p.Value.Completion; c != nil {
		r := schemas.JobResultOf(p.Value, *c)
		r.Logs = "" // the text shows them
		data.Result, data.Bytes = &r, c.LogBytes
	}
	return statusText(p.Value, printed), data, nil
}

// statusText words how a job is.
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

// endText words how a job ended, and shows the end of what it printed.
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
	if c.OOMKilled {
		b.WriteString("\n[killed: out of memory]")
	}
	if c.ChildrenLeft > 0 {
		fmt.Fprintf(&b, "\n[%d processes that it left behind were ended]", c.ChildrenLeft)
	}
	return b.String()
}

// controlText words what came of an action, and for logs the page that the text shows.
func controlText(in schemas.AsyncStatusInput, r schemas.JobReply) (string, JobLogsData) {
	switch in.Action {
	case schemas.JobActionLogs:
		return logsText(in.Offset, r)
	case schemas.JobActionStop:
		return "Stopped job " + string(in.StatusID) + ": nothing of it runs any more.", JobLogsData{}
	case schemas.JobActionStdin:
		text := fmt.Sprintf("Wrote %d bytes to job %s.", r.Written, in.StatusID)
		if in.EOF {
			text += " Its standard input is closed now."
		}
		return text, JobLogsData{}
	case schemas.JobActionSignal:
		return "Sent " + in.Signal + " to job " + string(in.StatusID) + ".", JobLogsData{}
	case schemas.JobActionStatus:
	}
	return "", JobLogsData{}
}

// logsText shows a piece of a job's output and says where to read on. A character that the piece cuts
// in two is left to the next one.
func logsText(from int64, r schemas.JobReply) (string, JobLogsData) {
	data := r.Data
	if end := r.Offset + int64(len(data)); !r.Ended || end < r.Size {
		if n := whole(data); n > 0 {
			data = data[:n]
		}
	}
	page := JobLogsData{Offset: r.Offset, Next: r.Offset + int64(len(data)), Size: r.Size, Ended: r.Ended}
	var b strings.Builder
	if r.Offset > from && len(data) > 0 {
		fmt.Fprintf(&b, "[bytes %d to %d are no longer kept]\n", from, r.Offset)
	}
	b.WriteString(strings.ToValidUTF8(string(data), "\uFFFD"))
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
	switch more := page.Next < page.Size; {
	case more:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. Read on with offset %d]", page.Offset, page.Next, page.Size, page.Next)
	case page.Ended:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. The job has ended: there is no more]", page.Offset, page.Next, page.Size)
	default:
		fmt.Fprintf(&b, "[bytes %d to %d of %d. The job runs: what it prints next begins at offset %d. %s]", page.Offset, page.Next, page.Size, page.Next, lifecycle.TextNotified)
	}
	return b.String(), page
}
