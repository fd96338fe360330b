package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type grantsCommand struct {
	LS grantsListCommand   `cmd:"" name:"ls" help:"List remembered approvals."`
	RM grantsRemoveCommand `cmd:"" name:"rm" help:"Forget a remembered approval."`
}

type grantsListCommand struct {
	listTarget

	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only those of this conversation id."`
}

// Run lists remembered approvals.
func (c *grantsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Remembered(ctx, schemas.ConversationID(c.Conversation))
		if err != nil {
			return err
		}
		return printList(t, list, "There are no remembered approvals.", "ID\tTOOL\tCONVERSATION\tAGENT\tSANDBOX\tUNTIL\tAPPROVAL", func(m schemas.Remembered) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", m.ID, m.Tool, printable(string(m.Conversation)), orDash(string(m.Agent)), orDash(string(m.Sandbox)),
				m.Expires.Local().Format(time.DateTime), m.Approval)
		})
	})
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
