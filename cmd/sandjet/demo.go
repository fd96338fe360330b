package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sandjet/sandjet/client"
)

type demoCommand struct {
	AllowUnisolated bool `group:"Security" help:"Continue even if this host cannot isolate sandboxes. The tour's commands can then do whatever this user can."`
	Keep            bool `use:"" help:"Keep the temporary folder and print its path."`
}

// Help returns the detailed help, for kong.
func (*demoCommand) Help() string {
	return `Starts everything in a temporary folder and leads through it by the public interfaces alone: the HTTP API,
its event stream and plain NATS. Each step says what happens and why, and is checked: the exit code is
0 only when all went as promised. Nothing is left behind.

Examples:
  sandjet demo
  sandjet demo --json        a line for each step, for programs`
}

const demoLimit = 5 * time.Minute // the tour takes ten seconds, and some times that on a busy machine; beyond, something hangs

// Run runs the tour.
func (c *demoCommand) Run(ctx context.Context, t terminal) (err error) {
	ctx, stop := context.WithTimeout(ctx, demoLimit)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	// The reader of the output may stop reading, as head does. Writing then fails, and the tour ends and cleans up as after Ctrl-C.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	t.out = &broken{to: t.out, failed: leave}
	dir, err := os.MkdirTemp("", "sandjet-demo-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	defer func() {
		if c.Keep {
			fmt.Fprintln(t.err, "kept:", dir)
			return
		}
		if rerr := removeFolder(dir); rerr != nil && err == nil {
			err = fmt.Errorf("clean up: %w", rerr)
		}
	}()
	log, logged, err := demoLog(dir)
	if err != nil {
		return err
	}
	defer logged.Close() //nolint:errcheck // it goes with the folder
	begun := time.Now()
	d := &demo{t: t, dir: dir, unisolated: c.AllowUnisolated, log: log}
	if err := d.lead(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			err = fmt.Errorf("it took longer than %s: %w", demoLimit, err)
		}
		if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded) { // the user has left
			return &exitError{code: exitCancelled, err: fmt.Errorf("the tour ended early: %w", cause)}
		}
		return fmt.Errorf("the tour ended early: %w%s", err, lastLines(filepath.Join(dir, "demo.log")))
	}
	return d.farewell(time.Since(begun))
}

// removeFolder removes a folder, and retries while ending processes still write to it.
func removeFolder(dir string) (err error) {
	const tries, between = 20, 50 * time.Millisecond
	for range tries {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(between)
	}
	return fmt.Errorf("remove %s: %w", dir, err)
}

// broken is a writer that reports its first failure.
type broken struct {
	to     io.Writer
	failed func(error)
}

// Write writes, and reports a failure.
func (b *broken) Write(p []byte) (int, error) {
	n, err := b.to.Write(p)
	if err != nil {
		b.failed(fmt.Errorf("print: %w", err))
	}
	return n, err
}

// demoLog opens the log file of the tour. Its end is printed only if the tour fails.
func demoLog(dir string) (*slog.Logger, io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "demo.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, privateFile) // our own folder
	if err != nil {
		return nil, nil, fmt.Errorf("demo log: %w", err)
	}
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelInfo})), f, nil
}

// lastLines returns the end of a file, for an error message.
func lastLines(path string) string {
	const most = 2000           // bytes
	b, err := os.ReadFile(path) // our own file
	if err != nil || len(b) == 0 {
		return ""
	}
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return "\n--- the end of the log\n" + string(b)
}

// demo is one run of the tour.
type demo struct {
	t          terminal
	dir        string
	log        *slog.Logger
	unisolated bool

	at     endpoint
	client *client.Client
	worker *workerProcess
	story  *story
	number int
}

