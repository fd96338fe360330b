package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type tailCommand struct {
	target

	Conversation string         `arg:"" help:"Id of the conversation."`
	After        schemas.Cursor `placeholder:"CURSOR" use:"" help:"Start after this cursor; now means only new events. Default: all retained events."`
	Follow       bool           `short:"f" use:"" help:"Follow new events until Ctrl-C."`

	dir string
}

// Help returns the detailed help, for kong.
func (*tailCommand) Help() string {
	return `Each line shows the time, the call and the event; output appears as it was printed. With --json a line is
{"cursor":"…","event":{…}}, and the cursor resumes after that event. Events that are no longer retained
are reported as a gap, never skipped silently.

Examples:
  sandjet tail c_01j…                     the events until now
  sandjet tail -f c_01j…                  and those to come
  sandjet tail --after "$CURSOR" c_01j…   what happened since`
}

// AfterApply is called by kong once everything is parsed.
func (c *tailCommand) AfterApply(root *cli) error {
	c.dir = clientDir(root.DataDir)
	return nil
}

// Run prints the conversation.
func (c *tailCommand) Run(ctx context.Context, t terminal) error {
	conversation := schemas.ConversationID(c.Conversation)
	if err := conversation.Validate(); err != nil {
		return err
	}
	cl, err := c.open(ctx, c.dir, t.err)
	if err != nil {
		return err
	}
	found := c.After != schemas.Cursor{} // events before the cursor are not expected
	for item, err := range cl.Events(ctx, conversation, c.After) {
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return left()
		case err != nil:
			return err
		case item.Live && !found && !c.Follow:
			return schemas.Errorf(schemas.NotFound,
				"there are no events on conversation %q: they are retained for seven days; list conversations with \"sandjet conversations ls\"",
				schemas.Quotable(c.Conversation))
		case item.Live && !c.Follow:
			return nil
		case item.Live && !found:
			found = true // printed once
			fmt.Fprintf(t.err, "sandjet: there are no events on conversation %q yet: waiting for some (Ctrl-C to leave)\n",
				schemas.Quotable(c.Conversation))
			continue
		case item.Live:
			continue
		}
		found = true
		if err := printItem(t, item); err != nil {
			return err
		}
	}
	return nil
}

func printItem(t terminal, item client.Item) error {
	if t.json {
		return printJSON(t.out, jsonItem(item))
	}
	if item.Gap != nil {
		_, err := fmt.Fprintf(t.out, "── events are missing here: they are no longer retained %s\n", item.Gap)
		return wrapOutput(err)
	}
	e := item.Event
	_, err := io.WriteString(t.out, fmt.Sprintf("%s  %-30s  %s\n", e.Time.Local().Format("15:04:05.000"), printable(e.Subject), eventLine(e)))
	return wrapOutput(err)
}

// jsonItem returns the value of a line of tail --json.
func jsonItem(item client.Item) any {
	if item.Gap != nil {
		return struct {
			Recovered bool            `json:"recovered"`
			Gap       json.RawMessage `json:"gap"`
		}{false, item.Gap}
	}
	return struct {
		Cursor schemas.Cursor `json:"cursor"`
		Event  schemas.Event  `json:"event"`
	}{item.Cursor, item.Event}
}

