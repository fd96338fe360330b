package main

import (
	"errors"
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
	DataDir  string     `placeholder:"DIR" default:"./.sandjet" help:"Where logs, workspaces and credentials are kept."`
	JSON     bool       `name:"json" help:"Print JSON, one value on a line, for programs."`
	LogLevel slog.Level `placeholder:"LEVEL" default:"info" help:"Least level that is logged to stderr: debug, info, warn or error."`

	Demo       demoCommand       `cmd:"" help:"See it work: a tour through calls, crashes and recovery, in a temporary folder."`
	Up         upCommand         `cmd:"" help:"Run everything in one process, with an embedded NATS server."`
	Call       callCommand       `cmd:"" help:"Make one tool call and wait for its result."`
	Jobs       jobsCommand       `cmd:"" help:"List, follow, stop and wait for background jobs."`
	Tokens     tokensCommand     `cmd:"" help:"Make attach tokens, which browsers hold in place of a key."`
	Approvals  approvalsCommand  `cmd:"" help:"Answer calls that wait for a person's yes."`
	Sandboxes  sandboxesCommand  `cmd:"" help:"List, make, change and remove sandboxes."`
	Workspaces workspacesCommand `cmd:"" help:"List, make, change and remove workspaces."`
	Agents     agentsCommand     `cmd:"" help:"List, make, change and remove agents, and show their tools."`
	Apply      applyCommand      `cmd:"" help:"Make sandboxes, workspaces and agents what a manifest says."`
	Diff       diffCommand       `cmd:"" help:"Say what applying a manifest would change."`
	Dev        devCommand        `cmd:"" help:"Apply a manifest whenever its files change."`
	Env        envCommand        `cmd:"" help:"Set, list and remove the variables that sandboxes name."`
	Accounts   accountsCommand   `cmd:"" help:"Show, make and remove accounts, and change their keys."`
	Webhooks   webhooksCommand   `cmd:"" help:"Have events posted to URLs."`
	Tail       tailCommand       `cmd:"" help:"Print the events of a conversation."`
	Secrets    secretsCommand    `cmd:"" help:"Show and change the keys that seal secrets in the log."`
	Dead       deadCommand       `cmd:"" help:"List, show and redrive messages that were given up."`
	Log        logCommand        `cmd:"" help:"Show where the copies of the log are, and set how many there are."`
	Doctor     doctorCommand     `cmd:"" help:"Say what this host can isolate, and what is in the way."`
	Server     serverCommand     `cmd:"" help:"Role: the embedded NATS server alone."`
	Gateway    gatewayCommand    `cmd:"" help:"Role: the HTTP edge alone."`
	Worker     workerCommand     `cmd:"" help:"Role: a worker alone, beside its sandboxes."`
	Deliver    deliverCommand    `cmd:"" help:"Role: what posts events to webhooks alone."`
	Health     healthCommand     `cmd:"" help:"Ask a gateway or worker whether it is well, for health checks."`
	Bench      benchCommand      `cmd:"" help:"Measure it beside the bare engine, in one run."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
}

// parsed is a command line that has been understood.
type parsed struct {
	*cli
	command command
}

// helpError is the help text, asked for.
type helpError string

func (helpError) Error() string { return "help was asked for" }

const helpWidth = 100 // columns

const description = `Sandjet runs the tool calls of AI agents: durably, each exactly once, in a sandbox.

First steps:
  sandjet demo                        see what it does, in fifteen seconds
  sandjet up                          start it here; leave it running
  sandjet call bash 'echo hello'      in another terminal: a call in a sandbox
  sandjet tail -f CONVERSATION        what happened there, and what happens now`

const precedence = `Settings come from, first wins:
  1. flags                    --listen 127.0.0.1:9000
  2. the environment          SANDJET_LISTEN=127.0.0.1:9000
  3. the file of --config     listen: 127.0.0.1:9000
  4. the defaults shown above

Run "sandjet COMMAND --help" for the flags and examples of a command.
`

// grammar builds the parser of c, with the flags of all backends in it.
func grammar(c *cli, with ...kong.Option) (*kong.Kong, error) {
	c.Up.Backends, c.Worker.Backends = pluginsOf(backends()), pluginsOf(backends())
	all := catalog()
	return kong.New(c, append(with, kong.Vars{"provider": all.Default(), "providers": strings.Join(all.Names(), ",")})...)
}

// parse reads a command line, with the environment and the configuration file that belong to it. It
// has no effect but reading that file. The error is a helpError when help was asked for.
func parse(args []string, env func(string) (string, bool)) (*parsed, error) {
	var (
		c    cli
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
	set.known = keys(k.Model.Node)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := k.Parse(args)
	switch {
	case help: // kong goes on after printing: what it finds then does not matter
		return nil, helpError(text.String() + "\n" + precedence)
	case set.err != nil:
		return nil, set.err
	case err != nil:
		return nil, usage(err)
	}
	cmd, ok := reflect.TypeAssert[command](ctx.Selected().Target.Addr())
	if !ok {
		return nil, schemas.Errorf(schemas.Internal, "", "command %q cannot run", ctx.Command())
	}
	return &parsed{cli: &c, command: cmd}, nil
}

// usage adds to a parse error where help is.
func usage(err error) error {
	where := "sandjet --help"
	if p, ok := errors.AsType[*kong.ParseError](err); ok && p.Context != nil {
		if n := p.Context.Selected(); n != nil {
			where = n.FullPath() + " --help"
		}
	}
	return schemas.Errorf(schemas.Invalid, "", "%v (see %s)", err, where)
}
