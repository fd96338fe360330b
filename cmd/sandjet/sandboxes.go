package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type sandboxesCommand struct {
	LS     sandboxesListCommand   `cmd:"" name:"ls" help:"List sandboxes."`
	Show   sandboxesShowCommand   `cmd:"" help:"Show a sandbox."`
	Create sandboxesCreateCommand `cmd:"" help:"Create a sandbox."`
	Set    sandboxesSetCommand    `cmd:"" help:"Change a sandbox."`
	RM     sandboxesRemoveCommand `cmd:"" name:"rm" help:"Remove a sandbox. Calls that name it fail from then on."`

	Instances instancesCommand `cmd:"" help:"List, show, pause, resume and remove the instances of persistent sandboxes, and run commands in them."`
}

// Help returns the detailed help, for kong.
func (*sandboxesCommand) Help() string {
	return `A sandbox says how commands run: on which provider, with which network, for how long, and what a
person must allow. Unset fields take their defaults; a rule that the provider cannot enforce is refused.

Examples:
  sandjet sandboxes create build --memory 512 --mode bypass --timeout 5m --persistent --idle-timeout 1h
  sandjet sandboxes set build --env CI=1 --env TOKEN         TOKEN: as it is in this environment
  sandjet sandboxes set build --file rules.yaml              config: {envVars: {CI: null}}   removes CI
  sandjet call --sandbox build bash 'make test'`
}

// sandboxFlags are the rules of a sandbox.
type sandboxFlags struct {
	fileFlag

	Provider    string        `placeholder:"NAME" use:"" help:"Provider that makes its instances: ${providers}."`
	Network     string        `placeholder:"MODE" use:"" help:"Network access: deny-all, allow-all or restricted."`
	Domains     []string      `name:"allow-domain" placeholder:"NAME" sep:"none" use:"" help:"With --network restricted: it reaches this domain, such as example.com, *.example.com or git.example.com:22. Repeat for more."`
	AllowCIDRs  []string      `name:"allow-cidr" placeholder:"CIDR" sep:"none" use:"" help:"With --network restricted: it reaches this network. Repeat for more."`
	DenyCIDRs   []string      `name:"deny-cidr" placeholder:"CIDR" sep:"none" use:"" help:"With --network restricted: it never reaches this network, whatever else allows it. Repeat for more."`
	Credentials []string      `name:"credential" placeholder:"NAME=HOST" sep:"none" use:"" help:"With --network restricted: only this host gets the value of this variable, by HTTPS; commands see a text that stands for it. Repeat for more."`
	Mode        string        `placeholder:"MODE" use:"" help:"Tools that need approval: ask (bash, write, edit), edit (bash) or bypass (none)."`
	Guard       string        `placeholder:"POLICY" use:"" help:"What the bash guard refuses: strict, durable or off."`
	Runtimes    []string      `placeholder:"NAME" use:"" help:"Languages that commands may use: bash, python, node."`
	Timeout     time.Duration `placeholder:"DURATION" use:"" help:"Time limit of one run."`
	Memory      int64         `placeholder:"MIB" use:"" help:"Memory, in MiB."`
	OutputLimit int           `placeholder:"BYTES" use:"" help:"Maximum output kept in a result."`
	Env         []string      `placeholder:"NAME=VALUE" sep:"none" use:"" help:"Variable; NAME alone takes it from this environment, where other users cannot see it. Repeat for more."`
	Persistent  *bool         `negatable:"" use:"" help:"Keep one sandbox instance between calls. Default: each call gets a fresh one."`
	IdleTimeout time.Duration `placeholder:"DURATION" use:"" help:"With --persistent: pause the instance when nothing was in it for this long."`
	MaxLifetime time.Duration `placeholder:"DURATION" use:"" help:"With --persistent: end the instance this long after it was made, with its home folder."`
	JobLimit    int           `placeholder:"N" use:"" help:"Background jobs at the same time."`
	JobLifetime time.Duration `placeholder:"DURATION" use:"" help:"Time limit of a background job."`
	Artifacts   []string      `name:"artifact" placeholder:"PATTERN" sep:"none" use:"" help:"Files, such as report.pdf or plots/*.png, that are kept as artifacts when a call changes them, beside those below outputs. Repeat for more."`
}

