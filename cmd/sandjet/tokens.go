package main

import (
	"context"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type tokensCommand struct {
	Create tokensCreateCommand `cmd:"" help:"Create an attach token for some conversations."`
}

// Help is the long help.
func (*tokensCommand) Help() string {
	return `An attach token is for browsers: it opens WebSockets and event streams of the conversations that it names, and
nothing else, until it ends. It ends early when the account gets another key. Nothing is kept of it.

Examples:
  sandjet attach-tokens create c_1
  sandjet attach-tokens create 'support-*' --op read --op send --ttl 1h
  sandjet attach-tokens create 'support-*' --op send --workspace ws_01… --tool read --tool grep

Calls that are sent with it may be about everything that the account has, unless --workspace, --sandbox, --agent or
--tool say otherwise.`
}

type tokensCreateCommand struct {
	gatewayTarget

	Conversations []string      `arg:"" help:"Conversation ids; a trailing * matches any suffix."`
	Op            []string      `placeholder:"OP" use:"" help:"Permission: read, send, cancel or approve; repeat for more. Default: read."`
	Workspace     []string      `placeholder:"ID" use:"" help:"With send: workspace that calls may use; repeat for more. Default: all."`
	Sandbox       []string      `placeholder:"ID" use:"" help:"Likewise, sandbox."`
	Agent         []string      `placeholder:"ID" use:"" help:"Likewise, agent; calls without one are then refused."`
	Tool          []string      `placeholder:"NAME" use:"" help:"Likewise, tool."`
	TTL           time.Duration `placeholder:"DURATION" default:"15m" use:"" help:"Time to live, up to 24h."`
}

// Run makes a token.
func (c *tokensCreateCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	made, err := cl.AddAttachToken(ctx, client.AttachTokenSpec{
		Conversations: c.Conversations, Ops: c.Op, TTL: schemas.Duration(c.TTL), Workspaces: idsOf[schemas.WorkspaceID](c.Workspace),
		Sandboxes: idsOf[schemas.SandboxID](c.Sandbox), Agents: idsOf[schemas.AgentID](c.Agent), Tools: idsOf[schemas.Tool](c.Tool),
	})
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, made)
	}
	return say(t, "%s", made.Token)
}

func idsOf[T ~string](words []string) []T {
	ids := make([]T, len(words))
	for i, w := range words {
		ids[i] = T(w)
	}
	return ids
}
