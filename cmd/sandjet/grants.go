package main

import (
	"context"
	"fmt"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type grantsCommand struct {
	LS grantsListCommand   `cmd:"" name:"ls" help:"List remembered approvals."`
	RM grantsRemoveCommand `cmd:"" name:"rm" help:"Forget a remembered approval."`
}

type grantsListCommand struct {
	listTarget

	Conversation string `short:"c" placeholder:"ID" use:"" help:"Only approvals of this conversation (id)."`
}

// Run lists remembered approvals.
func (c *grantsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Approvals().Grants(ctx, schemas.ConversationID(c.Conversation))
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No remembered approvals.",
			"ID\tENDS\tTOOL\tSANDBOX\tWORKSPACE*\tAGENT\tAPPROVAL*\tDECIDED BY*\tCONVERSATION", func(m schemas.ApprovalGrant) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", m.ID, ago(m.Expires), m.Tool, names.of(string(m.Sandbox)),
					names.of(string(m.Workspace)), names.of(string(m.Agent)), m.Approval, orDash(printable(m.DecidedBy)),
					printable(string(m.Conversation)))
			})
	})
}

type grantsRemoveCommand struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the remembered approval."`
}

// Run forgets a remembered approval.
func (c *grantsRemoveCommand) Run(ctx context.Context, t terminal) error {
	if err := schemas.ValidateApprovalGrantID(c.ID); err != nil {
		return err
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if err := cl.Approvals().RevokeGrant(ctx, c.ID); err != nil {
		return err
	}
	return say(t, "Removed %s", c.ID)
}
