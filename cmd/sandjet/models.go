package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type modelsCommand struct {
	LS     modelsListCommand   `cmd:"" name:"ls" help:"List models."`
	Show   modelsShowCommand   `cmd:"" help:"Show a model."`
	Create modelsCreateCommand `cmd:"" help:"Create a model."`
	Set    modelsSetCommand    `cmd:"" help:"Change a model."`
	RM     modelsRemoveCommand `cmd:"" name:"rm" help:"Remove a model. Turns that ask it fail from then on."`
}

// Help returns the detailed help, for kong.
func (*modelsCommand) Help() string {
	return `A model is a language model at a server: which protocol it speaks, how it is reached, and what its tokens cost.
Its key is kept as a variable, encrypted; the record only names it.

Examples:
  sandjet models create main --wire anthropic --model claude-sonnet-4-5 --key-variable ANTHROPIC_API_KEY --context 200000
  sandjet models create here --wire openai --model qwen3:8b --base-url http://127.0.0.1:11434/v1
  sandjet models set main --price-in 3 --price-out 15
  sandjet agents set writer --model main --fallback here`
}

// modelFlags are the settings of a model.
type modelFlags struct {
	fileFlag

	Wire        string   `placeholder:"NAME" use:"" help:"Protocol of its server: anthropic (Messages) or openai (Chat Completions)."`
	Model       string   `placeholder:"NAME" use:"" help:"Name that the server has for it."`
	URL         *string  `name:"base-url" placeholder:"URL" use:"" help:"Address of the server: of openai with /v1, of anthropic without. Default: the service whose protocol it is."`
	Key         *string  `name:"key-variable" placeholder:"VARIABLE" use:"" help:"Variable of the account that holds the server's key; empty for none. Set it with \"sandjet variables set\"."`
	Context     int64    `placeholder:"TOKENS" use:"" help:"Tokens that a request and its answer may have together."`
	MaxOutput   int64    `placeholder:"TOKENS" use:"" help:"Longest answer that it can give."`
	Timeout     int64    `placeholder:"SECONDS" use:"" help:"Longest time of one request. Default: 900."`
	Silence     int64    `placeholder:"SECONDS" use:"" help:"Longest wait for the first piece of an answer, and from each to the next. Default: 60."`
	PriceIn     *float64 `placeholder:"PRICE" use:"" help:"Price of a million tokens that it reads, in a currency of your choice."`
	PriceOut    *float64 `placeholder:"PRICE" use:"" help:"Price of a million tokens that it writes."`
	PriceCached *float64 `placeholder:"PRICE" use:"" help:"Price of a million tokens that it reads from its cache. Default: as --price-in."`
}

// body returns the request body that the file and the flags describe.
func (f modelFlags) body(_ context.Context, _ *client.Client, stdin io.Reader) (body, error) {
	b, err := f.read(stdin)
	if err != nil {
		return nil, err
	}
	put(b, f.Wire, "config", "wire")
	put(b, f.Model, "config", "model")
	if f.URL != nil {
		b.at("config")["url"] = *f.URL
	}
	switch {
	case f.Key == nil:
	case *f.Key == "":
		b.at("config")["key"] = nil
	default:
		name := strings.TrimPrefix(*f.Key, schemas.VariablePrefix)
		if !schemas.VariableName(name) { // it may be the key itself, so the error does not quote it
			return nil, schemas.Invalidf("key-variable",
				"is not the name of a variable: set one with \"sandjet variables set NAME\", and give its name")
		}
		b.at("config")["key"] = schemas.VariablePrefix + name
	}
	put(b, f.Context, "config", "context")
	put(b, f.MaxOutput, "config", "maxOutput")
	put(b, f.Timeout, "config", "timeoutSeconds")
	put(b, f.Silence, "config", "silenceSeconds")
	for name, price := range map[string]*float64{"in": f.PriceIn, "out": f.PriceOut, "cached": f.PriceCached} {
		if price != nil {
			b.at("config", "price")[name] = *price
		}
	}
	return b, nil
}

type modelsListCommand struct{ listTarget }

// Run lists the models.
func (c *modelsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Models(client.Me).List(ctx)
		if err != nil {
			return err
		}
		const columns = "ID\tNAME\tCREATED\tWIRE\tMODEL\tURL\tKEY\tMANIFEST*\tDESCRIPTION"
		return printList(t, list, "No models.", columns, func(m schemas.ModelDocument) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", m.ID, printable(m.Name), ago(m.Created), m.Config.Wire,
				printable(m.Config.Model), orDash(printable(m.Config.URL)), orDash(printable(m.Config.Key)), orDash(printable(m.Manifest)),
				orDash(short(m.Description)))
		})
	})
}

type modelsShowCommand struct{ recordArg }

// Run shows a model.
func (c *modelsShowCommand) Run(ctx context.Context, t terminal) error {
	return modelKind().show(ctx, t, c.recordArg)
}

type modelsCreateCommand struct {
	gatewayTarget
	modelFlags

	Name string `arg:"" optional:"" help:"Its name. Default: the file's."`
}

// Run creates a model.
func (c *modelsCreateCommand) Run(ctx context.Context, t terminal) error {
	return modelKind().create(ctx, t, c.gatewayTarget, c.Name, c.body)
}

type modelsSetCommand struct {
	recordArg
	modelFlags

	Name string `placeholder:"NAME" use:"" help:"Another name."`
}

// Run changes a model.
func (c *modelsSetCommand) Run(ctx context.Context, t terminal) error {
	return modelKind().set(ctx, t, c.recordArg, c.Name, c.body)
}

type modelsRemoveCommand struct{ recordArg }

// Run removes a model.
func (c *modelsRemoveCommand) Run(ctx context.Context, t terminal) error {
	return modelKind().remove(ctx, t, c.recordArg)
}

func modelKind() kind[schemas.ModelDocument] {
	return kind[schemas.ModelDocument]{
		"model", schemas.ModelPrefix, func(cl *client.Client) client.Records[schemas.ModelDocument] { return cl.Models(client.Me) },
		func(m schemas.ModelDocument) (id, name string) { return string(m.ID), m.Name },
	}
}
