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
}

// Help is the long help.
func (*sandboxesCommand) Help() string {
	return `A sandbox says how commands run: on which provider, with which network, for how long, and what a
person must allow. What is not said is at its default; a rule that the provider cannot keep is refused.

Examples:
  sandjet sandboxes create build --memory 512 --mode bypass --timeout 5m --persistent
  sandjet sandboxes set build --env CI=1 --env TOKEN         TOKEN: as it is in this environment
  sandjet sandboxes set build --file rules.yaml              config: {envVars: {CI: null}}   removes CI
  sandjet call --sandbox build bash 'make test'`
}

// sandboxFlags are the rules of a sandbox.
type sandboxFlags struct {
	fileFlag

	Provider    string        `placeholder:"NAME" use:"" help:"Where it runs: local, lambda, e2b, …"`
	Network     string        `placeholder:"MODE" use:"" help:"Network access: deny-all, allow-all or restricted."`
	Domains     []string      `name:"allow-domain" placeholder:"NAME" sep:"none" use:"" help:"With --network restricted: it reaches this domain. Repeat for more."`
	AllowCIDRs  []string      `name:"allow-cidr" placeholder:"CIDR" sep:"none" use:"" help:"Likewise, this network."`
	DenyCIDRs   []string      `name:"deny-cidr" placeholder:"CIDR" sep:"none" use:"" help:"Likewise, but not this network."`
	Mode        string        `placeholder:"MODE" use:"" help:"Tools that need approval: ask (bash, write, edit), edit (bash) or bypass (none)."`
	Guard       string        `placeholder:"POLICY" use:"" help:"What the bash guard refuses: strict, durable or off."`
	Runtimes    []string      `placeholder:"NAME" use:"" help:"Languages that commands may use: bash, python, node."`
	Timeout     time.Duration `placeholder:"DURATION" use:"" help:"Time limit of one run."`
	Memory      int64         `placeholder:"MIB" use:"" help:"Memory, in MiB."`
	OutputLimit int           `placeholder:"BYTES" use:"" help:"Maximum output kept in a result."`
	Env         []string      `placeholder:"NAME=VALUE" sep:"none" use:"" help:"Variable; NAME alone takes it from this environment, where other users cannot see it. Repeat for more."`
	Persistent  *bool         `negatable:"" use:"" help:"Keep one sandbox instance between calls; else each call gets a fresh one."`
	JobLimit    int           `placeholder:"N" use:"" help:"Background jobs at the same time."`
	JobLifetime time.Duration `placeholder:"DURATION" use:"" help:"Time limit of a background job."`
}

// body makes what is sent.
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
	put(b, f.Mode, "config", "permissionMode")
	put(b, f.Guard, "config", "guard")
	putList(b, f.Runtimes, "config", "runtimes")
	put(b, f.Memory, "config", "memoryLimit")
	put(b, f.OutputLimit, "config", "outputLimitBytes")
	put(b, f.JobLimit, "config", "jobLimit")
	for _, d := range []struct {
		flag, field string
		value       time.Duration
	}{{"timeout", "timeout", f.Timeout}, {"job-lifetime", "jobLifetimeSeconds", f.JobLifetime}} {
		if d.value%time.Second != 0 {
			return nil, schemas.Invalidf(d.flag, "%s is not a whole number of seconds", d.value)
		}
		put(b, int64(d.value/time.Second), "config", d.field)
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
		return printList(t, list, "No sandboxes.", "ID\tNAME\tPROVIDER\tNETWORK\tMODE\tPERSISTENT\tDESCRIPTION", func(s schemas.SandboxDocument) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%t\t%s", s.ID, printable(s.Name), s.Config.Provider, s.Config.Network.Mode,
				s.Config.PermissionMode, s.Config.Persistent, short(s.Description))
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

// Run makes a sandbox.
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
