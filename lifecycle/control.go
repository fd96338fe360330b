package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

const (
	controlWithin = 10 * time.Second // for an answer of a job's worker
	stopWithin    = 30 * time.Second // likewise when it stops the job: it waits for the end of all processes
	settledWithin = 2 * time.Second  // likewise about a job that has settled: its completion has an answer too
)

// ControlJob executes a command on an account's background job and returns the reply of the worker that manages it; for a settled job,
// what is on record. It blocks for at most half a minute. Logs of a settled job are read from its sandbox while that exists, otherwise
// from the last part that the completion contains.
//
// Codes: not_found, unsupported (the job does not offer the action; the text says which ones it does), conflict (not possible in the job's
// state), unavailable (its worker is unreachable: try again), and errors of the sandbox: timeout for an input that is read too slowly.
func ControlJob(ctx context.Context, b *streams.Bus, cmd schemas.JobCommand) (schemas.JobReply, error) {
	for moved := false; ; moved = true {
		p, err := FindJob(ctx, b, cmd.Account, cmd.Job)
		if err != nil {
			return schemas.JobReply{}, err
		}
		j := p.Value
		if err := controllable(j, cmd.Action); err != nil {
			return schemas.JobReply{}, err
		}
		switch {
		case cmd.Action == schemas.JobActionStatus && (j.State != schemas.JobRunning || !slices.Contains(j.Actions, schemas.JobActionLogs)):
			return recorded(j, cmd), nil // no process knows more than the record
		case j.State.Final():
			reply, err := askWorker(ctx, b, j, cmd, settledWithin)
			if err != nil && ctx.Err() == nil {
				return recorded(j, cmd), nil
			}
			return reply, err
		}
		within := controlWithin
		if cmd.Action == schemas.JobActionStop {
			within = stopWithin
		}
		reply, err := askWorker(ctx, b, j, cmd, within)
		if !errors.Is(err, schemas.ErrUnavailable) || moved || ctx.Err() != nil {
			return reply, err
		}
		// Another worker may have taken the job over since the record was read.
		again, ferr := FindJob(ctx, b, cmd.Account, cmd.Job)
		if ferr != nil || again.Revision == p.Revision {
			return reply, err
		}
	}
}

// controllable returns why an action is not possible with a job in its recorded state; nil if it is.
func controllable(j schemas.Job, a schemas.JobAction) error {
	const op = "job"
	switch {
	case !slices.Contains(schemas.JobActions(), a):
		return schemas.Invalidf("action", "%q is unknown: use status, logs, stop, stdin or signal", schemas.Quotable(string(a)))
	case a == schemas.JobActionStatus:
		return nil
	case j.State == schemas.JobWaiting:
		return schemas.OpErrorf(schemas.Conflict, op, "the job has not been started yet: there is nothing to %s", verb(a))
	case j.State == schemas.JobUnstarted:
		return schemas.OpErrorf(schemas.Conflict, op, "the job was never started: there is nothing to %s", verb(a))
	case j.State.Final() && a == schemas.JobActionLogs:
		return nil // its completion keeps their end, whatever its sandbox offers
	case !slices.Contains(j.Actions, a):
		offered := make([]string, len(j.Actions))
		for i, o := range j.Actions {
			offered[i] = string(o)
		}
		return &schemas.Error{
			Code: schemas.Unsupported, Op: op, Field: "action",
			Message: string(a) + " is not offered by this job's sandbox: it offers " + strings.Join(offered, ", ") +
				". You will be notified when the job ends",
		}
	case j.State.Final():
		return schemas.OpErrorf(schemas.Conflict, op, "the job has ended already: it is %s", j.State)
	}
	return nil
}

func verb(a schemas.JobAction) string {
	return map[schemas.JobAction]string{
		schemas.JobActionLogs: "read", schemas.JobActionStop: "stop", schemas.JobActionStdin: "write to", schemas.JobActionSignal: "signal",
	}[a]
}

// recorded answers status and logs from the record alone.
func recorded(j schemas.Job, cmd schemas.JobCommand) schemas.JobReply {
	r := schemas.JobReply{Running: j.State == schemas.JobRunning, Ended: j.State.Final()}
	c := j.Completion
	if c == nil {
		return r
	}
	r.Size = c.LogBytes
	if cmd.Action == schemas.JobActionLogs {
		r.Data, r.Offset = window([]byte(c.Logs), c.LogBytes, cmd)
	}
	return r
}

// window returns the part of a log that a command reads, if only its last bytes were stored, and the part's offset.
func window(kept []byte, size int64, cmd schemas.JobCommand) (data []byte, offset int64) {
	limit := cmd.Limit
	if limit <= 0 || limit > schemas.MaxJobLogPage {
		limit = schemas.MaxJobLogPage
	}
	first := max(size-int64(len(kept)), 0)
	offset = min(max(cmd.Offset, first), size)
	if cmd.Offset < 0 {
		offset = max(first, size-int64(limit))
	}
	data = kept[min(offset-first, int64(len(kept))):]
	return data[:min(limit, len(data))], offset
}

// askWorker sends a command to the worker that manages a job, and returns the reply. Code: unavailable (there is none, or it does not
// answer within the given time).
func askWorker(ctx context.Context, b *streams.Bus, j schemas.Job, cmd schemas.JobCommand, within time.Duration) (schemas.JobReply, error) {
	const op = "job"
	if j.Worker == "" {
		return schemas.JobReply{}, schemas.OpErrorf(schemas.Unavailable, op, "no worker manages the job yet: try again")
	}
	data, err := json.Marshal(cmd)
	if err != nil {
		return schemas.JobReply{}, schemas.Wrap(schemas.Invalid, op, "the command cannot be written as JSON", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := b.AskFor(ctx, j.Account, streams.JobControlSubject(j.Worker), data)
	if code := schemas.CodeOf(err); code == schemas.Unavailable && ctx.Err() == nil || code == schemas.Timeout && ctx.Err() != nil {
		return schemas.JobReply{}, schemas.Wrap(schemas.Unavailable, op, "the job's worker is away: try again", err)
	}
	if err != nil {
		return schemas.JobReply{}, err
	}
	var reply schemas.JobReply
	if err := json.Unmarshal(answer, &reply); err != nil {
		return schemas.JobReply{}, schemas.Wrap(schemas.Internal, op, "the answer of the job's worker is not understood", err)
	}
	return reply, nil
}
