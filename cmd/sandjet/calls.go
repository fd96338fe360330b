package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type callsCommand struct {
	LS     callsListCommand   `cmd:"" name:"ls" help:"List calls, newest first."`
	Show   callsShowCommand   `cmd:"" help:"Show a call: its status, or its result."`
	Cancel callsCancelCommand `cmd:"" help:"Cancel a call."`
}

// Help returns the detailed help, for kong.
func (*callsCommand) Help() string {
	return `Calls are listed for 24 hours. "sandjet tail" prints all events of a conversation, for seven days.

Examples:
  sandjet calls ls
  sandjet calls ls -c c_01j… --watch
  sandjet calls show call_01j…
  sandjet calls cancel call_01j… --reason "wrong branch"`
}

const mostListed = 1000 // entries of one list, over all its pages

type callsListCommand struct {
	listTarget

	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only calls of this conversation (id)."`
	Limit        int    `placeholder:"N" default:"20" use:"" help:"Maximum number of results, up to 1000."`
}

// Run lists calls.
func (c *callsListCommand) Run(ctx context.Context, t terminal) error {
	if c.Limit < 1 || c.Limit > mostListed {
		return schemas.Invalidf("limit", "%d is out of range: 1 to %d", c.Limit, mostListed)
	}
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := pages(c.Limit, func(limit int, before schemas.CallID) ([]schemas.CallSummary, schemas.CallID, error) {
			return cl.Calls(ctx, client.CallsQuery{Conversation: schemas.ConversationID(c.Conversation), Limit: limit, Before: before})
		}, func(s schemas.CallSummary) string { return string(s.ID) })
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No calls in the last 24 hours.",
			"ID\tSTATUS\tEXIT\tACCEPTED\tTOOL\tSANDBOX\tWORKSPACE*\tAGENT*\tCONVERSATION\tINPUT", func(s schemas.CallSummary) string {
				exit := "-"
				if s.ExitCode != nil {
					exit = fmt.Sprint(*s.ExitCode)
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", s.ID, orDash(s.Status), exit, ago(s.Accepted), s.Tool,
					names.of(string(s.Sandbox)), names.of(string(s.Workspace)), names.of(string(s.Agent)),
					printable(string(s.Conversation)), inline(s.Summary))
			})
	})
}

// pages requests one page after the other until it has limit distinct entries or there are no more.
func pages[T any](limit int, page func(limit int, before schemas.CallID) ([]T, schemas.CallID, error), id func(T) string) ([]T, error) {
	const most, tries = 100, 20 // entries of a page; most pages to request, as some may be empty
	var (
		list   []T
		before schemas.CallID
		seen   = map[string]bool{}
	)
	for range tries {
		got, next, err := page(min(limit-len(list), most), before)
		if err != nil {
			return nil, err
		}
		for _, v := range got {
			if !seen[id(v)] {
				seen[id(v)] = true
				list = append(list, v)
			}
		}
		if before = next; next == "" || len(list) >= limit {
			break
		}
	}
	return list, nil
}

type callTarget struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the call."`
}

func (c *callTarget) dial(ctx context.Context, t terminal) (*client.Client, schemas.CallID, error) {
	return dialAbout(ctx, t, &c.gatewayTarget, schemas.CallID(c.ID))
}

type callsShowCommand struct{ callTarget }

// Run shows a call.
func (c *callsShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	state, err := cl.Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case t.json && state.Result != nil:
		return printJSON(t.out, state.Result)
	case t.json:
		return printJSON(t.out, struct {
			ID           schemas.CallID         `json:"id"`
			Conversation schemas.ConversationID `json:"conversation"`
			Status       string                 `json:"status"`
			Approval     schemas.ApprovalID     `json:"approval,omitzero"`
		}{state.ID, state.Conversation, state.Status, state.Approval})
	}
	listed, _, _ := cl.Calls(ctx, client.CallsQuery{ID: id}) // older gateways do not support this query: the lines of the request are then missing
	listed = append(listed, schemas.CallSummary{})
	_, err = io.WriteString(t.out, describeCall(state, listed[0], namesOf(ctx, t, cl)))
	return wrapOutput(err)
}

