package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/mcp"
	"github.com/sandjet/sandjet/schemas"
)

type mcpCommand struct {
	Serve   mcpServeCommand   `cmd:"" default:"withargs" help:"Serve one client on stdin and stdout. The default: \"sandjet mcp\" alone does it."`
	Install mcpInstallCommand `cmd:"" help:"Print, or write, what a client program needs to start it."`
}

// Help returns the detailed help, for kong.
func (*mcpCommand) Help() string {
	return `A server of the Model Context Protocol: programs such as Claude Code, Claude Desktop, Cursor, VS Code and Codex use
Sandjet's tools by it. They start "sandjet mcp" themselves; "sandjet mcp install" says, or writes, how.

A gateway serves the same at /mcp for clients that speak HTTP.

Examples:
  sandjet mcp install claude-code             print what to put where
  sandjet mcp install claude-code --write     put it there
  sandjet mcp serve --help                    the settings of the server`
}

type mcpServeCommand struct {
	target

	Start        bool          `name:"up" use:"" help:"Start everything in this process, as \"sandjet up\" does, unless it runs on the data folder already."`
	Agent        string        `placeholder:"NAME" use:"" help:"Agent that makes the calls (id or name): its tools are shown, and its settings decide. Default: all tools."`
	Workspace    string        `short:"w" placeholder:"NAME" use:"" help:"Workspace with the files. Default: \"default\", or the agent's first."`
	Conversation string        `short:"c" placeholder:"ID" use:"" help:"Conversation for the events of calls. Default: one for this folder, agent and workspace."`
	Wait         time.Duration `placeholder:"DURATION" default:"45s" use:"" help:"How long a client is kept waiting for a result, at most 10m. A call that takes longer continues."`

	dir    string
	config string
}

// Help returns the detailed help, for kong.
func (*mcpServeCommand) Help() string {
	return `Speaks the Model Context Protocol on stdin and stdout, for the client program that started it; logs are on stderr.
Without --up it needs a Sandjet that runs: the one of the data folder, or the one of --url with SANDJET_KEY.
With --up it is everything in one process, on ports of its own; other commands find it by the data folder.

It ends when its stdin is closed, or at Ctrl-C. Calls that run are kept on the log and go on: with --up when
Sandjet is started again on the data folder.

Keep --wait below the client's time-out. A call that is not done by then goes on; the client is told how to ask for its
result, by a task if it knows tasks, else by the tool async_status.

Examples:
  sandjet mcp --up
  sandjet mcp --agent reviewer --workspace docs
  SANDJET_KEY=sk_… sandjet mcp --url https://sandjet.example.com`
}

// AfterApply is called by kong once everything is parsed.
func (c *mcpServeCommand) AfterApply(root *cli) error {
	c.dir, c.config = root.DataDir, root.Config
	if !c.Start {
		c.dir = clientDir(root.DataDir)
	}
	return nil
}

const (
	leastMCPWait = time.Second
	mostMCPWait  = schemas.MaxTimeout
)

// Run serves until the client or ctx ends.
func (c *mcpServeCommand) Run(ctx context.Context, t terminal) error {
	if c.Wait < leastMCPWait || c.Wait > mostMCPWait {
		return schemas.Invalidf("wait", "%s is out of range: %s to %s", c.Wait, leastMCPWait, mostMCPWait)
	}
	if !c.Start {
		return c.serve(ctx, t)
	}
	if c.URL != "" {
		return schemas.Invalidf("up", "starts a Sandjet here, and --url names one elsewhere: leave one of them out")
	}
	n, err := c.everything(ctx, t)
	if errors.Is(err, schemas.ErrConflict) { // another process runs on the data folder
		t.log.Info("Sandjet runs on the data folder already: it is used", "folder", c.dir)
		return c.serve(ctx, t)
	}
	if err != nil {
		return err
	}
	defer n.close()
	return c.beside(ctx, t, n)
}

