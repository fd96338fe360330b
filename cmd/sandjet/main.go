package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/sandjet/sandjet/providers/local/boxentry" // boxes are this program, started anew
)

// terminal is what a command may say and hear.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	json     bool
	log      *slog.Logger
}

// command is what parsing returns: the words of one use, ready to be carried out.
type command interface {
	// Run carries the command out. The end of ctx is the wish of the person in front of it to stop.
	Run(ctx context.Context, t terminal) error
}

func main() {
	os.Exit(execute(os.Args[1:], os.LookupEnv, terminal{in: os.Stdin, out: guardTerminal(os.Stdout), err: guardTerminal(os.Stderr)}))
}

// execute parses and runs one command line and returns its exit code.
func execute(args []string, env func(string) (string, bool), t terminal) int {
	p, err := parse(args, env)
	if err != nil {
		if h, ok := errors.AsType[helpError](err); ok {
			_, _ = io.WriteString(t.out, string(h))
			return exitOK
		}
		fmt.Fprintln(t.err, "sandjet:", printable(err.Error()))
		return exitUsage
	}
	t.json = p.JSON
	t.log = newLog(t.err, p.LogLevel, p.JSON)
	ctx, stop := interruptible(context.Background())
	defer stop()
	return report(t, p.command.Run(ctx, t))
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM, and a function that ends it too. A
// second signal ends the process at once, from before the context ends: whoever sees it end may send that.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	told := make(chan os.Signal, 1)
	signal.Notify(told, os.Interrupt, syscall.SIGTERM)
	ctx, end := context.WithCancelCause(parent)
	go func() {
		select {
		case s := <-told:
			signal.Stop(told)
			end(fmt.Errorf("%s signal received", s))
		case <-ctx.Done():
			signal.Stop(told)
		}
	}()
	return ctx, func() { end(nil) }
}

// report tells an error once and returns the exit code that goes with it.
func report(t terminal, err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.err != nil {
			fmt.Fprintln(t.err, "sandjet:", printable(e.err.Error()))
		}
		return e.code
	}
	fmt.Fprintln(t.err, "sandjet:", printable(err.Error()))
	return exitCode(err)
}

func newLog(w io.Writer, level slog.Level, json bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