// lead starts everything, runs one step after the other, and stops everything.
func (d *demo) lead(ctx context.Context) (err error) {
	d.print("Sandjet runs the tool calls of AI agents. This tour starts all of it in a temporary folder:\n" +
		"a NATS server, the HTTP gateway and, as a process of its own, a worker. It takes about ten seconds.\n")
	n, err := d.start(context.WithoutCancel(ctx)) // not cancelled: it is short, and a server that is abandoned while it starts would keep writing
	if err != nil {
		return err
	}
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer func() {
		stopParts()
		running.Wait()
		n.close()
	}()
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	running.Go(func() {
		if rerr := n.run(parts); rerr != nil {
			broken(rerr)
		}
	})
	d.at, d.client = n.endpoint, client.New(n.endpoint.URL, n.endpoint.Key)
	if d.worker, err = d.startWorker(ctx); err != nil {
		return err
	}
	defer func() { d.worker.kill() }()
	d.story = follow(ctx, d.client, tourConversation)
	defer d.story.stop()
	for _, s := range tour() {
		if err := d.step(ctx, s); err != nil {
			if cause := context.Cause(ctx); ctx.Err() != nil && !errors.Is(err, cause) {
				err = fmt.Errorf("%w (%w)", err, cause)
			}
			return err
		}
	}
	return nil
}

// start builds everything but the worker.
func (d *demo) start(ctx context.Context) (_ *node, err error) {
	n, err := newNode(d.log, d.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	free := address{"127.0.0.1", 0}
	l, err := n.openListener(ctx, free, "listen", false)
	if err != nil {
		return nil, err
	}
	id, err := n.dir.identity()
	if err != nil {
		return nil, err
	}
	if err := n.openServer(ctx, serverFlags{NATSListen: free, Durability: "1s"}, tenantFlags{}, id); err != nil {
		return nil, err
	}
	if err := n.openBus(ctx, natsFlags{}, topologyFlags{Replicas: 1, Shards: 1}); err != nil {
		return nil, err
	}
	if err := n.openRecords(ctx, secretsFlags{}, natsFlags{}); err != nil {
		return nil, err
	}
	if err := n.addGateway(ctx, gatewayFlags{MaxWait: time.Minute}, operatorFlags{}, tenantFlags{}, insecureFlag{}, id, l); err != nil {
		return nil, err
	}
	n.addHousekeepers()
	n.addGatewayHousekeepers()
	return n, nil
}

// step runs one step and reports how long it took.
func (d *demo) step(ctx context.Context, s step) error {
	d.number++
	d.print("\n━━ %d. %s\n   %s\n", d.number, s.title, s.why)
	begun := time.Now()
	err := s.do(d, ctx)
	took := time.Since(begun).Round(time.Millisecond)
	if d.t.json {
		line := struct {
			Step  int    `json:"step"`
			Title string `json:"title"`
			OK    bool   `json:"ok"`
			MS    int64  `json:"ms"`
			Error string `json:"error,omitzero"`
		}{Step: d.number, Title: s.title, OK: err == nil, MS: took.Milliseconds()}
		if err != nil {
			line.Error = err.Error()
		}
		if perr := printJSON(d.t.out, line); perr != nil {
			return perr
		}
	}
	if err != nil {
		return fmt.Errorf("step %d, %s: %w", d.number, s.title, err)
	}
	d.print("   ✓ %s\n", took)
	return nil
}

// print prints the story; with --json only the steps are printed.
func (d *demo) print(format string, args ...any) {
	if !d.t.json {
		fmt.Fprintf(d.t.out, format, args...)
	}
}

func (d *demo) farewell(took time.Duration) error {
	if d.t.json {
		return nil
	}
	_, err := fmt.Fprintf(d.t.out, `
All %d steps went as promised, in %.1f s. Next:
   sandjet up                            start it here; leave it running
   sandjet call bash 'echo hello'        in another terminal
   docs/guides/first-call.md             HTTP, event streams, WebSocket, plain NATS
`, d.number, took.Seconds())
	return wrapOutput(err)
}