// everything builds the node that "sandjet up" would run, with the settings of up but on free ports. Code conflict: one runs on the data
// folder already.
func (c *mcpServeCommand) everything(ctx context.Context, t terminal) (*node, error) {
	args := []string{"up", "--data-dir", c.dir, "--listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"}
	if c.config != "" {
		args = append(args, "--config", c.config)
	}
	p, err := parse(args, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	up, ok := p.command.(*upCommand)
	if !ok {
		return nil, schemas.Errorf(schemas.Internal, "up is another command")
	}
	return up.build(ctx, t)
}

// beside runs the node and serves the client until one of them ends, and then stops the other, so that no client waits for a node that has
// ended. It returns the node's error, or else that of serving.
func (c *mcpServeCommand) beside(ctx context.Context, t terminal, n *node) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ran := make(chan error, 1)
	go func() {
		defer end()
		ran <- n.run(ctx)
	}()
	err := c.serve(ctx, t)
	end()
	if rerr := <-ran; rerr != nil {
		return rerr
	}
	return err
}

// serve speaks the protocol on stdin and stdout, and makes the calls at a gateway.
func (c *mcpServeCommand) serve(ctx context.Context, t terminal) error {
	dir := c.dir
	cl, err := c.open(ctx, dir, t.err)
	if err != nil {
		return err
	}
	agent, err := c.agent(ctx, cl)
	if err != nil {
		return err
	}
	me, err := cl.Accounts().Get(ctx, client.Me)
	if err != nil {
		return err
	}
	s := mcp.New(mcp.Options{Version: readBuild().Version, Log: t.log.With("part", "mcp"), Wait: c.Wait})
	scope := mcp.Scope{
		Account: me.ID, Agent: agent, Workspace: c.Workspace, Conversation: schemas.ConversationID(c.Conversation),
		Caller: mcpClient{cl, c.Wait},
	}
	if scope.Conversation == "" {
		if scope.Conversation, err = conversationHere(agent, c.Workspace); err != nil {
			return err
		}
	} else if err := scope.Conversation.Validate(); err != nil {
		return err
	}
	if err := s.RunStdio(ctx, scope, cancellable(ctx, t.in), unguarded(t.out)); err != nil {
		return fmt.Errorf("serve the client: %w", err)
	}
	return nil
}

// agent returns the id of the agent that --agent names; empty if it names none. Code: not_found.
func (c *mcpServeCommand) agent(ctx context.Context, cl *client.Client) (schemas.AgentID, error) {
	if c.Agent == "" {
		return "", nil
	}
	list, err := cl.Agents(client.Me).List(ctx)
	if err != nil {
		return "", err
	}
	for _, a := range list {
		if string(a.ID) == c.Agent || a.Name == c.Agent {
			return a.ID, nil
		}
	}
	return "", &schemas.Error{Code: schemas.NotFound, Field: "agent", Message: "there is no agent " + schemas.Quotable(c.Agent)}
}

// conversationHere returns the default conversation of this folder, agent and workspace. It is the same each time that a client starts the
// command, so that a repeated call is found.
func conversationHere(agent schemas.AgentID, workspace string) (schemas.ConversationID, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("name the conversation: %w", err)
	}
	const bytes = 8
	sum := sha256.Sum256([]byte(at + "\x00" + string(agent) + "\x00" + workspace))
	return schemas.ConversationID("mcp-" + hex.EncodeToString(sum[:bytes])), nil
}

// cancellable returns a reader of from that ends with io.EOF when ctx ends. Its goroutine may still block in a read then; it ends with the
// process.
func cancellable(ctx context.Context, from io.Reader) io.Reader {
	r, w := io.Pipe()
	read := make(chan struct{}) // nothing waits for it: a read of stdin ends with the process
	go func() {
		defer close(read)
		_, err := io.Copy(w, from)
		_ = w.CloseWithError(err) // it always returns nil
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(io.EOF) })
	return r
}
