package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/schemas"
)

type jobsStopCommand struct {
	jobTarget

	Reason string `placeholder:"TEXT" use:"" help:"Reason, recorded in the result."`
}

// Run stops a job.
func (c *jobsStopCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	j, err := cl.Jobs().Stop(ctx, id, c.Reason)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, j)
	}
	return say(t, "Stopping %s. Wait for its end: sandjet jobs wait %s", id, id)
}

type jobsSignalCommand struct {
	jobTarget

	Name string `arg:"" name:"signal" help:"HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT or STOP."`
}

// Run sends a signal.
func (c *jobsSignalCommand) Run(ctx context.Context, t terminal) error {
	name := strings.TrimPrefix(strings.ToUpper(c.Name), "SIG")
	if !slices.Contains(schemas.JobSignals(), name) {
		return schemas.Invalidf("signal", "%q is unknown: use one of %s", schemas.Quotable(c.Name), strings.Join(schemas.JobSignals(), ", "))
	}
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if err := cl.Jobs().Signal(ctx, id, name); err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]string{"job": string(id), "signal": name})
	}
	return say(t, "Sent %s to %s", name, id)
}

type jobsStdinCommand struct {
	jobTarget

	Text string `arg:"" optional:"" help:"Line to write; - copies stdin."`
	EOF  bool   `name:"eof" use:"" help:"Close the job's stdin afterwards (always after -)."`
}

// Help returns the detailed help, for kong.
func (*jobsStdinCommand) Help() string {
	return `Examples:
  sandjet jobs stdin job_01j… yes
  sandjet jobs stdin job_01j… - < answers.txt
  sandjet jobs stdin --eof job_01j…`
}

// Run writes to a job.
func (c *jobsStdinCommand) Run(ctx context.Context, t terminal) error {
	if c.Text == "" && !c.EOF {
		return schemas.Invalidf("text", "is missing: give a line, - for stdin, or --eof to close it")
	}
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	from, eof := io.Reader(strings.NewReader(c.Text+"\n")), c.EOF
	switch c.Text {
	case "-":
		from, eof = t.in, true
	case "":
		from = strings.NewReader("")
	}
	n, err := writeJob(ctx, cl.Jobs(), id, from, eof)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"job": id, "written": n, "eof": eof})
	}
	closed := ""
	if eof {
		closed = " and closed its stdin"
	}
	return say(t, "Wrote %s to %s%s", count(n, "byte"), id, closed)
}

// jobWriter is the part of a client that writeJob needs.
type jobWriter interface {
	Write(ctx context.Context, id schemas.JobID, data []byte, eof bool) (int, error)
}

// writeJob copies all of r to a job's standard input, in chunks, as the job reads them. It returns the number of bytes written. Code
// timeout: the job does not read.
func writeJob(ctx context.Context, w jobWriter, id schemas.JobID, r io.Reader, eof bool) (int64, error) {
	var total int64
	piece := make([]byte, schemas.MaxJobStdin)
	for {
		n, err := io.ReadFull(r, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return total, fmt.Errorf("read stdin: %w", err)
		}
		for rest := piece[:n]; len(rest) > 0; {
			taken, err := w.Write(ctx, id, rest, false)
			total += int64(taken)
			if err != nil {
				return total, fmt.Errorf("after %d bytes: %w", total, err)
			}
			if taken == 0 {
				return total, schemas.Errorf(schemas.Timeout, "after %d bytes: the job does not read", total)
			}
			rest = rest[taken:]
		}
		if !last {
			continue
		}
		if eof {
			_, err := w.Write(ctx, id, nil, true)
			return total, err
		}
		return total, nil
	}
}
