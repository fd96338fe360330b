package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/schemas"
	"github.com/sandjet/sandjet/streams"
)

type instancesSweepCommand struct {
	logFlags

	DryRun   bool          `use:"" help:"Dry run: list what would be done."`
	Provider string        `placeholder:"NAME" use:"" help:"Only instances of this provider. Default: of all that have a worker."`
	Grace    time.Duration `placeholder:"DURATION" default:"15m" use:"" help:"Skip instances younger than this: they may still be starting."`
}

// Help returns the detailed help, for kong.
func (*instancesSweepCommand) Help() string {
	return `Compares what providers keep with the records of instances, over all accounts. A box without a record, whose worker died
before it wrote one, is adopted: from then on calls use it, and it ends when it is idle, too old or its sandbox is
deleted. The record of a box that is gone is forgotten. Of two boxes that
were made for one key at once, the one that no record names is ended. Boxes of other deployments are never looked at. Workers do
the same by themselves every ten minutes.

This is for operators: it talks to the log itself, on which it asks a worker of each provider. On the data folder of
"sandjet up" or "sandjet server" it finds the log by itself, else name it with --nats-url and a credential that
may do everything.

Examples:
  sandjet sandboxes instances sweep --dry-run
  sandjet sandboxes instances sweep --provider docker --grace 1h`
}

// sweptOrphan is a line of the output: an orphan with its provider.
type sweptOrphan struct {
	Provider string `json:"provider"`
	schemas.Orphan
}

// Run has a worker of each provider sweep, and lists the orphans.
func (c *instancesSweepCommand) Run(ctx context.Context, t terminal) error {
	names := catalog().Names()
	if c.Provider != "" {
		if !slices.Contains(names, c.Provider) {
			return schemas.Invalidf("provider", "%q is unknown: use one of %s", schemas.Quotable(c.Provider), strings.Join(names, ", "))
		}
		names = []string{c.Provider}
	}
	if c.Grace < 0 {
		return schemas.Invalidf("grace", "%s is below 0", c.Grace)
	}
	n, err := c.reach(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	var found []sweptOrphan
	asked := 0
	for _, name := range names {
		report, err := c.ask(ctx, n, name)
		if schemas.CodeOf(err) == schemas.Unavailable && c.Provider == "" && ctx.Err() == nil { // the provider has no worker
			continue
		}
		if err != nil {
			return fmt.Errorf("provider %s: %w", name, err)
		}
		asked++
		for _, o := range report.Orphans {
			found = append(found, sweptOrphan{name, o})
		}
		if report.More {
			fmt.Fprintf(t.err, "sandjet: %s has more than these %d: sweep again\n", name, len(report.Orphans))
		}
	}
	if asked == 0 {
		return schemas.Errorf(schemas.Unavailable, "no worker answers: start one of the provider whose instances are meant")
	}
	return printList(t, found, "No orphans.", "KEY\tACTION\tDONE\tSINCE\tPROVIDER\tBOX", func(o sweptOrphan) string {
		return fmt.Sprintf("%s\t%s\t%t\t%s\t%s\t%s", printable(o.Key), o.Action, o.Done, ago(o.Since), o.Provider, printable(o.Ref))
	})
}

// ask has a worker of a provider sweep. Code unavailable: it has no worker.
func (c *instancesSweepCommand) ask(ctx context.Context, n *node, provider string) (schemas.SweepReport, error) {
	const within = 90 * time.Second // longer than any sweep of a worker
	var report schemas.SweepReport
	q, err := json.Marshal(schemas.SweepRequest{DryRun: c.DryRun, Grace: schemas.Duration(c.Grace)})
	if err != nil {
		return report, fmt.Errorf("encode the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	data, err := n.bus.Ask(ctx, streams.SweepSubject(provider), q)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return report, schemas.Wrap(schemas.Internal, "sweep", "the worker's answer is not understood", err)
	}
	if report.Error != nil {
		return report, report.Error
	}
	return report, nil
}
