package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

type deadCommand struct {
	LS      deadListCommand    `cmd:"" name:"ls" help:"List dead letters, newest first."`
	Show    deadShowCommand    `cmd:"" help:"Show a dead letter: reason, headers and payload."`
	Redrive deadRedriveCommand `cmd:"" help:"Send dead letters again, to the stream they came from."`
}

// Help returns the detailed help, for kong.
func (*deadCommand) Help() string {
	return `A message that cannot be handled (malformed, or failed again and again) is not lost: it goes to the
dead letters with the reason, and stays there for 30 days. A call among them has its result all the
same: failed, with that reason.

These commands talk to the log itself. On the data folder of "sandjet up" or "sandjet server" they find
it by themselves, else name it with --nats-url and a credential that may do everything.

Examples:
  sandjet dead ls
  sandjet dead show INTAKE.17
  sandjet dead redrive INTAKE.17`
}

// deadFlags are the flags of every dead command.
type deadFlags struct{ logFlags }

// open connects to the log. The caller closes the node.
func (f *deadFlags) open(ctx context.Context, t terminal) (*node, *streams.DeadLetters, error) {
	n, err := f.reach(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	return n, streams.OpenDeadLetters(n.bus), nil
}

type deadListCommand struct {
	deadFlags
	watchFlag

	Stream string `placeholder:"NAME" use:"" help:"Only dead letters from this stream, such as CALLS or INTAKE."`
	Limit  int    `placeholder:"N" default:"100" use:"" help:"Maximum number of results."`
}

// Run lists dead letters.
func (c *deadListCommand) Run(ctx context.Context, t terminal) error {
	n, letters, err := c.open(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	return c.repeat(ctx, t, func(ctx context.Context, t terminal) error {
		list, err := letters.List(ctx, c.Stream, c.Limit)
		if err != nil {
			return err
		}
		return printList(t, list, "No dead letters.", "ID\tCODE\tFAILED\tPUBLISHED*\tTRIES\tSIZE*\tACCOUNT\tREASON", func(d schemas.DeadLetter) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s", d.ID, d.Code, ago(d.Time), ago(d.First), d.Deliveries, d.Size, orDash(string(d.Account)),
				short(d.Reason))
		})
	})
}

type deadShowCommand struct {
	deadFlags

	ID string `arg:"" help:"Id of the dead letter."`
}

// Run shows one dead letter.
func (c *deadShowCommand) Run(ctx context.Context, t terminal) error {
	n, letters, err := c.open(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	d, err := letters.Show(ctx, c.ID)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, d)
	}
	_, err = fmt.Fprintf(t.out,
		"id          %s\nsubject     %s\naccount     %s\nreason      %s (%s)\npublished   %s\nfailed      %s, after %s\n%s\n%s\n",
		d.ID, d.Subject, d.Account, printable(d.Reason), d.Code, d.First.Local().Format(time.DateTime), d.Time.Local().Format(time.DateTime),
		count(d.Deliveries, "try", "tries"), headerLines(d), printable(string(d.Payload)))
	return wrapOutput(err)
}

func headerLines(d schemas.DeadLetter) string {
	var b strings.Builder
	for k, v := range d.Headers {
		fmt.Fprintf(&b, "%-11s %s\n", printable(k), printable(strings.Join(v, ", ")))
	}
	return b.String()
}

type deadRedriveCommand struct {
	deadFlags

	IDs []string `arg:"" name:"id" help:"Ids of the dead letters."`
}

// Run sends dead letters again.
func (c *deadRedriveCommand) Run(ctx context.Context, t terminal) error {
	n, letters, err := c.open(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	for _, id := range c.IDs {
		if err := letters.Redrive(ctx, id); err != nil {
			return fmt.Errorf("%s: %w", schemas.Quotable(id), err)
		}
		if t.json {
			err = printJSON(t.out, map[string]string{"redriven": id})
		} else {
			_, err = fmt.Fprintf(t.out, "Redrove %s\n", id)
		}
		if err != nil {
			return wrapOutput(err)
		}
	}
	return nil
}
