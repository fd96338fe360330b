package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type webhooksCommand struct {
	Add    webhooksAddCommand    `cmd:"" help:"Create an endpoint: events are posted to its URL."`
	LS     webhooksListCommand   `cmd:"" name:"ls" help:"List endpoints."`
	Show   webhooksShowCommand   `cmd:"" help:"Show an endpoint."`
	RM     webhooksRemoveCommand `cmd:"" name:"rm" help:"Remove an endpoint and its pending deliveries."`
	Enable webhooksEnableCommand `cmd:"" help:"Enable an endpoint that was disabled."`
	Rotate webhooksRotateCommand `cmd:"" help:"Give an endpoint a new secret."`
	Test   webhooksTestCommand   `cmd:"" help:"Send a test event to an endpoint."`
	Replay webhooksReplayCommand `cmd:"" help:"Redeliver events under their first ids."`
}

// Help returns the detailed help, for kong.
func (*webhooksCommand) Help() string {
	return `Events are posted as Standard Webhooks describe: signed, each at least once, under the same webhook-id on
every attempt, for three days. An endpoint that answers 410, or fails for five days, is disabled.

Examples:
  sandjet webhooks add https://example.com/hooks --events job.finished,followup.created
  sandjet webhooks test wh_01j…
  sandjet webhooks replay --since 2h`
}

type webhooksAddCommand struct {
	gatewayTarget

	To          string   `arg:"" name:"receiver" help:"URL to post to (https)."`
	Events      []string `placeholder:"TYPE" use:"" help:"Only events of these types. Default: all types."`
	Legacy      bool     `use:"" help:"Also send the header X-Webhook-Signature, for receivers that check that one."`
	Description string   `placeholder:"TEXT" use:"" help:"Free-text description."`
	ContentType string   `placeholder:"TYPE" use:"" help:"Content type of the requests: application/json or application/cloudevents+json. Default: application/json."`
	Concurrency int      `placeholder:"N" use:"" help:"Requests at the same time. Default: 4."`
}

// Run adds an endpoint.
func (c *webhooksAddCommand) Run(ctx context.Context, t terminal) error {
	spec := client.WebhookSpec{URL: c.To, Legacy: c.Legacy, ContentType: c.ContentType, Description: c.Description, Concurrency: c.Concurrency}
	for _, e := range c.Events {
		spec.Events = append(spec.Events, schemas.EventType(e))
	}
	asked := schemas.Endpoint{URL: spec.URL, Events: spec.Events, ContentType: spec.ContentType, Concurrency: spec.Concurrency,
		Description: spec.Description}
	if err := asked.Validate(); err != nil { // before connecting
		return err
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	e, err := cl.Webhooks().Add(ctx, spec)
	if err != nil {
		return err
	}
	return printSecret(t, e)
}

// printSecret prints an endpoint with its newest secret, which cannot be shown again.
func printSecret(t terminal, e schemas.Endpoint) error {
	if t.json {
		return printJSON(t.out, e)
	}
	secret := ""
	if len(e.Secrets) > 0 {
		secret = e.Secrets[0].Key
	}
	return say(t, "id      %s\nurl     %s\nsecret  %s\nThe secret is shown only now: the receiver needs it to check signatures.",
		e.ID, printable(e.URL), secret)
}

type webhooksListCommand struct{ listTarget }

// Run lists the endpoints.
func (c *webhooksListCommand) Run(ctx context.Context, t terminal) error {
	return c.list(ctx, t, func(ctx context.Context, t terminal, cl *client.Client) error {
		list, err := cl.Webhooks().List(ctx)
		if err != nil {
			return err
		}
		return printList(t, list, "No webhooks.", "ID\tSTATE\tCREATED\tFAILING SINCE*\tEVENTS\tURL\tDESCRIPTION",
			func(e schemas.Endpoint) string {
				return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", e.ID, endpointState(e), ago(e.Created), ago(e.FailingSince), eventNames(e.Events),
					printable(e.URL), orDash(short(e.Description)))
			})
	})
}

func endpointState(e schemas.Endpoint) string {
	switch {
	case e.Disabled:
		return "disabled"
	case !e.FailingSince.IsZero():
		return "failing"
	}
	return "enabled"
}

func eventNames(types []schemas.EventType) string {
	if len(types) == 0 {
		return "all"
	}
	names := make([]string, len(types))
	for i, e := range types {
		names[i] = string(e)
	}
	return strings.Join(names, ",")
}

