package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type sandboxesCommand struct {
	LS     sandboxesListCommand   `cmd:"" name:"ls" help:"List the sandboxes."`
	Show   sandboxesShowCommand   `cmd:"" help:"Show a sandbox."`
	Create sandboxesCreateCommand `cmd:"" help:"Make a sandbox."`
	Set    sandboxesSetCommand    `cmd:"" help:"Change a sandbox."`
	RM     sandboxesRemoveCommand `cmd:"" name:"rm" help:"Remove a sandbox. Calls that name it fail from then on."`
}

// Help is the long help.
func (*sandboxesCommand) Help() string {
	return `A sandbox says how commands run: on which provider, with which network, for how long, and what a
person must allow. What is not said is at its default; a rule that the provider cannot keep is refused.

Examples:
  sandjet sandboxes create build --network allow-all --mode bypass --timeout 5m --persistent
  sandjet sandboxes set build --env CI=1 --env TOKEN         TOKEN: as it is in this environment
  sandjet sandboxes set build --file rules.yaml              config: {envVars: {CI: null}}   removes CI
  sandjet call --sandbox build bash 'make test'`
}

type workspacesCommand struct {
	LS     workspacesListCommand   `cmd:"" name:"ls" help:"List the workspaces."`
	Show   workspacesShowCommand   `cmd:"" help:"Show a workspace."`
	Create workspacesCreateCommand `cmd:"" help:"Make a workspace."`
	Set    workspacesSetCommand    `cmd:"" help:"Change a workspace."`
	RM     workspacesRemoveCommand `cmd:"" name:"rm" help:"Remove a workspace. Its files stay where they are."`
}

// Help is the long help.
func (*workspacesCommand) Help() string {
	return `A workspace is a set of files, and the sandbox in which calls see them that name none.

Examples:
  sandjet workspaces create docs --sandbox build
  sandjet call --workspace docs bash 'ls'`
}

// document is what the commands of the collections do with one.
type document interface {
	schemas.SandboxDocument | schemas.WorkspaceDocument | schemas.AgentDocument
}

// recordArg is a record by its id or name.
type recordArg struct {
	gatewayTarget

	Record string `arg:"" name:"id" help:"Id or name."`
}

// body is what is sent to make or change a record.
type body map[string]any

// put sets a field of config, by its path, unless value is its zero.
func put[T comparable](b body, value T, path ...string) {
	if value == *new(T) {
		return
	}
	b.at(path[:len(path)-1]...)[path[len(path)-1]] = value
}

// putList is put of a list; one empty entry alone stands for the empty list.
func putList(b body, values []string, path ...string) {
	if len(values) == 0 {
		return
	}
	if len(values) == 1 && values[0] == "" {
		values = []string{}
	}
	b.at(path[:len(path)-1]...)[path[len(path)-1]] = values
}

// at finds or makes the object of a path.
func (b body) at(path ...string) map[string]any {
	m := map[string]any(b)
	for _, p := range path {
		below, ok := m[p].(map[string]any)
		if !ok {
			below = map[string]any{}
			m[p] = below
		}
		m = below
	}
	return m
}

// fileFlag is a whole record, or what of it is to change, in a file.
type fileFlag struct {
	File        string  `placeholder:"FILE" use:"" help:"YAML or JSON with name, description and config as in the HTTP API; - reads stdin. Other flags win over it."`
	Description *string `placeholder:"TEXT" use:"" help:"For people."`
}

// read begins a body with the file.
func (f fileFlag) read(stdin io.Reader) (body, error) {
	b := body{}
	if f.File != "" {
		in := stdin
		if f.File != "-" {
			file, err := os.Open(f.File) // the user's own
			if err != nil {
				return nil, schemas.Invalidf("file", "cannot be read: %v", err)
			}
			defer file.Close() //nolint:errcheck // only read
			in = file
		}
		text, err := io.ReadAll(io.LimitReader(in, schemas.MaxConfig+1))
		if err != nil {
			return nil, schemas.Invalidf("file", "cannot be read: %v", err)
		}
		if b, err = decodeRecord(text); err != nil {
			return nil, err
		}
	}
	if f.Description != nil {
		b["description"] = *f.Description
	}
	return b, nil
}

// decodeRecord reads YAML, of which JSON is a part. What the fields mean is the gateway's to check.
func decodeRecord(text []byte) (body, error) {
	if len(text) > schemas.MaxConfig {
		return nil, schemas.Invalidf("file", "is larger than %d bytes", schemas.MaxConfig)
	}
	var b body
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&b); err != nil || b == nil {
		return nil, schemas.Invalidf("file", "is not a YAML mapping: %v", err)
	}
	return b, nil
}

