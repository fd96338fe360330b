package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandjet/sandjet/bench"
	"github.com/sandjet/sandjet/providers/docker"
	"github.com/sandjet/sandjet/providers/local"
)

type benchCommand struct {
	What    []string      `arg:"" optional:"" enum:"throughput,latency,local,boxes,docker,network,footprint,backlog,fairness,chats,files,mcp,jobs,records,replay,replay-idle,replay-hot,replay-storm,replay-live,replay-cold" help:"What to measure: throughput, latency, local, boxes, docker, network, footprint, backlog, fairness, chats, files, mcp, jobs, records, replay or a part of it such as replay-hot. Default: all of them but docker." use:""`
	Calls   int           `placeholder:"N" default:"20000" help:"Calls of one run of throughput and footprint; 20000 by default." use:""`
	Rounds  int           `placeholder:"N" default:"5" help:"Interleaved rounds of throughput, 5 by default; local and docker measure 40 runs in each." use:""`
	Backlog int           `placeholder:"N" default:"100000" help:"Calls to queue before they are drained (backlog), and records (records); 100000 by default." use:""`
	Workers int           `placeholder:"N" default:"32" help:"Slots of the worker; 32 by default." use:""`
	Clients int           `placeholder:"N" default:"5000" help:"Sockets of replay; 5000 by default. Each takes an open file here and one at the gateway." use:""`
	Among   int           `placeholder:"N" default:"1000" help:"Conversations in the log of which replay reads one, and events in each; 1000 by default." use:""`
	Live    time.Duration `placeholder:"DURATION" default:"10s" help:"Duration of each measurement of live events; 10s by default." use:""`
	Program string        `placeholder:"FILE" help:"Program sandjet-box, for local; default: as for a worker." use:""`

	DockerImage string `placeholder:"IMAGE" default:"sandjet-sandbox" help:"Docker image to measure with. It is not pulled." use:""`
}

// Help returns the detailed help, for kong.
func (*benchCommand) Help() string {
	return `Measures Sandjet beside the bare engine under it, in the same run, and prints the tables of
docs/BENCHMARKS.md. Nothing outside a temporary folder is touched.

  throughput  no-op calls a second, acceptance to result, against bare JetStream
  latency     one no-op call at a time, against a bare JetStream round trip
  local       "true" in a cold, a pooled and a kept box, against a plain shell and bubblewrap
  boxes       memory of 200 kept boxes at once, against processes that only sleep
  docker      containers of the engine of DOCKER_HOST, against the engine alone; only when it is named
  network     requests from a box through its relay, against the same made directly
  footprint   bytes of disk and memory per call
  backlog     queue many calls, then drain them
  fairness    a lone call beside 10,000 of another account, against the same undisturbed
  chats       messages to chats a second by one deliverer, and beside chats that are limited
  files       megabytes a second up and down, against a server that only copies a file
  mcp         a call by the Model Context Protocol, against the same by POST /v1/calls
  records     requests resolved a second, many records read at the start, a change seen elsewhere
  replay      conversations shown to many sockets: replay-idle (memory), replay-hot (from memory),
              replay-storm (all come back at once), replay-live (publish to frame), replay-cold (from the log)
  jobs        ends of background jobs settled a second, and the way of one to a WebSocket

Examples:
  sandjet bench                       all of it, ten minutes
  sandjet bench local --rounds 10     400 runs of each kind of box
  sandjet bench throughput --json     for programs
  sandjet bench replay --clients 1000 --rounds 1

Take ratios within one run seriously, and single figures of a busy machine not at all.`
}

