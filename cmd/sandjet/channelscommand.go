package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type channelsCommand struct {
	Create   channelsCreateCommand   `cmd:"" help:"Create a channel: a bot of yours at a chat service."`
	LS       channelsListCommand     `cmd:"" name:"ls" help:"List channels."`
	Get      channelsGetCommand      `cmd:"" aliases:"show" help:"Show a channel. Secrets are never shown."`
	Update   channelsUpdateCommand   `cmd:"" aliases:"set" help:"Change a channel; fields that are not named keep their values."`
	Delete   channelsDeleteCommand   `cmd:"" aliases:"rm" help:"Remove a channel. Its pending messages become dead letters."`
	Setup    channelsSetupCommand    `cmd:"" help:"Register the gateway's address at the service, or print it for you to enter there."`
	Fake     channelsFakeCommand     `cmd:"" help:"Serve a double of a chat service, to try channels with."`
	Simulate channelsSimulateCommand `cmd:"" help:"Send a simulated message to a channel, as if the service had posted it."`
	Test     channelsTestCommand     `cmd:"" help:"Send a message to a chat of a channel, and print whether it was delivered."`
	Kinds    channelsKindsCommand    `cmd:"" help:"List the chat services and the secrets that they need."`
}

// Help returns the detailed help, for kong.
func (*channelsCommand) Help() string {
	return `A channel is a bot of yours at a chat service: its credential, the chats and people that it listens to, and the agent that
answers. Results of background jobs go back to the chat that a conversation came from. Secrets are encrypted in the log.

Examples:
  sandjet channels kinds                                             which services, and which secrets they need
  sandjet channels create telegram support --secret bot_token=env:BOT_TOKEN --place 4711
  sandjet channels test support --to '{"chat_id":4711}' "Hello"           a real message
  sandjet channels update support --secret bot_token=@token.txt      a new token
  sandjet channels update support --fallback other --fallback-route '{"channel":"C042"}'`
}

// channelFlags are the settings of a channel.
type channelFlags struct {
	Description   *string           `placeholder:"TEXT" use:"" help:"Free-text description."`
	Agent         *string           `placeholder:"AGENT" use:"" help:"Agent (id or name) whose turns the messages become."`
	Workspace     *string           `placeholder:"WORKSPACE" use:"" help:"Workspace (id or name) of the chat's commands and files. Default: the agent's."`
	Place         []string          `placeholder:"PLACE" use:"" help:"Chats, channels or repositories to listen to. Default: none."`
	User          []string          `placeholder:"USER" use:"" help:"People to listen to. Default: everybody in the places."`
	Setting       map[string]string `placeholder:"NAME=VALUE" use:"" help:"Settings of the channel that are not secret."`
	Secret        map[string]string `placeholder:"NAME=VALUE" use:"" help:"Secrets: NAME=env:VARIABLE, NAME=@FILE, or NAME=VALUE, which other users of this host may see."`
	OnAmbiguous   *string           `placeholder:"WAY" use:"" help:"What to do with a message that may have arrived, where the service does not show it: resend_marked, resend, drop or hold. Default: resend_marked."`
	Fallback      *string           `placeholder:"CHANNEL" use:"" help:"Channel (id or name) for messages that this one refuses."`
	FallbackRoute string            `placeholder:"JSON" use:"" help:"Route in that channel, as JSON."`
}