// sandboxFlags are the rules of a sandbox.
type sandboxFlags struct {
	fileFlag

	Provider    string        `placeholder:"NAME" use:"" help:"Where it runs: local, lambda, e2b, …"`
	Network     string        `placeholder:"MODE" use:"" help:"What it reaches: deny-all, allow-all or restricted."`
	Domains     []string      `name:"allow-domain" placeholder:"NAME" sep:"none" use:"" help:"With --network restricted: it reaches this domain. Repeat for more."`
	AllowCIDRs  []string      `name:"allow-cidr" placeholder:"CIDR" sep:"none" use:"" help:"Likewise, this network."`
	DenyCIDRs   []string      `name:"deny-cidr" placeholder:"CIDR" sep:"none" use:"" help:"Likewise, but not this network."`
	Mode        string        `placeholder:"MODE" use:"" help:"Which tools a person must allow: ask (bash, write, edit), edit (bash) or bypass (none)."`
	Guard       string        `placeholder:"POLICY" use:"" help:"What the bash guard refuses: strict, durable or off."`
	Runtimes    []string      `placeholder:"NAME" use:"" help:"Languages that commands may use: bash, python, node."`
	Timeout     time.Duration `placeholder:"DURATION" use:"" help:"Longest time of one run."`
	Memory      int64         `placeholder:"MIB" use:"" help:"Memory, in MiB."`
	OutputLimit int           `placeholder:"BYTES" use:"" help:"Output that a result keeps."`
	Env         []string      `placeholder:"NAME=VALUE" sep:"none" use:"" help:"Variable; NAME alone takes it from this environment, where other users cannot see it. Repeat for more."`
	Persistent  *bool         `negatable:"" use:"" help:"One box, kept between calls; else a fresh one for each."`
	JobLimit    int           `placeholder:"N" use:"" help:"Background jobs at the same time."`
	JobLifetime time.Duration `placeholder:"DURATION" use:"" help:"Longest time of a background job."`
}

// body makes what is sent.
func (f sandboxFlags) body(stdin io.Reader) (body, error) {
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

type sandboxesListCommand struct{ gatewayTarget }

// Run lists the sandboxes.
func (c *sandboxesListCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	list, err := cl.Sandboxes(client.Me).List(ctx)
	if err != nil {
		return err
	}
	return printTable(t, list, "ID\tNAME\tPROVIDER\tNETWORK\tMODE\tKEPT\tDESCRIPTION", func(s schemas.SandboxDocument) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%t\t%s", s.ID, printable(s.Name), s.Config.Provider, s.Config.Network.Mode,
			s.Config.PermissionMode, s.Config.Persistent, short(s.Description))
	})
}

type sandboxesShowCommand struct{ recordArg }

// Run shows a sandbox.
func (c *sandboxesShowCommand) Run(ctx context.Context, t terminal) error {
	all, id, err := c.sandbox(ctx, t)
	if err != nil {
		return err
	}
	s, err := all.Get(ctx, id)
	return printRecord(t, s, err)
}

