package main

import (
	"context"
	"fmt"
	"io"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type approvalsCommand struct {
	LS      approvalsListCommand `cmd:"" name:"ls" help:"List approvals, newest first."`
	Show    approvalsShowCommand `cmd:"" help:"Show an approval with the whole input."`
	Approve approveCommand       `cmd:"" help:"Approve a call."`
	Deny    denyCommand          `cmd:"" help:"Deny a call, with a reason for the model."`
	Grants  grantsCommand        `cmd:"" aliases:"memory" help:"Manage remembered approvals (grants)."`
}

// Help returns the detailed help, for kong.
func (*approvalsCommand) Help() string {
	return `In a sandbox whose permission mode is ask, write, edit and bash need a person's approval; with the mode
edit only bash does. Until then the call waits, for 23 hours at most. The first answer
counts; with --remember it counts for a day for the same agent, tool, workspace and sandbox on the same
conversation, whatever the input. An approved call has its whole time limit from then on; a denied one ends with the reason.

Examples:
  sandjet approvals ls --state pending
  sandjet approvals show appr_01j…
  sandjet approvals approve appr_01j…
  sandjet approvals approve appr_01j… --remember
  sandjet approvals grants ls
  sandjet approvals deny appr_01j… --reason "use the staging database"`
}

// approvalTarget names an approval and the gateway that has it.
type approvalTarget struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the approval."`
}

func (a *approvalTarget) dial(ctx context.Context, t terminal) (*client.Client, schemas.ApprovalID, error) {
	return dialAbout(ctx, t, &a.gatewayTarget, schemas.ApprovalID(a.ID))
}

type approvalsListCommand struct {
	listTarget

	State        string `placeholder:"STATE" use:"" help:"Only approvals in this state: pending, approved, denied, cancelled or expired. Default: all."`
	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only approvals of this conversation (id)."`
	Limit        int    `placeholder:"N" default:"50" use:"" help:"Maximum number of results, up to 100."`
}

// Run lists approvals.
func (c *approvalsListCommand) Run(ctx context.Context, t terminal) error {
	const most = 100
	if c.Limit < 1 || c.Limit > most {
		return schemas.Invalidf("limit", "%d is out of range: 1 to %d", c.Limit, most)
	}
	q := client.ApprovalsQuery{Conversation: schemas.ConversationID(c.Conversation), Limit: c.Limit}
	if c.State != "" {
		var err error
		if q.State, err = schemas.ParseApprovalState(c.State); err != nil {
			return err
		}
	}
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Approvals().List(ctx, q)
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No approvals.",
			"ID\tSTATE\tASKED\tTOOL\tSANDBOX\tWORKSPACE*\tAGENT*\tCALL*\tCONVERSATION\tINPUT", func(a schemas.Approval) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", a.ID, a.State, ago(a.Requested), a.Call.Tool,
					names.of(string(a.Call.Sandbox)), names.of(string(a.Call.Workspace)), names.of(string(a.Call.Agent)), a.Call.ID,
					printable(string(a.Call.Conversation)), inline(visibleInput(a.Call.Tool, a.Call.Input)))
			})
	})
}

type approvalsShowCommand struct{ approvalTarget }

// Run shows one approval.
func (c *approvalsShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	a, err := cl.Approvals().Get(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case t.json:
		return printJSON(t.out, a)
	case t.names:
		return printID(t, a)
	}
	_, err = io.WriteString(t.out, describeApproval(a, namesOf(ctx, t, cl)))
	return wrapOutput(err)
}

// describeApproval returns what a person must know to answer: a line for each field, and the whole input.
func describeApproval(a schemas.Approval, names recordNames) string {
	var d details
	d.line("approval", string(a.ID))
	d.line("state", string(a.State))
	if a.State == schemas.ApprovalPending {
		d.line("until", dated(a.Expires))
	} else {
		d.line("answered", dated(a.Decided)+", by "+a.DecidedBy)
	}
	d.line("reason", a.Reason)
	d.line("asked", dated(a.Requested))
	d.line("call", string(a.Call.ID))
	d.line("conversation", string(a.Call.Conversation))
	d.line("sandbox", names.both(string(a.Call.Sandbox))+" at "+a.Call.Provider)
	d.line("workspace", names.both(string(a.Call.Workspace)))
	d.line("tool", string(a.Call.Tool))
	if string(a.Call.Input) == "null" {
		d.line("input", fmt.Sprintf("%d bytes, which are no longer kept", a.InputSize))
		return d.String()
	}
	fmt.Fprintf(&d, "\n%s\n", visibleInput(a.Call.Tool, a.Call.Input))
	return d.String()
}

type approveCommand struct {
	approvalTarget

	Reason   string `placeholder:"TEXT" use:"" help:"Reason, for the record."`
	Remember bool   `use:"" help:"Approve this tool on this conversation for a day, without asking again."`
}

// Run approves a call.
func (c *approveCommand) Run(ctx context.Context, t terminal) error {
	if c.Remember {
		return c.answer(ctx, t, client.Approvals.ApproveAll, c.Reason)
	}
	return c.answer(ctx, t, client.Approvals.Approve, c.Reason)
}

type denyCommand struct {
	approvalTarget

	Reason string `placeholder:"TEXT" use:"" help:"Reason; the model reads it."`
}

// Run denies a call.
func (c *denyCommand) Run(ctx context.Context, t terminal) error {
	return c.answer(ctx, t, client.Approvals.Deny, c.Reason)
}

// answer approves or denies the call, as give does, and prints the result.
func (a *approvalTarget) answer(ctx context.Context, t terminal,
	give func(client.Approvals, context.Context, schemas.ApprovalID, string) (schemas.Approval, error), reason string,
) error {
	cl, id, err := a.dial(ctx, t)
	if err != nil {
		return err
	}
	got, err := give(cl.Approvals(), ctx, id, reason)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, got)
	}
	return say(t, "%s is %s: call %s on conversation %s", id, got.State, got.Call.ID, got.Call.Conversation)
}
