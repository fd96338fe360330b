package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/sandjet/sandjet/schemas"
)

// cli is the grammar: every command with its flags. A flag that is a setting rather than part of one
// use (it has no tag use) is also a key of the configuration file and, in capitals after SANDJET_, a
// variable of the environment, under the same name and with the same meaning in every command.
type cli struct {
	Config   string     `placeholder:"FILE" help:"YAML file with settings, see deploy/sandjet.example.yaml. Also SANDJET_CONFIG." use:""`
	DataDir  string     `placeholder:"DIR" default:"./.sandjet" help:"Folder for the log, workspaces and credentials."`
	JSON     bool       `name:"json" help:"Print JSON, one value per line."`
	Output   string     `short:"o" placeholder:"FORMAT" default:"table" enum:"table,wide,json,yaml,name" help:"Format: table, wide (all columns), json (as --json), yaml, or name (the first column alone)." use:""`
	LogLevel slog.Level `placeholder:"LEVEL" default:"info" help:"Minimum log level on stderr: debug, info, warn or error."`

	Commands any `embed:""` // a pointer to commands, or to a struct with one of them: see commandsFor

	ShowVersion versionFlag `name:"version" short:"V" help:"Print the version." use:""`
}

// commands are all commands.
type commands struct {
	Demo          demoCommand          `cmd:"" help:"Take a tour: calls, a crash and its recovery, in a temporary folder."`
	Up            upCommand            `cmd:"" help:"Run everything in one process, with an embedded NATS server."`
	Call          callCommand          `cmd:"" help:"Run one tool call and wait for its result."`
	Calls         callsCommand         `cmd:"" help:"List, show and cancel calls."`
	Conversations conversationsCommand `cmd:"" help:"List conversations."`
	Jobs          jobsCommand          `cmd:"" help:"List, follow, stop and wait for background jobs."`
	AttachTokens  tokensCommand        `cmd:"" name:"attach-tokens" aliases:"tokens" help:"Create attach tokens: short-lived credentials for browsers."`
	Approvals     approvalsCommand     `cmd:"" help:"List, approve and deny calls that wait for a person."`
	MCP           mcpCommand           `cmd:"" name:"mcp" help:"Serve programs that speak the Model Context Protocol, and set them up."`
	Sandboxes     sandboxesCommand     `cmd:"" help:"List, create, change and remove sandboxes."`
	Files         filesCommand         `cmd:"" help:"Copy, list and remove files of workspaces."`
	Artifacts     artifactsCommand     `cmd:"" help:"List, download and remove files that calls have left for people."`
	Workspaces    workspacesCommand    `cmd:"" help:"List, create, change and remove workspaces."`
	Agents        agentsCommand        `cmd:"" help:"List, create, change and remove agents, and show their tools."`
	Models        modelsCommand        `cmd:"" help:"List, create, change and remove language models that agents ask."`
	Skills        skillsCommand        `cmd:"" help:"Add, list, download and remove skills that agents load."`
	Apply         applyCommand         `cmd:"" help:"Create and update sandboxes, workspaces, models and agents from a manifest."`
	Diff          diffCommand          `cmd:"" help:"Show what applying a manifest would change."`
	Dev           devCommand           `cmd:"" help:"Apply a manifest whenever its files change."`
	Variables     variablesCommand     `cmd:"" aliases:"env" help:"Set, list and remove variables (secrets too) that sandboxes refer to."`
	Accounts      accountsCommand      `cmd:"" help:"List, create and remove accounts, and rotate their keys."`
	Webhooks      webhooksCommand      `cmd:"" help:"Post events to URLs: webhook endpoints and their deliveries."`
	Channels      channelsCommand      `cmd:"" help:"List, create, change and remove chat channels: your bots at chat services."`
	Tail          tailCommand          `cmd:"" help:"Print the events of a conversation."`
	Secrets       secretsCommand       `cmd:"" help:"Show and rotate the keys that encrypt secrets in the log."`
	Dead          deadCommand          `cmd:"" help:"List, show and redrive dead letters: messages that failed for good."`
	Log           logCommand           `cmd:"" help:"Show and set the replicas of the log."`
	Fakemodel     fakemodelCommand     `cmd:"" help:"Serve a fake language model, which answers by a script."`
	Info          infoCommand          `cmd:"" help:"Print the URL, the key and the data folder, also as lines for a shell."`
	Doctor        doctorCommand        `cmd:"" help:"Check this host for what sandboxes need."`
	Server        serverCommand        `cmd:"" help:"Role: the embedded NATS server alone."`
	Gateway       gatewayCommand       `cmd:"" help:"Role: the HTTP gateway alone."`
	Worker        workerCommand        `cmd:"" help:"Role: a worker alone, on the host of its sandboxes."`
	Deliver       deliverCommand       `cmd:"" help:"Role: the deliverer of webhooks and chat messages alone."`
	Egress        egressCommand        `cmd:"" help:"Role: the proxy by which sandboxes of a cluster reach names; and its key."`
	Health        healthCommand        `cmd:"" help:"Check the health of a gateway or worker."`
	Bench         benchCommand         `cmd:"" help:"Benchmark Sandjet against bare NATS, in one run."`
	Version       versionCommand       `cmd:"" help:"Print the version."`
	Completion    completionCommand    `cmd:"" help:"Print the completion script for bash, zsh or fish."`
	Complete      completeCommand      `cmd:"" hidden:"" help:"Print the completions of the last word of a command line."`
	Help          helpCommand          `cmd:"" help:"Show the help of a command."`
}

