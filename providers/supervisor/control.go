package supervisor

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/providers"
	"github.com/sandjet/sandjet/schemas"
)

// The program's exit codes.
const (
	exitAway    = 90 // no such job
	exitOld     = 91 // the box lacks a tool
	exitRefused = 92
	exitFull    = 93
)

// JobStatus reads the job's state by a run in the box. If its supervisor is gone, the run determines how the job ended and records that.
func (p *Provider) JobStatus(ctx context.Context, ref schemas.JobRef) (providers.JobStatus, error) {
	a, err := p.look(ctx, "job status", ref, "status", "", schemas.MaxJobLogs)
	if err != nil {
		return providers.JobStatus{}, err
	}
	return a.status()
}

// JobLogs reads the log by a run in the box. Limit is at most schemas.MaxJobLogPage.
func (p *Provider) JobLogs(ctx context.Context, ref schemas.JobRef, offset int64, limit int) (providers.JobLogs, error) {
	limit = min(limit, schemas.MaxJobLogPage)
	if limit < 1 || offset < -1 {
		return providers.JobLogs{}, schemas.Invalidf("offset", "is below -1, or the limit below 1")
	}
	a, err := p.look(ctx, "job logs", ref, "logs", "", offset, limit)
	if err != nil {
		return providers.JobLogs{}, err
	}
	return a.logs(limit)
}

// StopJob asks the job's supervisor to end it and waits for that. Grace is at most 5 minutes.
func (p *Provider) StopJob(ctx context.Context, ref schemas.JobRef, grace time.Duration) error {
	grace = min(max(grace, 10*time.Millisecond), maxGrace)
	input, err := inputOf(p.o, ref, "stop", ref.Instance, ticks(grace))
	if err == nil {
		_, err = p.ask(ctx, "stop job", p.command(ref.Sandbox, grace+2*lookTimeout, input))
	}
	return err
}

// SignalJob signals the job's process group by a run in the box.
func (p *Provider) SignalJob(ctx context.Context, ref schemas.JobRef, signal string) error {
	if !slices.Contains(schemas.JobSignals(), signal) {
		return schemas.Invalidf("signal", "%q is unknown: use one of %s", schemas.Quotable(signal), strings.Join(schemas.JobSignals(), ", "))
	}
	_, err := p.look(ctx, "signal job", ref, "send", ref.Instance, signal)
	return err
}

// WriteJob writes to the job's standard input by a run in the box. It fails after 10 seconds, or shortly before ctx ends. Writes at the
// same time may mix in pieces of 4 KiB.
func (p *Provider) WriteJob(ctx context.Context, ref schemas.JobRef, data []byte, eof bool) (int, error) {
	if len(data) > schemas.MaxJobStdin {
		return 0, schemas.Invalidf("data", "is %d bytes long: the limit is %d", len(data), schemas.MaxJobStdin)
	}
	budget := writeTimeout
	if end, ok := ctx.Deadline(); ok {
		budget = min(budget, time.Until(end)/2) // the rest is for the run around it
	}
	closing := 0
	if eof {
		closing = 1
	}
	input, err := inputOf(p.o, ref, "write", ref.Instance, closing, ticks(budget), len(data))
	if err != nil {
		return 0, err
	}
	a, err := p.ask(ctx, "write to job", p.command(ref.Sandbox, lookTimeout+budget, append(input, data...)))
	if err != nil {
		return 0, err
	}
	written, err := a.number("written")
	switch {
	case err != nil:
		return 0, err
	case written < 0 || written > int64(len(data)):
		return 0, errAnswer("written")
	case a.fields["problem"] == "timeout":
		return int(written), schemas.OpErrorf(schemas.Timeout, "write to job",
			"the job reads too slowly: it took %d of %d bytes", written, len(data))
	case a.fields["problem"] == "closed":
		return int(written), schemas.OpErrorf(schemas.Conflict, "write to job", "the job has closed its input")
	default:
		return int(written), nil
	}
}

// look runs a short query of the program.
func (p *Provider) look(ctx context.Context, op string, ref schemas.JobRef, verb, instance string, args ...any) (answer, error) {
	input, err := inputOf(p.o, ref, verb, instance, args...)
	if err != nil {
		return answer{}, err
	}
	return p.ask(ctx, op, p.command(ref.Sandbox, lookTimeout, input))
}

// inputOf returns the input of all verbs except start: one line per value.
func inputOf(o Options, ref schemas.JobRef, verb, instance string, args ...any) ([]byte, error) {
	if err := ref.ID.Validate(); err != nil {
		return nil, err
	}
	if !wire(instance) || ref.Sandbox.IsZero() {
		return nil, schemas.OpErrorf(schemas.NotFound, verb+" job", "no such job was started")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s\n%s\n%s\n", verb, o.JobsDir, ref.ID, instance)
	for _, arg := range args {
		fmt.Fprintf(&b, "%v\n", arg)
	}
	return b.Bytes(), nil
}

// ask runs the program in the box and reads its answer.
func (p *Provider) ask(ctx context.Context, op string, cmd providers.Command) (answer, error) {
	var out bytes.Buffer // a page is longer than what a Result keeps
	cmd.Script, cmd.OutputLimit = launcher(), 0
	cmd.Output = func(c providers.Chunk) {
		if !c.Stderr && out.Len() < maxAnswer {
			out.Write(c.Data)
		}
	}
	res, err := p.inner.Run(ctx, cmd)
	if err != nil {
		if schemas.CodeOf(err) == schemas.NotFound {
			p.forget(cmd.Sandbox)
		}
		return answer{}, runError(op, res.Started, err)
	}
	if res.ExitCode != 0 || res.TimedOut {
		return answer{}, exitError(op, res)
	}
	return parse(out.Bytes())
}
