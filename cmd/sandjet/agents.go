package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/tools"
)

type agentsCommand struct {
	LS     agentsListCommand   `cmd:"" name:"ls" help:"List agents."`
	Show   agentsShowCommand   `cmd:"" help:"Show an agent."`
	Create agentsCreateCommand `cmd:"" help:"Create an agent."`
	Set    agentsSetCommand    `cmd:"" help:"Change an agent."`
	RM     agentsRemoveCommand `cmd:"" name:"rm" help:"Remove an agent. Calls that name it fail from then on."`
	Tools  agentsToolsCommand  `cmd:"" help:"Print an agent's tools, ready for a model's API."`
}

// Help returns the detailed help, for kong.
func (*agentsCommand) Help() string {
	return `An agent says which workspaces a model sees, where its commands run in each, which tools it has, and which model is asked.
In a workspace without a sandbox only file tools that read are allowed. Forbidden calls are denied without an approval.

Examples:
  sandjet agents create writer --sandbox build --workspace docs
  sandjet agents create reader --workspace docs=docs:none
  sandjet agents create both --sandbox build --workspace docs=docs:none --workspace src
  sandjet agents set reader --file tools.yaml      config: {tools: {glob: {enabled: false}}}
  sandjet agents tools reader --format openai
  sandjet agents set writer --model main --system 'Write briefly.' --budget 200000
  sandjet call --agent reader read notes.txt`
}

// agentFlags are the settings of an agent.
type agentFlags struct {
	fileFlag

	Sandbox    *string  `placeholder:"ID" use:"" help:"Default sandbox for all workspaces (id or name); empty for none."`
	Workspaces []string `name:"workspace" placeholder:"NAME=ID" sep:"none" use:"" help:"Workspace (id or name) that the agent sees, as NAME; NAME alone means the workspace of that name. With :SANDBOX its commands run in that sandbox; with :none it has no commands. Repeat for more; the flags replace the whole list."`
	Skills     []string `name:"skill" placeholder:"NAME" sep:"none" use:"" help:"Skill that the model may load. Repeat for more; the flags replace the whole list; empty for none."`
	Model      *string  `placeholder:"ID" use:"" help:"Model (id or name) that is asked; empty for none, so that a harness of your own asks one."`
	Fallback   []string `placeholder:"ID" sep:"none" use:"" help:"Model (id or name) that is asked when the one before is overloaded. Repeat for more; the flags replace the whole list; empty for none."`
	System     *string  `placeholder:"TEXT" use:"" help:"Task and rules of the model; empty for none."`
	MaxSteps   int      `placeholder:"N" use:"" help:"How often a turn may ask the model. Default: 50."`
	Budget     int64    `placeholder:"TOKENS" use:"" help:"Tokens that a turn may use, read and written."`
}