// commandsFor returns the commands that are needed to parse a command line that begins with this word: the one of that name, or all if
// there is none, as before a flag. All have six hundred flags together, and building those takes longer than most commands run.
func commandsFor(word string) any {
	all := reflect.TypeFor[commands]()
	for f := range all.Fields() {
		if word == cmp.Or(f.Tag.Get("name"), strings.ToLower(f.Name)) || word != "" && word == f.Tag.Get("aliases") {
			return reflect.New(reflect.StructOf([]reflect.StructField{f})).Interface()
		}
	}
	return new(commands)
}

// parsed is a command line that was parsed, with the command to run.
type parsed struct {
	*cli
	command command
}

// helpError is the error of a request for help. It is the help text.
type helpError string

func (helpError) Error() string { return "help was asked for" }

const helpWidth = 100 // columns

const description = `Sandjet runs the tool calls of AI agents in sandboxes: durably, each with exactly one result.

First steps:
  sandjet demo                        see what it does, in about ten seconds
  sandjet up                          start it here; leave it running
  sandjet call bash 'echo hello'      in another terminal: a call in a sandbox
  sandjet calls ls                    what ran, and how it ended
  sandjet tail -f CONVERSATION        the events of a conversation, as they happen`

// precedence is printed below the help of the roles: only they have the flag of its example.
const precedence = `
Settings come from, first wins:
  1. flags                    --listen 127.0.0.1:9000
  2. the environment          SANDJET_LISTEN=127.0.0.1:9000
  3. the file of --config     listen: 127.0.0.1:9000
  4. the defaults shown above
`

const moreHelp = `
Run "sandjet help COMMAND" for the flags and examples of a command.
`

// grammar builds the parser of c. It adds all commands if c has none, and the flags of all backends.
func grammar(c *cli, with ...kong.Option) (*kong.Kong, error) {
	if c.Commands == nil {
		c.Commands = new(commands)
	}
	has := reflect.ValueOf(c.Commands).Elem()
	for i := range has.NumField() {
		if b, ok := reflect.TypeAssert[interface{ fill(sets kong.Plugins) }](has.Field(i).Addr()); ok {
			b.fill(pluginsOf(backends()))
		}
	}
	all := catalog()
	states := make([]string, len(schemas.InstanceStates()))
	for i, s := range schemas.InstanceStates() {
		states[i] = string(s)
	}
	return kong.New(c, append(with, kong.Vars{
		"provider": all.Default(), "providers": strings.Join(all.Names(), ", "), "instanceStates": strings.Join(states, ", "),
	})...)
}

// parse reads a command line, with the environment and the configuration file that belong to it. It
// has no effect but reading that file. The error is a helpError when help was asked for.
func parse(args []string, env func(string) (string, bool)) (*parsed, error) {
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(args[1:len(args):len(args)], "--help")
	}
	var (
		c    = cli{Commands: commandsFor(args[0])}
		text strings.Builder
		help bool
	)
	set := &settings{env: env}
	k, err := grammar(&c, kong.Name("sandjet"), kong.Description(description),
		kong.Writers(&text, io.Discard), kong.Exit(func(int) { help = true }), kong.Resolvers(set), kong.Bind(&c),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: helpWidth}),
		kong.ValueFormatter(describe))
	if err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	ctx, err := k.Parse(args)
	switch {
	case help: // kong continues after printing: errors that it finds then do not matter
		return nil, helpError(text.String() + footer(text.String()))
	case set.err != nil:
		return nil, set.err
	case err != nil:
		return nil, usage(err)
	}
	cmd, ok := reflect.TypeAssert[command](ctx.Selected().Target.Addr())
	if !ok {
		return nil, schemas.Errorf(schemas.Internal, "command %q cannot run", ctx.Command())
	}
	return &parsed{cli: &c, command: cmd}, nil
}

// footer returns the text that is printed below the help of a command.
func footer(text string) string {
	switch {
	case strings.Contains(text, "--listen="):
		return precedence
	case strings.HasPrefix(text, "Usage: sandjet <command>"):
		return moreHelp
	}
	return ""
}
