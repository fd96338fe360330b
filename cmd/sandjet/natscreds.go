package main

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type accountsNATSCommand struct {
	gatewayTarget

	TTL    time.Duration `name:"ttl" placeholder:"DURATION" default:"1h" use:"" help:"Time to live: 1m to 24h."`
	Format string        `placeholder:"FORMAT" default:"env" enum:"env,json,nats-context,url" use:"" help:"env (lines for a shell), json, nats-context (a file of ~/.config/nats/context) or url."`
}

// Help returns the detailed help, for kong.
func (*accountsNATSCommand) Help() string {
	return `A credential with which the account's own NATS clients connect: it may publish calls of this account,
answer its approvals and hear its events, and nothing else. It ends at its time, or with the account's key,
and then ends the connections that were made with it: at once on the embedded server, within 15 minutes
on others. The account's id and key themselves open the server as well, for as long as they work.

Examples:
  eval "$(sandjet accounts nats-creds)"          NATS_URL, NATS_USER and NATS_PASSWORD
  sandjet accounts nats-creds --format nats-context > ~/.config/nats/context/sandjet.json
  nats --context sandjet sub "sandjet.live.$NATS_USER.>"`
}

// natsContext is a context file of the nats command.
type natsContext struct {
	Description string `json:"description"`
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	InboxPrefix string `json:"inbox_prefix"`
}

// Run prints a credential.
func (c *accountsNATSCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	cred, err := cl.Accounts().NATSCredential(ctx, client.Me, c.TTL)
	if err != nil {
		return err
	}
	format := c.Format
	if t.json {
		format = "json"
	}
	return printNATS(t, format, cred)
}

// printNATS prints a credential. Its values need no quotes in a shell and no escapes in a URL. Code unavailable: the gateway does not know
// the server's URL.
func printNATS(t terminal, format string, cred schemas.NATSCredential) error {
	if cred.URL == "" && format != "json" {
		return schemas.Errorf(schemas.Unavailable,
			"the gateway does not know where clients reach the NATS server: start it with --nats-public-url, or use --format json")
	}
	switch format {
	case "json":
		return printJSON(t.out, cred)
	case "nats-context":
		return printJSON(t.out, natsContext{"Sandjet, until " + cred.Expires.Format(time.RFC3339), cred.URL, cred.User,
			cred.Password, cred.InboxPrefix})
	case "url":
		return say(t, "%s", credentials(cred.URL, cred.User, cred.Password))
	}
	return say(t, "export NATS_URL=%s\nexport NATS_USER=%s\nexport NATS_PASSWORD=%s\nexport NATS_INBOX_PREFIX=%s",
		cred.URL, cred.User, cred.Password, cred.InboxPrefix)
}
