package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

type grantsCommand struct {
	LS grantsListCommand   `cmd:"" name:"ls" help:"List remembered approvals."`
	RM grantsRemoveCommand `cmd:"" name:"rm" help:"Forget a remembered approval."`
}

type grantsListCommand struct {
	gatewayTarget

	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only those of this conversation id."`
}

// Run lists remembered approvals.
func (c *grantsListCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	list, err := cl.Remembered(ctx, schemas.ConversationID(c.Conversation))
	if err != nil {
		return err
	}
	if t.json {
		return printEach(t, list)
	}
	if len(list) == 0 {
		return say(t, "There are no remembered approvals.")
	}
	const gap = 2
	w := tabwriter.NewWriter(t.out, 0, 0, gap, ' ', 0)
	fmt.Fprintln(w, "ID\tTOOL\tCONVERSATION\tAGENT\tSANDBOX\tUNTIL\tAPPROVAL")
	for _, m := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, m.Tool, m.Conversation, m.Agent, m.Sandbox, m.Expires.Local().Format(time.DateTime), m.Approval)
	}
	return wrapOutput(w.Flush())
}

type grantsRemoveCommand struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the remembered approval."`
}

// Run forgets a remembered approval.
func (c *grantsRemoveCommand) Run(ctx context.Context, t terminal) error {
	if err := schemas.ValidateRemembered(c.ID); err != nil {
		return err
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if err := cl.Forget(ctx, c.ID); err != nil {
		return err
	}
	return say(t, "Removed %s", c.ID)
}