// eventLine describes an event in one line, or in several for output.
func eventLine(e schemas.Event) string {
	switch e.Type {
	case schemas.CallAccepted:
		if d, ok := decode[schemas.AcceptedData](e); ok {
			if d.GrantedBy != "" {
				return fmt.Sprintf("accepted  %s %s, approved by %s", d.Tool, inline(visibleInput(d.Tool, d.Input)), d.GrantedBy)
			}
			return fmt.Sprintf("accepted  %s %s", d.Tool, inline(visibleInput(d.Tool, d.Input)))
		}
	case schemas.CallStarted:
		if d, ok := decode[schemas.StartedData](e); ok {
			return fmt.Sprintf("started   attempt %d on %s", d.Attempt, printable(d.Worker))
		}
	case schemas.CallOutput:
		if d, ok := decode[schemas.OutputData](e); ok {
			return fmt.Sprintf("%-9s %s", d.Stream, indent(printable(d.Text)))
		}
	case schemas.CallFinished:
		if d, ok := decode[schemas.Result](e); ok {
			return "finished  " + resultLine(d)
		}
	case schemas.ArtifactCreated:
		if d, ok := decode[schemas.Artifact](e); ok {
			return fmt.Sprintf("artifact  %s: %s, %s", d.ID, printable(d.Path), count(d.Size, "byte"))
		}
	case schemas.ApprovalRequested:
		if d, ok := decode[schemas.ApprovalRequestedData](e); ok {
			return fmt.Sprintf("asks      %s: %s %s", d.ID, d.Tool, inline(visibleInput(d.Tool, d.Input)))
		}
	case schemas.ApprovalDecided:
		if d, ok := decode[schemas.ApprovalDecidedData](e); ok {
			return strings.TrimSuffix(fmt.Sprintf("%-9s by %s: %s", d.State, printable(d.DecidedBy), short(d.Reason)), ": ")
		}
	case schemas.JobStarted:
		if d, ok := decode[schemas.JobStartedData](e); ok {
			return fmt.Sprintf("job       %s started, until %s", d.Job, d.Deadline.Local().Format(time.DateTime))
		}
	case schemas.JobFinished:
		if d, ok := decode[schemas.JobResult](e); ok {
			return "job       " + jobLine(d)
		}
	case schemas.FollowUpCreated:
		if d, ok := decode[schemas.FollowUp](e); ok {
			return fmt.Sprintf("follow-up %s with %s", d.ID, count(len(d.Results), "result"))
		}
	case schemas.DeliverySent:
		if d, ok := decode[schemas.DeliverySentData](e); ok {
			return fmt.Sprintf("%-9s has %s", printable(d.Channel), count(len(d.Messages), "message"))
		}
	case schemas.DeliveryFailed:
		if d, ok := decode[schemas.DeliveryFailedData](e); ok {
			return fmt.Sprintf("%-9s not reached: %s", printable(d.Channel), short(d.Reason))
		}
	case schemas.MessageReceived:
		if d, ok := decode[schemas.ChatMessage](e); ok {
			return receivedLine(d)
		}
	case schemas.MessageDelta:
		if d, ok := decode[schemas.MessageDeltaData](e); ok {
			return fmt.Sprintf("%-9s %s", "says", indent(printable(d.Text)))
		}
	case schemas.AgentStarted, schemas.AgentFinished, schemas.AgentFailed, schemas.AgentStepFinished, schemas.AgentStepRetried,
		schemas.Message:
		return fmt.Sprintf("%-9s %s", e.Type, short(string(e.Data))) // their senders define the data
	case schemas.CallRejected:
		if d, ok := decode[schemas.RejectedData](e); ok && d.Error != nil {
			return "rejected  " + printable(d.Error.Error())
		}
	}
	return printable(string(e.Type))
}

func receivedLine(d schemas.ChatMessage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-9s %s: %s", printable(d.Kind), printable(cmp.Or(d.UserName, d.User, d.Place)), short(d.Text))
	for _, f := range d.Files {
		if f.Path != "" {
			fmt.Fprintf(&b, " [%s]", printable(f.Path))
		} else {
			fmt.Fprintf(&b, " [%s: not stored, %s]", short(f.Name), short(f.Reason))
		}
	}
	return b.String()
}

func resultLine(r schemas.Result) string {
	s := string(r.Status)
	if r.Output != nil {
		s += fmt.Sprintf(", exit code %d, %d ms", r.Output.ExitCode, r.Output.DurationMS)
	}
	if r.Error != nil {
		s += ": " + printable(r.Error.Error())
	}
	return s
}

func decode[T any](e schemas.Event) (v T, ok bool) {
	err := json.Unmarshal(e.Data, &v)
	return v, err == nil
}

func short(s string) string {
	const most = 100
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return printable(s)
}

// inline shortens a text and puts it on one line.
func inline(s string) string {
	return strings.ReplaceAll(short(s), "\n", " ")
}

// indent aligns further lines of a text with its first one.
func indent(s string) string {
	// the columns of printItem
	return strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+strings.Repeat(" ", len("15:04:05.000  ")+32+10))
}
