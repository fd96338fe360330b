package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sandjet/sandjet/streams"
)

type logCommand struct {
	LS       logListCommand     `cmd:"" name:"ls" help:"List the streams of the log and their replicas."`
	Replicas logReplicasCommand `cmd:"" help:"Set the number of replicas of all streams."`
}

// Help returns the detailed help, for kong.
func (*logCommand) Help() string {
	return `The log is what NATS keeps: calls, events, records. How many replicas each stream has is set when the log is
created, by --replicas of the process that creates it, and is stored in the log. No role changes it later.

These commands talk to the log itself. On the data folder of "sandjet up" or "sandjet server" they find
it by themselves, else name it with --nats-url and a credential that may do everything.

Examples:
  sandjet log ls --nats-url nats://nats-1:4222
  sandjet log replicas 3 --nats-url nats://nats-1:4222`
}

type logListCommand struct{ logFlags }

// Run lists the streams.
func (c *logListCommand) Run(ctx context.Context, t terminal) error {
	n, err := c.reach(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	copies, err := streams.Copies(ctx, n.bus)
	if err != nil {
		return err
	}
	if t.json {
		for _, s := range copies {
			if err := printJSON(t.out, s); err != nil {
				return err
			}
		}
		return nil
	}
	const gap = 2
	w := tabwriter.NewWriter(t.out, 0, 0, gap, ' ', 0)
	fmt.Fprintln(w, "STREAM\tREPLICAS\tLEADER\tLAGGING\tCOMPRESSED")
	for _, s := range copies {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%t\n", s.Stream, s.Replicas, s.Leader, strings.Join(s.Behind, ","), s.Compressed)
	}
	fmt.Fprintf(w, "\nThe log is kept in %d copies.\n", n.bus.Replicas())
	return wrapOutput(w.Flush())
}

type logReplicasCommand struct {
	logFlags

	N    int           `arg:"" help:"Replicas of each stream: 1, 3 or 5."`
	Wait time.Duration `placeholder:"DURATION" default:"10m" use:"" help:"How long to wait until all replicas are complete."`
}

// Help returns the detailed help, for kong.
func (*logReplicasCommand) Help() string {
	return `Sandjet keeps running meanwhile; the servers copy the data. A lower number removes replicas: from then on fewer
servers may be lost. Streams with several replicas are not compressed: streams that were compressed before stop
being so when their servers restart, so restart these one after the other.

Examples:
  sandjet log replicas 3 --nats-url nats://nats-1:4222`
}

// Run sets the number.
func (c *logReplicasCommand) Run(ctx context.Context, t terminal) error {
	n, err := c.reach(ctx, t)
	if err != nil {
		return err
	}
	defer n.close()
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	last := -1
	err = streams.SetReplicas(ctx, n.bus, c.N, func(todo []string) {
		if last != len(todo) {
			n.log.Info("replicas are being created", "streams", len(todo))
			last = len(todo)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "The log is kept in %d copies.\n", c.N)
	return wrapOutput(err)
}
