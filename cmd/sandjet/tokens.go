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

// Help returns the detailed help, for kong.
func (*tokensCommand) Help() string {
	return `An attach token is for browsers: it opens WebSockets and event streams of the conversations that it names, and
nothing else, until it expires, or until the account gets another key. The server stores nothing about it.

Examples:
  sandjet attach-tokens create c_1
  sandjet attach-tokens create 'support-*' --op read --op send --ttl 1h
  sandjet attach-tokens create 'support-*' --op send --workspace docs --tool read --tool grep

Calls that are sent with it may use everything that the account has, unless --workspace, --sandbox, --agent or
--tool say otherwise.`
}

type tokensCreateCommand struct {
	gatewayTarget

	Conversations []string      `arg:"" help:"Conversation ids; a trailing * matches any suffix."`
	Op            []string      `placeholder:"OP" use:"" help:"Permission: read, send, cancel or approve; repeat for more. Default: read."`
	Workspace     []string      `placeholder:"NAME" use:"" help:"With send: workspace that calls may use, by id or name; repeat for more. Default: all."`
	Sandbox       []string      `placeholder:"NAME" use:"" help:"With send: sandbox that calls may use, by id or name; repeat for more. Default: all."`
	Agent         []string      `placeholder:"NAME" use:"" help:"With send: agent that calls may be made for, by id or name; calls without one are then refused. Default: all."`
	Tool          []string      `placeholder:"NAME" use:"" help:"With send: tool that calls may use; repeat for more. Default: all."`
	TTL           time.Duration `placeholder:"DURATION" default:"15m" use:"" help:"Time to live, up to 24h."`
}

// Run creates a token.
func (c *tokensCreateCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	spec := client.AttachTokenSpec{Conversations: c.Conversations, Ops: c.Op, TTL: schemas.Duration(c.TTL)}
	if spec.Workspaces, err = idsOf[schemas.WorkspaceID](ctx, cl, workspaceKind().id, c.Workspace); err != nil {
		return err
	}
	if spec.Sandboxes, err = idsOf[schemas.SandboxID](ctx, cl, sandboxKind().id, c.Sandbox); err != nil {
		return err
	}
	if spec.Agents, err = idsOf[schemas.AgentID](ctx, cl, agentKind().id, c.Agent); err != nil {
		return err
	}
	for _, name := range c.Tool {
		spec.Tools = append(spec.Tools, schemas.Tool(name))
	}
	made, err := cl.AddAttachToken(ctx, spec)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, made)
	}
	return say(t, "%s", made.Token)
}

// idsOf returns the ids of records that are given by id or name.
func idsOf[T ~string](
	ctx context.Context, cl *client.Client, find func(context.Context, *client.Client, string) (string, error), meant []string,
) ([]T, error) {
	var ids []T
	for _, m := range meant {
		id, err := find(ctx, cl, m)
		if err != nil {
			return nil, err
		}
		ids = append(ids, T(id))
	}
	return ids, nil
}