// patch returns the request that the flags describe. Names of agents, workspaces and channels are resolved to ids.
func (f *channelFlags) patch(ctx context.Context, cl *client.Client) (client.ChannelPatch, error) {
	p := client.ChannelPatch{Description: f.Description, Settings: f.Setting, OnAmbiguous: (*schemas.OnAmbiguous)(f.OnAmbiguous)}
	if f.Place != nil {
		p.Places = &f.Place
	}
	if f.User != nil {
		p.Users = &f.User
	}
	var err error
	if p.Secrets, err = readSecrets(f.Secret); err != nil {
		return p, err
	}
	if f.Agent != nil {
		id := ""
		if *f.Agent != "" {
			if id, err = agentKind().id(ctx, cl, *f.Agent); err != nil {
				return p, err
			}
		}
		p.Agent = new(schemas.AgentID(id))
	}
	if f.Workspace != nil {
		id := ""
		if *f.Workspace != "" {
			if id, err = workspaceKind().id(ctx, cl, *f.Workspace); err != nil {
				return p, err
			}
		}
		p.Workspace = new(schemas.WorkspaceID(id))
	}
	switch {
	case f.Fallback == nil && f.FallbackRoute != "":
		return p, schemas.Invalidf("fallback", "is missing: --fallback-route is a place in the channel that --fallback names")
	case f.Fallback == nil:
	case *f.Fallback == "":
		p.Fallback = &schemas.ChannelPlace{Route: json.RawMessage(`{}`)}
	case !json.Valid([]byte(f.FallbackRoute)):
		return p, schemas.Invalidf("fallback-route", "is not JSON: write the place, such as '{\"chat_id\":4711}'")
	default:
		c, err := findChannel(ctx, cl, *f.Fallback)
		if err != nil {
			return p, err
		}
		p.Fallback = &schemas.ChannelPlace{Channel: c.ID, Route: json.RawMessage(f.FallbackRoute)}
	}
	return p, nil
}

// readSecrets reads the values of secrets: from the environment for env:VARIABLE, from a file for @FILE, else the text itself.
func readSecrets(given map[string]string) (map[string]string, error) {
	var out map[string]string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if variable, ok := strings.CutPrefix(value, "env:"); ok {
			if value = os.Getenv(variable); value == "" {
				return nil, schemas.Invalidf("secret", "%s: the variable %q is not in this environment", name, schemas.Quotable(variable))
			}
		} else if file, ok := strings.CutPrefix(value, "@"); ok {
			b, err := os.ReadFile(file)
			if err != nil {
				return nil, fmt.Errorf("read the secret %s: %w", name, err)
			}
			value = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out, nil
}

// findChannel finds a channel by its id or name.
func findChannel(ctx context.Context, cl *client.Client, meant string) (schemas.ChatChannel, error) {
	if strings.HasPrefix(meant, schemas.ChannelPrefix) {
		return cl.Channels().Get(ctx, schemas.ChannelID(meant))
	}
	list, err := cl.Channels().List(ctx)
	if err != nil {
		return schemas.ChatChannel{}, err
	}
	var have []string
	for _, c := range list {
		if c.Name == meant {
			return c, nil
		}
		have = append(have, c.Name)
	}
	there := "none exists yet"
	if len(have) > 0 {
		there = "use " + orList(have)
	}
	return schemas.ChatChannel{}, schemas.OpErrorf(schemas.NotFound, "channel", "there is no channel %q: %s", schemas.Quotable(meant),
		printable(there))
}

type channelsCreateCommand struct {
	gatewayTarget
	channelFlags

	Kind string `arg:"" help:"Chat service: sandjet channels kinds lists them."`
	Name string `arg:"" help:"Name of the channel."`
}

// Run creates a channel.
func (c *channelsCreateCommand) Run(ctx context.Context, t terminal) error {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	p, err := c.patch(ctx, cl)
	if err != nil {
		return err
	}
	made, err := cl.Channels().Add(ctx, client.ChannelSpec{
		Kind: c.Kind, Name: c.Name, Description: deref(p.Description), Agent: deref(p.Agent), Workspace: deref(p.Workspace),
		Places: deref(p.Places), Users: deref(p.Users), Settings: p.Settings, Secrets: p.Secrets, OnAmbiguous: deref(p.OnAmbiguous),
		Fallback: p.Fallback,
	})
	if err != nil {
		return err
	}
	return printChannel(t, made)
}

func deref[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

// channelTarget names a channel and its gateway.
type channelTarget struct {
	gatewayTarget

	Channel string `arg:"" name:"channel" help:"Id or name of the channel."`
}

func (c *channelTarget) find(ctx context.Context, t terminal) (*client.Client, schemas.ChatChannel, error) {
	cl, err := c.dial(ctx, t)
	if err != nil {
		return nil, schemas.ChatChannel{}, err
	}
	found, err := findChannel(ctx, cl, c.Channel)
	return cl, found, err
}

type channelsListCommand struct{ listTarget }

// Run lists the channels.
func (c *channelsListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Channels().List(ctx)
		if err != nil {
			return err
		}
		const columns = "ID\tNAME\tKIND\tSTATE\tAGENT\tPLACES\tCREATED\tDESCRIPTION*"
		return printList(t, list, "No channels.", columns, func(c schemas.ChatChannel) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", c.ID, printable(c.Name), printable(c.Kind), channelState(c),
				orDash(string(c.Agent)), orDash(short(strings.Join(c.Places, ","))), ago(c.Created), orDash(short(c.Description)))
		})
	})
}

