package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/sandjet/sandjet/schemas"
)

type channelsTestCommand struct {
	channelTarget

	To      string        `required:"" placeholder:"JSON" use:"" help:"Route: the place in the chat as the service names it, such as '{\"chat_id\":4711}'."`
	Text    string        `arg:"" optional:"" help:"Message, in Markdown. Default: a sentence that says that it is a test."`
	Timeout time.Duration `placeholder:"DURATION" default:"1m" use:"" help:"How long to wait for the chat's answer."`
}

// Run sends a message and waits until it was delivered or has failed.
func (c *channelsTestCommand) Run(ctx context.Context, t terminal) error {
	if !json.Valid([]byte(c.To)) {
		return schemas.Invalidf("to", "is not JSON: write the place, such as '{\"chat_id\":4711}'")
	}
	cl, found, err := c.find(ctx, t)
	if err != nil {
		return err
	}
	tested, err := cl.Channels().Test(ctx, found.ID, json.RawMessage(c.To), c.Text)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for item, err := range cl.Events(within, tested.Conversation, schemas.Cursor{}) {
		switch {
		case errors.Is(within.Err(), context.DeadlineExceeded):
			return schemas.Errorf(schemas.Timeout, "nothing is known of %s after %s: does a deliverer run (sandjet up, sandjet deliver)? "+
				"sandjet tail %s will show it", tested.Delivery, c.Timeout, tested.Conversation)
		case err != nil:
			return err
		}
		switch e := item.Event; e.Type {
		case schemas.DeliverySent:
			return printSent(t, e)
		case schemas.DeliveryFailed:
			d, _ := decode[schemas.DeliveryFailedData](e)
			return schemas.Errorf(schemas.Unavailable, "the message was not sent: %s", printable(d.Reason))
		default: // no other types occur on this conversation
		}
	}
	return schemas.Errorf(schemas.Timeout, "nothing is known of %s after %s: does a deliverer run (sandjet up, sandjet deliver)? "+
		"sandjet tail %s will show it", tested.Delivery, c.Timeout, tested.Conversation)
}

// printSent prints the messages that the chat has accepted.
func printSent(t terminal, e schemas.Event) error {
	d, ok := decode[schemas.DeliverySentData](e)
	if !ok {
		return schemas.Errorf(schemas.Internal, "the event of %s is not understood", e.Subject)
	}
	if t.json {
		return printJSON(t.out, d)
	}
	return printTable(t, d.Messages, "MESSAGE\tURL\tNOTE", func(m schemas.SentMessage) string {
		note := "-"
		if m.Repeat {
			note = "says that it may be a repeat"
		}
		return orDash(printable(m.ID)) + "\t" + orDash(printable(m.URL)) + "\t" + note
	})
}