// Run runs the benchmarks and prints their reports.
func (c *benchCommand) Run(ctx context.Context, t terminal) error {
	const latencies, perRound, inFlight, keptBoxes, flood, fileSize = 500, 40, 5000, 200, 10_000, 128 << 20
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	crowd := bench.Crowd{Program: self, Clients: c.Clients, Rounds: c.Rounds, Interleaved: c.Among, Live: c.Live}
	all := []struct {
		name string
		run  func() (bench.Report, error)
	}{
		{"throughput", func() (bench.Report, error) {
			return bench.Throughput(ctx, bench.Size{Calls: c.Calls, Rounds: c.Rounds}, c.Workers)
		}},
		{"latency", func() (bench.Report, error) { return bench.Latency(ctx, latencies) }},
		{"local", func() (bench.Report, error) {
			return bench.Local(ctx, perRound*c.Rounds, local.Options{Box: c.Program})
		}},
		{"boxes", func() (bench.Report, error) { return bench.KeptBoxes(ctx, keptBoxes, local.Options{Box: c.Program}) }},
		{"docker", func() (bench.Report, error) {
			o := docker.Options{Image: c.DockerImage, Pull: docker.PullNever}
			return bench.Docker(ctx, perRound*c.Rounds, o, local.Options{Box: c.Program})
		}},
		{"network", func() (bench.Report, error) {
			return bench.Network(ctx, perRound*c.Rounds, local.Options{Box: c.Program})
		}},
		{"footprint", func() (bench.Report, error) { return bench.Footprint(ctx, c.Calls, inFlight) }},
		{"backlog", func() (bench.Report, error) { return bench.Backlog(ctx, c.Backlog, c.Workers) }},
		{"fairness", func() (bench.Report, error) { return bench.Fairness(ctx, flood, c.Rounds, c.Workers) }},
		{"chats", func() (bench.Report, error) { return bench.Chats(ctx, bench.Size{Calls: c.Calls, Rounds: c.Rounds}) }},
		{"files", func() (bench.Report, error) { return bench.Files(ctx, fileSize, c.Rounds) }},
		{"mcp", func() (bench.Report, error) { return bench.MCP(ctx, latencies) }},
		{"jobs", func() (bench.Report, error) { return bench.Settle(ctx, bench.Size{Calls: c.Calls, Rounds: c.Rounds}) }},
		{"jobs", func() (bench.Report, error) { return bench.JobEnd(ctx, latencies) }},
		{"records", func() (bench.Report, error) { return bench.Records(ctx, c.Backlog, c.Rounds) }},
		{"replay-idle", func() (bench.Report, error) { return bench.ReplayIdle(ctx, crowd) }},
		{"replay-hot", func() (bench.Report, error) { return bench.ReplayHot(ctx, crowd) }},
		{"replay-storm", func() (bench.Report, error) { return bench.ReplayStorm(ctx, crowd) }},
		{"replay-live", func() (bench.Report, error) { return bench.ReplayLive(ctx, crowd) }},
		{"replay-cold", func() (bench.Report, error) { return bench.ReplayCold(ctx, crowd) }},
	}
	for _, b := range all {
		whole, _, _ := strings.Cut(b.name, "-")
		if len(c.What) == 0 && b.name == "docker" || len(c.What) > 0 && !slices.Contains(c.What, b.name) && !slices.Contains(c.What, whole) {
			continue
		}
		if !t.json {
			fmt.Fprintf(t.err, "measuring %s …\n", b.name)
		}
		r, err := b.run()
		if err != nil {
			return fmt.Errorf("bench %s: %w", b.name, err)
		}
		if t.json {
			err = printJSON(t.out, r)
		} else {
			var text strings.Builder
			if err = r.Write(&text); err == nil {
				_, err = fmt.Fprint(t.out, text.String())
			}
		}
		if err != nil {
			return wrapOutput(err)
		}
	}
	return nil
}

// Validate is called by kong once everything is parsed.
func (c *benchCommand) Validate() error {
	if c.Calls < 10 || c.Backlog < 10 || c.Clients < 10 || c.Among < 10 || c.Rounds < 1 || c.Workers < 1 || c.Live <= 0 {
		return fmt.Errorf("--calls, --backlog, --clients and --among must be at least 10, --rounds and --workers at least 1, and --live more " +
			"than nothing")
	}
	return nil
}