type sandboxesCreateCommand struct {
	gatewayTarget
	sandboxFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run makes a sandbox.
func (c *sandboxesCreateCommand) Run(ctx context.Context, t terminal) error {
	b, err := c.body(t.in)
	if err != nil {
		return err
	}
	put(b, c.Name, "name")
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	s, err := cl.Sandboxes(client.Me).Add(ctx, b)
	return printRecord(t, s, err)
}

type sandboxesSetCommand struct {
	recordArg
	sandboxFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes a sandbox.
func (c *sandboxesSetCommand) Run(ctx context.Context, t terminal) error {
	b, err := c.body(t.in)
	if err != nil {
		return err
	}
	put(b, c.Name, "name")
	all, id, err := c.sandbox(ctx, t)
	if err != nil {
		return err
	}
	s, err := all.Patch(ctx, id, b)
	return printRecord(t, s, err)
}

type sandboxesRemoveCommand struct{ recordArg }

// Run removes a sandbox.
func (c *sandboxesRemoveCommand) Run(ctx context.Context, t terminal) error {
	all, id, err := c.sandbox(ctx, t)
	if err != nil {
		return err
	}
	return printRemoved(t, id, all.Remove(ctx, id))
}

// sandbox finds the sandbox that is meant.
func (r *recordArg) sandbox(ctx context.Context, t terminal) (client.Records[schemas.SandboxDocument], string, error) {
	cl, err := r.dial(ctx, t)
	if err != nil {
		return client.Records[schemas.SandboxDocument]{}, "", err
	}
	all := cl.Sandboxes(client.Me)
	id, err := sandboxID(ctx, cl, r.Record)
	return all, id, err
}

// idOf is the id of the record that is meant by its id or name.
func idOf[T document](
	ctx context.Context, all client.Records[T], noun, prefix, meant string, names func(T) (id, name string),
) (string, error) {
	if strings.HasPrefix(meant, prefix) {
		return meant, nil
	}
	list, err := all.List(ctx)
	if err != nil {
		return "", err
	}
	var have []string
	for _, v := range list {
		id, name := names(v)
		if name == meant {
			return id, nil
		}
		have = append(have, name)
	}
	there := "there is none"
	if len(have) > 0 {
		there = "there is " + strings.Join(have, ", ")
	}
	return "", schemas.Errorf(schemas.NotFound, noun, "there is no %s %q: %s", noun, schemas.Quotable(meant), printable(there))
}

// workspaceFlags are the settings of a workspace.
type workspaceFlags struct {
	fileFlag

	Sandbox *string `placeholder:"ID" use:"" help:"Where calls run that name no sandbox, by id or name; empty for nowhere."`
}

// body makes what is sent.
func (f workspaceFlags) body(ctx context.Context, cl *client.Client, stdin io.Reader) (body, error) {
	b, err := f.read(stdin)
	if err != nil || f.Sandbox == nil {
		return b, err
	}
	if *f.Sandbox == "" {
		b["sandbox"] = nil
		return b, nil
	}
	b["sandbox"], err = sandboxID(ctx, cl, *f.Sandbox)
	return b, err
}

type workspacesListCommand struct{ gatewayTarget }

// Run lists the workspaces.
func (c *workspacesListCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	list, err := cl.Workspaces(client.Me).List(ctx)
	if err != nil {
		return err
	}
	return printTable(t, list, "ID\tNAME\tSANDBOX\tDESCRIPTION", func(w schemas.WorkspaceDocument) string {
		sandbox := "-"
		if w.Sandbox != nil {
			sandbox = string(*w.Sandbox)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", w.ID, printable(w.Name), sandbox, short(w.Description))
	})
}

type workspacesShowCommand struct{ recordArg }

// Run shows a workspace.
func (c *workspacesShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.workspace(ctx, t)
	if err != nil {
		return err
	}
	w, err := cl.Workspaces(client.Me).Get(ctx, id)
	return printRecord(t, w, err)
}

type workspacesCreateCommand struct {
	gatewayTarget
	workspaceFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run makes a workspace.
func (c *workspacesCreateCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	b, err := c.body(ctx, cl, t.in)
	if err != nil {
		return err
	}
	put(b, c.Name, "name")
	w, err := cl.Workspaces(client.Me).Add(ctx, b)
	return printRecord(t, w, err)
}

type workspacesSetCommand struct {
	recordArg
	workspaceFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes a workspace.
func (c *workspacesSetCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.workspace(ctx, t)
	if err != nil {
		return err
	}
	b, err := c.body(ctx, cl, t.in)
	if err != nil {
		return err
	}
	put(b, c.Name, "name")
	w, err := cl.Workspaces(client.Me).Patch(ctx, id, b)
	return printRecord(t, w, err)
}

type workspacesRemoveCommand struct{ recordArg }

// Run removes a workspace.
func (c *workspacesRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.workspace(ctx, t)
	if err != nil {
		return err
	}
	return printRemoved(t, id, cl.Workspaces(client.Me).Remove(ctx, id))
}

// workspace finds the workspace that is meant.
func (r *recordArg) workspace(ctx context.Context, t terminal) (*client.Client, string, error) {
	cl, err := r.dial(ctx, t)
	if err != nil {
		return nil, "", err
	}
	id, err := workspaceID(ctx, cl, r.Record)
	return cl, id, err
}

// printTable prints a list as a table, or as JSON.
func printTable[T any](t terminal, list []T, header string, row func(T) string) error {
	if t.json {
		return printEach(t, list)
	}
	const gap = 2
	w := tabwriter.NewWriter(t.out, 0, 0, gap, ' ', 0)
	fmt.Fprintln(w, header)
	for _, v := range list {
		fmt.Fprintln(w, row(v))
	}
	return wrapOutput(w.Flush())
}

// printRecord prints a record unless there is an error: as YAML, which --file reads but for what is the
// record's own, or as JSON.
func printRecord(t terminal, v any, err error) error {
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, v)
	}
	b, err := yaml.MarshalWithOptions(v, yaml.UseJSONMarshaler())
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = t.out.Write(b)
	return wrapOutput(err)
}

func printRemoved(t terminal, id string, err error) error {
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"removed": id})
	}
	return say(t, "%s was removed", id)
}