// body returns the request body that the file and the flags describe. Names of records are resolved to ids.
func (f agentFlags) body(ctx context.Context, cl *client.Client, stdin io.Reader) (body, error) {
	b, err := f.read(stdin)
	if err != nil {
		return nil, err
	}
	switch {
	case f.Sandbox == nil:
	case *f.Sandbox == "":
		b.at("config")["sandbox"] = nil
	default:
		if b.at("config")["sandbox"], err = sandboxKind().id(ctx, cl, *f.Sandbox); err != nil {
			return nil, err
		}
	}
	if err := f.turns(ctx, cl, b); err != nil {
		return nil, err
	}
	if len(f.Skills) > 0 {
		b.at("config")["skills"] = slices.DeleteFunc(slices.Clone(f.Skills), func(s string) bool { return s == "" })
	}
	if len(f.Workspaces) == 0 {
		return b, nil
	}
	list := []any{}
	for _, text := range slices.DeleteFunc(slices.Clone(f.Workspaces), func(s string) bool { return s == "" }) {
		entry, err := agentWorkspace(ctx, cl, text)
		if err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	b.at("config")["workspaces"] = list
	return b, nil
}

// turns writes the flags about the agent's turns (model, fallbacks, system text, limits) into b.
func (f agentFlags) turns(ctx context.Context, cl *client.Client, b body) error {
	switch {
	case f.Model == nil:
	case *f.Model == "":
		b.at("config")["turns"] = nil
		return nil
	default:
		id, err := modelKind().id(ctx, cl, *f.Model)
		if err != nil {
			return err
		}
		put(b, id, "config", "turns", "model")
	}
	if len(f.Fallback) > 0 {
		list := []string{}
		for _, meant := range slices.DeleteFunc(slices.Clone(f.Fallback), func(s string) bool { return s == "" }) {
			id, err := modelKind().id(ctx, cl, meant)
			if err != nil {
				return err
			}
			list = append(list, id)
		}
		b.at("config", "turns")["fallback"] = list
	}
	if f.System != nil {
		b.at("config", "turns")["system"] = *f.System
	}
	put(b, f.MaxSteps, "config", "turns", "maxSteps")
	put(b, f.Budget, "config", "turns", "budget", "tokens")
	return nil
}

// agentWorkspace parses a value of --workspace: NAME or NAME=WORKSPACE, each optionally followed by :SANDBOX or :none. It returns the
// entry of the agent's configuration.
func agentWorkspace(ctx context.Context, cl *client.Client, text string) (map[string]any, error) {
	text, sandbox, placed := strings.Cut(text, ":")
	name, workspace, ok := strings.Cut(text, "=")
	if !ok {
		workspace = name
	}
	id, err := workspaceKind().id(ctx, cl, workspace)
	if err != nil {
		return nil, err
	}
	entry := map[string]any{"name": name, "workspaceId": id}
	switch {
	case !placed:
	case sandbox == "none":
		entry["sandbox"] = nil
	default:
		if entry["sandbox"], err = sandboxKind().id(ctx, cl, sandbox); err != nil {
			return nil, err
		}
	}
	return entry, nil
}

type agentsListCommand struct{ listTarget }

// Run lists the agents.
func (c *agentsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Agents(client.Me).List(ctx)
		if err != nil {
			return err
		}
		names := namesOf(ctx, t, cl)
		return printList(t, list, "No agents.", "ID\tNAME\tCREATED\tSANDBOX\tWORKSPACES\tMANIFEST*\tDESCRIPTION",
			func(g schemas.AgentDocument) string {
				seen := make([]string, len(g.Config.Workspaces))
				for i, w := range g.Config.Workspaces {
					seen[i] = w.Name
				}
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", g.ID, printable(g.Name), ago(g.Created), names.of(string(g.Config.Sandbox)),
					orDash(printable(strings.Join(seen, ", "))), orDash(printable(g.Manifest)), orDash(short(g.Description)))
			})
	})
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

type agentsShowCommand struct{ recordArg }

// Run shows an agent.
func (c *agentsShowCommand) Run(ctx context.Context, t terminal) error {
	return agentKind().show(ctx, t, c.recordArg)
}

type agentsCreateCommand struct {
	gatewayTarget
	agentFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run creates an agent.
func (c *agentsCreateCommand) Run(ctx context.Context, t terminal) error {
	return agentKind().create(ctx, t, c.gatewayTarget, c.Name, c.body)
}

type agentsSetCommand struct {
	recordArg
	agentFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes an agent.
func (c *agentsSetCommand) Run(ctx context.Context, t terminal) error {
	return agentKind().set(ctx, t, c.recordArg, c.Name, c.body)
}

type agentsRemoveCommand struct{ recordArg }

// Run removes an agent.
func (c *agentsRemoveCommand) Run(ctx context.Context, t terminal) error {
	return agentKind().remove(ctx, t, c.recordArg)
}

type agentsToolsCommand struct {
	recordArg

	Format  string `placeholder:"NAME" use:"" help:"API format: anthropic (default), openai, openai-strict, openai-responses or mcp."`
	Dialect string `placeholder:"NAME" use:"" help:"Dialect, the wording and defaults of the tools: claude (default) or deepagents."`
}

// Run prints the tools of an agent as JSON.
func (c *agentsToolsCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := agentKind().find(ctx, t, c.recordArg)
	if err != nil {
		return err
	}
	list, err := cl.AgentTools(ctx, client.Me, id, c.Format, schemas.Dialect(c.Dialect))
	if err != nil {
		return err
	}
	return printJSON(t.out, list)
}

func agentKind() kind[schemas.AgentDocument] {
	return kind[schemas.AgentDocument]{
		"agent", schemas.AgentPrefix, func(cl *client.Client) client.Records[schemas.AgentDocument] { return cl.Agents(client.Me) },
		func(g schemas.AgentDocument) (id, name string) { return string(g.ID), g.Name },
	}
}

// agentTools returns the tool definitions that an agent with this visibility has, in an API's format.
func agentTools(e schemas.ToolVisibility, format string, d schemas.Dialect) (any, error) {
	list, err := tools.Visible(d, e)
	if err != nil {
		return nil, err
	}
	return tools.Write(tools.Format(format), list)
}
