package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type accountsCommand struct {
	Me     accountsMeCommand     `cmd:"" help:"Show the account of the key in use."`
	Rotate accountsRotateCommand `cmd:"" help:"Give an account a new key."`
	NATS   accountsNATSCommand   `cmd:"" name:"nats-creds" help:"Print a short-lived credential for the account's own NATS clients."`
	Create accountsCreateCommand `cmd:"" help:"Create an account (admin key)."`
	LS     accountsListCommand   `cmd:"" name:"ls" help:"List accounts (admin key)."`
	Usage  accountsUsageCommand  `cmd:"" help:"Show an account's storage on the log and its limits."`
	RM     accountsRemoveCommand `cmd:"" name:"rm" help:"Remove an account with all its records."`
}

// Help returns the detailed help, for kong.
func (*accountsCommand) Help() string {
	return `An account is a tenant with sandboxes, workspaces and a key of its own. The administrator is the holder of
the key that the gateway was started with: --admin-key, or better SANDJET_ADMIN_KEY, there and here.

Examples:
  SANDJET_ADMIN_KEY=… sandjet accounts create --name acme
  SANDJET_KEY=sk_… sandjet accounts rotate --overlap 1h
  sandjet accounts me
  sandjet accounts usage`
}

// adminTarget is a gateway that is called with the administrator's key if one is set.
type adminTarget struct {
	gatewayTarget
	adminFlag
}

func (a *adminTarget) dial(ctx context.Context, t terminal) (*client.Client, error) {
	g := a.gatewayTarget
	g.Key = cmp.Or(a.AdminKey, g.Key)
	return g.dial(ctx, t)
}

// dialFor connects for a command on one account. Without an id that is the account of the key in use, and the administrator's key is not
// needed.
func (a *adminTarget) dialFor(ctx context.Context, t terminal, id string) (*client.Client, error) {
	if id == "" {
		return a.gatewayTarget.dial(ctx, t)
	}
	return a.dial(ctx, t)
}

type accountsMeCommand struct{ gatewayTarget }

// Run shows the account.
func (c *accountsMeCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	a, err := cl.Accounts().Get(ctx, client.Me)
	return printRecord(t, a, err)
}

type accountsCreateCommand struct {
	adminTarget

	Name        string `placeholder:"TEXT" use:"" help:"Name for people; need not be unique."`
	Description string `placeholder:"TEXT" use:"" help:"Free-text description."`
}

// Run creates an account.
func (c *accountsCreateCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	a, key, err := cl.Accounts().Add(ctx, schemas.AccountSpec{Name: c.Name, Description: c.Description})
	if err != nil {
		return err
	}
	return printKey(t, a.ID, key)
}

// printKey prints a new key, which cannot be shown again.
func printKey(t terminal, a schemas.AccountID, key string) error {
	if t.json {
		return printJSON(t.out, map[string]any{"account": a, "secret": key})
	}
	return say(t, "account  %s\nkey      %s\nThe key is shown only now: keep it, and use it by SANDJET_KEY.", a, key)
}

type accountsRotateCommand struct {
	adminTarget

	ID      string        `arg:"" optional:"" help:"Account id. Default: the account of the key in use."`
	Overlap time.Duration `placeholder:"DURATION" use:"" help:"How long the old key keeps working. Default: it stops at once."`
}

// Run gives an account a new key.
func (c *accountsRotateCommand) Run(ctx context.Context, t terminal) error {
	if c.Overlap < 0 {
		return schemas.Invalidf("overlap", "%s is out of range: write how long both keys work, such as 1h, or 0; at most a week", c.Overlap)
	}
	cl, err := c.dialFor(ctx, t, c.ID)
	if err != nil {
		return err
	}
	a, err := cl.Accounts().Get(ctx, cmp.Or(schemas.AccountID(c.ID), client.Me))
	if err != nil {
		return err
	}
	key, err := cl.Accounts().RotateKey(ctx, cmp.Or(schemas.AccountID(c.ID), client.Me), c.Overlap)
	if err != nil {
		return err
	}
	return printKey(t, a.ID, key)
}

type accountsListCommand struct {
	adminTarget
	watchFlag
}

// Run lists the accounts.
func (c *accountsListCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	return c.repeat(ctx, t, func(ctx context.Context, t terminal) error {
		list, err := cl.Accounts().List(ctx)
		if err != nil {
			return err
		}
		return printList(t, list, "No accounts.", "ID\tNAME\tCREATED\tDESCRIPTION", func(a schemas.AccountDocument) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s", a.ID, orDash(printable(a.Name)), ago(a.Created), orDash(short(a.Description)))
		})
	})
}

type accountsUsageCommand struct {
	adminTarget

	ID string `arg:"" optional:"" help:"Account id. Default: the account of the key in use."`
}

// Run shows what an account stores on the log, and its limits.
func (c *accountsUsageCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dialFor(ctx, t, c.ID)
	if err != nil {
		return err
	}
	u, err := cl.Accounts().Usage(ctx, cmp.Or(schemas.AccountID(c.ID), client.Me))
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, u)
	}
	type row struct {
		name  string
		have  schemas.Amount
		limit int64
	}
	log := schemas.Amount{Bytes: u.Calls.Bytes + u.Events.Bytes, Messages: u.Calls.Messages + u.Events.Messages}
	return printTable(t, []row{
		{"calls", u.Calls, -1}, {"events", u.Events, -1}, {"calls and events", log, u.LogLimit}, {"durable streams", u.Durable, u.DurableLimit},
		{"records", u.Records, u.RecordsLimit},
	}, "STORED\tSIZE\tLIMIT\tMESSAGES", func(r row) string {
		limit := "none"
		switch {
		case r.limit < 0:
			limit = ""
		case r.limit > 0:
			limit = byteSize(r.limit).String()
		}
		return fmt.Sprintf("%s\t%s\t%s\t%d", r.name, byteSize(r.have.Bytes), limit, r.have.Messages)
	})
}

type accountsRemoveCommand struct {
	adminTarget

	ID string `arg:"" help:"Id of the account."`
}

// Run removes an account.
func (c *accountsRemoveCommand) Run(ctx context.Context, t terminal) error {
	if err := schemas.AccountID(c.ID).Validate(); err != nil {
		return err
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	n, err := cl.Accounts().Remove(ctx, schemas.AccountID(c.ID))
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, struct {
			ID string `json:"id"`
			schemas.RemovedRecords
		}{c.ID, n})
	}
	return say(t, "Removed %s with %s, %s, %s, %s, %s, %s, %s and %s.", c.ID, count(n.Sandboxes, "sandbox", "sandboxes"),
		count(n.Workspaces, "workspace"), count(n.Models, "model"), count(n.Agents, "agent"),
		count(n.Variables, "variable"), count(n.Webhooks, "webhook"),
		count(n.Channels, "channel"), count(n.Skills, "skill"))
}
