package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type variablesCommand struct {
	Set variablesSetCommand    `cmd:"" help:"Set a variable."`
	LS  variablesListCommand   `cmd:"" name:"ls" help:"List variables. Values are never shown."`
	RM  variablesRemoveCommand `cmd:"" name:"rm" help:"Remove a variable. Sandboxes that name it refuse their calls from then on."`
}

// Help returns the detailed help, for kong.
func (*variablesCommand) Help() string {
	return `Variables are stored encrypted. Sandboxes name them as env:NAME in their envVars. A new value takes effect with
the next call. No record, manifest, event or error shows a value.

Examples:
  pass show api-token | sandjet variables set API_TOKEN       from stdin, without its last line break
  sandjet variables set API_TOKEN --from-env                  as it is in this environment
  sandjet variables set STAGE test                            visible in the list of processes
  sandjet sandboxes set build --env TOKEN=env:API_TOKEN`
}

type variablesSetCommand struct {
	gatewayTarget

	Name    string `arg:"" help:"NAME, or NAME=VALUE."`
	Value   string `arg:"" optional:"" help:"Value. Default: stdin. Other users of this host may see command lines."`
	FromEnv bool   `use:"" help:"Take the value from the variable of that name in this environment."`
}

// Run sets a variable.
func (c *variablesSetCommand) Run(ctx context.Context, t terminal) error {
	name, value, err := c.read(t.in)
	if err != nil {
		return err
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	v, err := cl.Variables(client.Me).Set(ctx, name, value)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, v)
	}
	return say(t, "%s is set", v.Name)
}

// read returns the name and the value that the flags give. Code: invalid.
func (c *variablesSetCommand) read(stdin io.Reader) (name, value string, err error) {
	name, value, inline := strings.Cut(c.Name, "=")
	ways := 0
	for _, given := range []bool{inline, c.Value != "", c.FromEnv} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return "", "", schemas.Invalidf("value", "is given twice: as NAME=VALUE, after the name or with --from-env")
	case inline:
		return name, value, nil
	case c.Value != "":
		return name, c.Value, nil
	case c.FromEnv:
		value, ok := os.LookupEnv(name)
		if !ok {
			return "", "", schemas.Invalidf("name", "%q is not in this environment", schemas.Quotable(name))
		}
		return name, value, nil
	}
	b, err := io.ReadAll(io.LimitReader(stdin, schemas.MaxVariable+2))
	if err != nil {
		return "", "", fmt.Errorf("read stdin: %w", err)
	}
	value = strings.TrimSuffix(string(b), "\n")
	return name, strings.TrimSuffix(value, "\r"), nil
}

type variablesListCommand struct{ listTarget }

// Run lists the variables.
func (c *variablesListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Variables(client.Me).List(ctx)
		if err != nil {
			return err
		}
		return printList(t, list, "No variables.", "NAME\tUPDATED", func(v schemas.VariableDocument) string {
			return fmt.Sprintf("%s\t%s", v.Name, ago(v.Updated))
		})
	})
}

type variablesRemoveCommand struct {
	gatewayTarget

	Name string `arg:"" help:"Its name."`
}

// Run removes a variable.
func (c *variablesRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	return printRemoved(t, c.Name, cl.Variables(client.Me).Remove(ctx, c.Name))
}