func channelState(c schemas.ChatChannel) string {
	if c.Disabled {
		return "disabled"
	}
	return "enabled"
}

type channelsGetCommand struct{ channelTarget }

// Run shows a channel.
func (c *channelsGetCommand) Run(ctx context.Context, t terminal) error {
	_, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	return printChannel(t, found)
}

func printChannel(t terminal, c schemas.ChatChannel) error {
	switch {
	case t.json:
		return printJSON(t.out, c)
	case t.names:
		return printID(t, c)
	}
	var d details
	d.line("id", string(c.ID))
	d.line("name", c.Name)
	d.line("kind", c.Kind)
	d.line("state", channelState(c))
	d.line("reason", c.Reason)
	d.line("description", c.Description)
	d.line("agent", string(c.Agent))
	d.line("workspace", string(c.Workspace))
	d.line("places", strings.Join(c.Places, ", "))
	d.line("users", strings.Join(c.Users, ", "))
	for _, name := range slices.Sorted(maps.Keys(c.Settings)) {
		d.line("setting", name+"="+c.Settings[name])
	}
	d.line("secrets", strings.Join(slices.Sorted(maps.Keys(c.Secrets)), ", "))
	d.line("on ambiguous", string(c.OnAmbiguous))
	if c.Fallback != nil {
		d.line("fallback", string(c.Fallback.Channel)+" "+string(c.Fallback.Route))
	}
	d.line("created", dated(c.Created))
	d.at("updated", c.Updated)
	_, err := io.WriteString(t.out, d.String())
	return wrapOutput(err)
}

type channelsUpdateCommand struct {
	channelTarget
	channelFlags

	Rename  *string `placeholder:"NAME" use:"" help:"New name."`
	Enable  bool    `use:"" xor:"state" help:"Enable the channel again."`
	Disable bool    `use:"" xor:"state" help:"Disable the channel: it neither sends nor receives."`
}

// Run changes a channel.
func (c *channelsUpdateCommand) Run(ctx context.Context, t terminal) error {
	cl, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	p, err := c.patch(ctx, cl)
	if err != nil {
		return err
	}
	p.Name = c.Rename
	if c.Enable || c.Disable {
		p.Disabled = &c.Disable
	}
	changed, err := cl.Channels().Update(ctx, found.ID, p)
	if err != nil {
		return err
	}
	return printChannel(t, changed)
}

type channelsDeleteCommand struct{ channelTarget }

// Run removes a channel.
func (c *channelsDeleteCommand) Run(ctx context.Context, t terminal) error {
	cl, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	return printRemoved(t, string(found.ID), cl.Channels().Remove(ctx, found.ID))
}

type channelsKindsCommand struct{}

// Run lists the chat services that this program speaks to.
func (*channelsKindsCommand) Run(_ context.Context, t terminal) error {
	type line struct {
		Kind     string `json:"kind"`
		Secret   string `json:"secret"`
		Required bool   `json:"required"`
		About    string `json:"about"`
	}
	var list []line
	for _, k := range channelKinds(chats()) {
		for _, s := range k.Secrets {
			list = append(list, line{k.Name, s.Name, s.Required, s.About})
		}
	}
	return printList(t, list, "This build speaks to no chats.", "KIND\tSECRET\tNEEDED\tABOUT", func(l line) string {
		needed := "-"
		if l.Required {
			needed = "yes"
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", l.Kind, l.Secret, needed, l.About)
	})
}