// webhookTarget names an endpoint and its gateway.
type webhookTarget struct {
	gatewayTarget

	ID string `arg:"" help:"Id of the endpoint."`
}

func (w *webhookTarget) dial(ctx context.Context, t terminal) (*client.Client, schemas.EndpointID, error) {
	return dialAbout(ctx, t, &w.gatewayTarget, schemas.EndpointID(w.ID))
}

type webhooksShowCommand struct{ webhookTarget }

// Run shows an endpoint.
func (c *webhooksShowCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	e, err := cl.Webhooks().Get(ctx, id)
	if err != nil {
		return err
	}
	return printEndpoint(t, e)
}

func printEndpoint(t terminal, e schemas.Endpoint) error {
	switch {
	case t.json:
		return printJSON(t.out, e)
	case t.names:
		return printID(t, e)
	}
	var d details
	d.line("id", string(e.ID))
	d.line("url", e.URL)
	d.line("state", endpointState(e))
	d.line("reason", e.Reason)
	d.line("events", eventNames(e.Events))
	d.line("description", e.Description)
	d.line("secrets", fmt.Sprint(len(e.Secrets)))
	d.line("created", dated(e.Created))
	d.at("failing since", e.FailingSince)
	_, err := io.WriteString(t.out, d.String())
	return wrapOutput(err)
}

type webhooksRemoveCommand struct{ webhookTarget }

// Run removes an endpoint.
func (c *webhooksRemoveCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	if err := cl.Webhooks().Remove(ctx, id); err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"removed": id})
	}
	return say(t, "Removed %s", id)
}

type webhooksEnableCommand struct{ webhookTarget }

// Run enables an endpoint.
func (c *webhooksEnableCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	e, err := cl.Webhooks().Update(ctx, id, client.WebhookPatch{Disabled: new(false)})
	if err != nil {
		return err
	}
	return printEndpoint(t, e)
}

type webhooksRotateCommand struct {
	webhookTarget

	Overlap time.Duration `placeholder:"DURATION" default:"24h" use:"" help:"How long the old secret keeps signing too."`
}

// Run gives an endpoint a new secret.
func (c *webhooksRotateCommand) Run(ctx context.Context, t terminal) error {
	if c.Overlap <= 0 {
		return schemas.Invalidf("overlap", "%s is out of range: write how long both secrets sign, such as 1h; at most a week", c.Overlap)
	}
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	e, err := cl.Webhooks().RotateSecret(ctx, id, c.Overlap)
	if err != nil {
		return err
	}
	return printSecret(t, e)
}

type webhooksTestCommand struct{ webhookTarget }

// Run sends a test event to an endpoint.
func (c *webhooksTestCommand) Run(ctx context.Context, t terminal) error {
	cl, id, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	delivery, err := cl.Webhooks().Test(ctx, id)
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]any{"delivery": delivery})
	}
	return say(t, "Sent %s to %s", delivery, id)
}

type webhooksReplayCommand struct {
	gatewayTarget

	Since    string `placeholder:"TIME" use:"" help:"Deliveries created since: a duration back from now such as 2h, or a time such as 2026-11-21T08:00:00Z."`
	Endpoint string `placeholder:"ID" use:"" help:"Only deliveries to this endpoint."`
	ID       string `name:"id" placeholder:"ID" use:"" help:"Only this delivery, by its webhook-id."`
}

// Run requeues deliveries.
func (c *webhooksReplayCommand) Run(ctx context.Context, t terminal) error {
	since, err := moment(c.Since, time.Now())
	if err != nil {
		return err
	}
	if since.IsZero() && c.ID == "" {
		return schemas.Invalidf("since", "is missing: say from when on, or which delivery with --id")
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	n, err := cl.Webhooks().Replay(ctx, client.WebhookReplay{
		Since: since, Endpoint: schemas.EndpointID(c.Endpoint), ID: schemas.DeliveryID(c.ID),
	})
	if err != nil {
		if n > 0 {
			err = fmt.Errorf("%s requeued, the others are not: %w", count(n, "delivery", "deliveries"), err)
		}
		return err
	}
	if t.json {
		return printJSON(t.out, map[string]int{"replayed": n})
	}
	return say(t, "Requeued %s", count(n, "delivery", "deliveries"))
}

// moment parses a time, or a duration back from now. It returns the zero time for an empty text. Code: invalid.
func moment(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil || at.IsZero() {
		return time.Time{}, schemas.Invalidf("since", "%q is neither a duration such as 2h nor a time such as %s", schemas.Quotable(s),
			now.UTC().Format(time.RFC3339))
	}
	return at, nil
}