// body returns the request body that the file and the flags describe.
func (f sandboxFlags) body(_ context.Context, _ *client.Client, stdin io.Reader) (body, error) {
	b, err := f.read(stdin)
	if err != nil {
		return nil, err
	}
	put(b, f.Provider, "config", "provider")
	put(b, f.Network, "config", "network", "mode")
	putList(b, f.Domains, "config", "network", "allowDomains")
	putList(b, f.AllowCIDRs, "config", "network", "allowCidrs")
	putList(b, f.DenyCIDRs, "config", "network", "denyCidrs")
	for _, c := range f.Credentials {
		name, host, ok := strings.Cut(c, "=")
		if !ok {
			return nil, schemas.Invalidf("credential", "%q names no host: use NAME=HOST", schemas.Quotable(c))
		}
		bound := b.at("config", "network", "credentials")
		hosts, _ := bound[name].([]string)
		bound[name] = append(hosts, host)
	}
	put(b, f.Mode, "config", "permissionMode")
	put(b, f.Guard, "config", "guard")
	putList(b, f.Runtimes, "config", "runtimes")
	putList(b, f.Artifacts, "config", "artifacts")
	put(b, f.Memory, "config", "memoryLimit")
	put(b, f.OutputLimit, "config", "outputLimitBytes")
	put(b, f.JobLimit, "config", "jobLimit")
	for _, d := range []struct {
		flag  string
		value time.Duration
		field []string
	}{
		{"timeout", f.Timeout, []string{"timeout"}}, {"job-lifetime", f.JobLifetime, []string{"jobLifetimeSeconds"}},
		{"idle-timeout", f.IdleTimeout, []string{"lifecycle", "idleTimeoutSeconds"}},
		{"max-lifetime", f.MaxLifetime, []string{"lifecycle", "maxLifetimeSeconds"}},
	} {
		if d.value%time.Second != 0 {
			return nil, schemas.Invalidf(d.flag, "%s is not a whole number of seconds", d.value)
		}
		put(b, int64(d.value/time.Second), append([]string{"config"}, d.field...)...)
	}
	for _, e := range f.Env {
		name, value, ok := strings.Cut(e, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return nil, schemas.Invalidf("env", "%q has no value, and is not in this environment", schemas.Quotable(name))
			}
		}
		b.at("config", "envVars")[name] = value
	}
	if f.Persistent != nil {
		b.at("config")["persistent"] = *f.Persistent
	}
	return b, nil
}

type sandboxesListCommand struct{ listTarget }

// Run lists the sandboxes.
func (c *sandboxesListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Sandboxes(client.Me).List(ctx)
		if err != nil {
			return err
		}
		return printList(t, list, "No sandboxes.",
			"ID\tNAME\tCREATED\tPROVIDER\tNETWORK\tMODE\tPERSISTENT\tMANIFEST*\tDESCRIPTION", func(s schemas.SandboxDocument) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%t\t%s\t%s", s.ID, printable(s.Name), ago(s.Created), s.Config.Provider,
					s.Config.Network.Mode, s.Config.PermissionMode, s.Config.Persistent, orDash(printable(s.Manifest)), orDash(short(s.Description)))
			})
	})
}

type sandboxesShowCommand struct{ recordArg }

// Run shows a sandbox.
func (c *sandboxesShowCommand) Run(ctx context.Context, t terminal) error {
	return sandboxKind().show(ctx, t, c.recordArg)
}

type sandboxesCreateCommand struct {
	gatewayTarget
	sandboxFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run creates a sandbox.
func (c *sandboxesCreateCommand) Run(ctx context.Context, t terminal) error {
	return sandboxKind().create(ctx, t, c.gatewayTarget, c.Name, c.body)
}

type sandboxesSetCommand struct {
	recordArg
	sandboxFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes a sandbox.
func (c *sandboxesSetCommand) Run(ctx context.Context, t terminal) error {
	return sandboxKind().set(ctx, t, c.recordArg, c.Name, c.body)
}

type sandboxesRemoveCommand struct{ recordArg }

// Run removes a sandbox.
func (c *sandboxesRemoveCommand) Run(ctx context.Context, t terminal) error {
	return sandboxKind().remove(ctx, t, c.recordArg)
}

func sandboxKind() kind[schemas.SandboxDocument] {
	return kind[schemas.SandboxDocument]{
		"sandbox", schemas.SandboxPrefix, func(cl *client.Client) client.Records[schemas.SandboxDocument] { return cl.Sandboxes(client.Me) },
		func(s schemas.SandboxDocument) (id, name string) { return string(s.ID), s.Name },
	}
}
