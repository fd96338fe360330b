package main

import (
	"context"
)

type channelsSetupCommand struct {
	channelTarget

	PublicURL string `arg:"" help:"URL at which chat services reach the gateway: https://HOST."`
}

// Help returns the detailed help, for kong.
func (*channelsSetupCommand) Help() string {
	return `Chat services post messages to the gateway's address /webhooks/ACCOUNT/CHANNEL. Telegram, Zalo and Discord are told that address,
by the channel's credential; for Discord the commands are registered too. Of the others the address is printed, to be entered
on their own pages. Doing it again is harmless. The gateway must speak to the services: "sandjet up" does.

Examples:
  sandjet channels setup support https://agents.example.com`
}

// Run sets the channel up and prints the address.
func (c *channelsSetupCommand) Run(ctx context.Context, t terminal) error {
	cl, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	out, err := cl.Channels().SetUp(ctx, found.ID, c.PublicURL)
	if err != nil {
		return err
	}
	switch {
	case t.json:
		return printJSON(t.out, out)
	case out.Registered:
		return say(t, "%s posts to %s.", found.Kind, out.Address)
	}
	return say(t, "Enter this address at %s: %s", found.Kind, out.Address)
}