// describeCall returns a call as text for people: a line for each field, then its output.
func describeCall(s client.State, of schemas.CallSummary, names recordNames) string {
	var d details
	r := cmp.Or(s.Result, &schemas.Result{})
	d.line("call", string(s.ID))
	d.line("status", s.Status)
	d.line("conversation", string(s.Conversation))
	d.line("approval", string(s.Approval))
	d.line("tool", string(cmp.Or(r.Tool, of.Tool)))
	d.line("input", inline(of.Summary))
	for _, record := range []struct{ about, id string }{
		{"sandbox", string(of.Sandbox)}, {"workspace", string(of.Workspace)}, {"agent", string(of.Agent)},
	} {
		if record.id != "" {
			d.line(record.about, names.both(record.id))
		}
	}
	d.at("accepted", of.Accepted)
	if r.Output != nil && r.Tool == schemas.ToolBash {
		d.line("exit code", fmt.Sprint(r.Output.ExitCode))
	}
	if r.Error != nil {
		d.line("error", r.Error.Error())
	}
	if !r.Started.IsZero() {
		d.line("started", dated(r.Started))
		d.line("took", r.Finished.Sub(r.Started).Round(time.Millisecond).String())
	}
	d.line("job", r.StatusID)
	switch {
	case r.Output != nil && r.Tool == schemas.ToolBash:
		d.below(r.Output.Stdout)
		d.below(r.Output.Stderr)
	default:
		d.below(r.Text)
	}
	return d.String()
}

type callsCancelCommand struct {
	callTarget

	Reason string `placeholder:"TEXT" use:"" help:"Reason, recorded in the result."`
}

// Run cancels a call.
func (c *callsCancelCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if err := cl.Cancel(ctx, id, cmp.Or(c.Reason, "cancelled at the command line")); err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]string{"id": string(id), "status": "cancelling"})
	}
	return say(t, "Cancelling %s. See how it ended: sandjet calls show %s", id, id)
}

type conversationsCommand struct {
	LS conversationsListCommand `cmd:"" name:"ls" help:"List conversations, the one with the newest call first."`
}

// Help returns the detailed help, for kong.
func (*conversationsCommand) Help() string {
	return `A conversation holds the events of related calls, such as those of one chat. The list has those with
calls in the last 24 hours; "sandjet tail" prints the events of a conversation for seven days.

Examples:
  sandjet conversations ls
  sandjet tail -f "$(sandjet conversations ls -o name --limit 1)"`
}

type conversationsListCommand struct {
	listTarget

	Limit int `placeholder:"N" default:"20" use:"" help:"Maximum number of results, up to 1000."`
}

// Run lists conversations.
func (c *conversationsListCommand) Run(ctx context.Context, t terminal) error {
	if c.Limit < 1 || c.Limit > mostListed {
		return schemas.Invalidf("limit", "%d is out of range: 1 to %d", c.Limit, mostListed)
	}
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := pages(c.Limit, func(limit int, before schemas.CallID) ([]schemas.ConversationSummary, schemas.CallID, error) {
			return cl.Conversations(ctx, limit, before)
		}, func(s schemas.ConversationSummary) string { return string(s.ID) })
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No conversations in the last 24 hours.",
			"ID\tSTATUS\tLAST CALL\tTOOL\tSANDBOX\tWORKSPACE*\tAGENT*\tCALL*\tINPUT", func(s schemas.ConversationSummary) string {
				c := s.LastCall
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", printable(string(s.ID)), orDash(c.Status), ago(c.Accepted), c.Tool,
					names.of(string(c.Sandbox)), names.of(string(c.Workspace)), names.of(string(c.Agent)), c.ID, inline(c.Summary))
			})
	})
}
