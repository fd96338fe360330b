package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	_ "github.com/sandjet/sandjet/providers/local/boxentry" // boxes are this program, started again
	"github.com/sandjet/sandjet/schemas"
)

// terminal is the input and output of a command, with the format of the output.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	json     bool
	names    bool // print the first column of a list alone
	wide     bool // print all columns of a list
	colors   bool // out is displayed in colors, even if it is not a terminal itself
	log      *slog.Logger
}

// command is a parsed command line, ready to run.
type command interface {
	// Run runs the command. When ctx ends, the user wants it to stop.
	Run(ctx context.Context, t terminal) error
}

func main() {
	os.Exit(execute(os.Args[1:], os.LookupEnv, terminal{in: os.Stdin, out: guardTerminal(os.Stdout), err: guardTerminal(os.Stderr)}))
}

// execute parses and runs one command line and returns its exit code.
func execute(args []string, env func(string) (string, bool), t terminal) int {
	t.json = wantsJSON(args, env)
	p, err := parse(args, env)
	if err != nil {
		if h, ok := errors.AsType[helpError](err); ok {
			_, _ = io.WriteString(t.out, string(h))
			return exitOK
		}
		t.complain(err)
		return exitUsage
	}
	t.names, t.wide = p.Output == "name", p.Output == "wide"
	t.json = p.JSON || p.Output == "json" || p.Output == "yaml"
	if p.Output == "yaml" {
		out := &yamlWriter{w: unguarded(t.out)}
		t.out = out
	}
	t.log = newLog(t.err, p.LogLevel, t.json)
	ctx, stop := interruptible(context.Background())
	defer stop()
	return report(t, interrupted(ctx, p.command.Run(ctx, t)))
}

// interruptible returns a context that ends with the first SIGINT or SIGTERM, and a function that ends it too. A second signal ends the
// process at once. The handler is removed before the context ends, because a caller that sees the end may send the second signal.
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

// report prints an error once and returns the exit code that goes with it.
func report(t terminal, err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.err != nil {
			t.complain(e.err)
		}
		return e.code
	}
	t.complain(err)
	return exitCode(err)
}

// complain prints an error: a line for people, or an object with code, field and message.
func (t terminal) complain(err error) {
	if !t.json {
		fmt.Fprintln(t.err, "sandjet:", printable(err.Error()))
		return
	}
	e, coded := errors.AsType[*schemas.Error](err)
	if !coded {
		e = &schemas.Error{Code: schemas.Internal}
	}
	said := map[string]any{"error": schemas.Error{Code: e.Code, Field: e.Field, Message: strings.TrimPrefix(err.Error(), e.Field+": ")}}
	if len(e.Errors) > 0 {
		said["errors"] = eachError(err, e.Errors)
	}
	_ = printJSON(t.err, said) // an error of writing to stderr cannot be reported
}

// placedError is one of several errors, with its position in a file.
type placedError struct {
	*schemas.Error

	Place string `json:"place,omitzero"` // file:line
}

// eachError returns the errors that err lists, with their positions where known.
func eachError(err error, all []*schemas.Error) []placedError {
	out := make([]placedError, len(all))
	m, placed := errors.AsType[*manifestError](err)
	for i, e := range all {
		out[i].Error = e
		if placed && i < len(m.places) {
			out[i].Place = m.places[i]
		}
	}
	return out
}

// wantsJSON reports whether errors are to be printed as JSON. It reads the arguments itself, so that errors of parsing are included.
func wantsJSON(args []string, env func(string) (string, bool)) bool {
	words, _, _ := strings.Cut("\x00"+strings.Join(args, "\x00")+"\x00", "\x00--\x00")
	for _, form := range []string{"--json", "--json=true", "-ojson", "--output=json", "-o\x00json", "--output\x00json"} {
		if strings.Contains(words+"\x00", "\x00"+form+"\x00") {
			return true
		}
	}
	value, _ := env("SANDJET_JSON")
	on, err := strconv.ParseBool(value)
	return err == nil && on
}

// interrupted returns the exit code of an interrupted program if a signal ended the command, else err.
func interrupted(ctx context.Context, err error) error {
	if _, ends := errors.AsType[*exitError](err); err == nil || ends || ctx.Err() == nil {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) {
		return &exitError{code: exitCancelled, err: context.Cause(ctx)}
	}
	return err
}

func newLog(w io.Writer, level slog.Level, json bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if json {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
