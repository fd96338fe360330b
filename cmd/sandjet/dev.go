package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandjet/sandjet/client"
	"github.com/sandjet/sandjet/schemas"
)

type devCommand struct {
	manifestFlags
}

// Help returns the detailed help, for kong.
func (*devCommand) Help() string {
	return `Applies a manifest now and after every change of its files, until it is stopped. While a file is wrong, what
was applied last stays. With --prune it deletes without asking.

Examples:
  sandjet dev -f sandjet.yaml
  sandjet dev -f deploy/ --prune`
}

// Run applies the manifest now and after each change of its files, until ctx ends.
func (c *devCommand) Run(ctx context.Context, t terminal) error {
	if slices.Contains(c.File, "-") {
		return schemas.Invalidf("file", "stdin does not change: use sandjet apply")
	}
	cl, err := c.dial(ctx, t)
	if err != nil {
		return err
	}
	w := &watched{read: func() ([]byte, error) { return c.text() }}
	const every = 300 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if w.changed() {
			if err := c.once(ctx, cl, t); err != nil {
				if ctx.Err() != nil {
					return left()
				}
				t.complain(err)
				w.again = errors.Is(err, schemas.ErrUnavailable)
			}
		}
		select {
		case <-ctx.Done():
			return left()
		case <-tick.C:
		}
	}
}

// once applies the files as they are now.
func (c *devCommand) once(ctx context.Context, cl *client.Client, t terminal) error {
	const patience = 20 * time.Second // for a gateway that is unreachable
	s, err := c.load(nil)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.send(bounded, cl, s, false)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		return schemas.Wrap(schemas.Unavailable, "", "the gateway does not answer: it is tried again", err)
	}
	if err != nil {
		return err
	}
	if t.json {
		return printJSON(t.out, answer)
	}
	_, err = fmt.Fprintf(unguarded(t.out), "%s %s\n", time.Now().Format(time.TimeOnly), answerText(answer, t.colored()))
	return wrapOutput(err)
}

// text returns the content of all files.
func (c *devCommand) text() ([]byte, error) {
	sources, err := readSources(c.File, nil)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, s := range sources {
		fmt.Fprintf(&b, "%s\x00%d\x00", s.name, len(s.text))
		b.Write(s.text)
	}
	return b.Bytes(), nil
}

// watched reports when a text has changed and is stable again: editors write files in several steps.
type watched struct {
	read  func() ([]byte, error)
	again bool // the last text must be applied again

	begun          bool
	applied, newer []byte
}

// changed reports whether there is a text to apply, at most once for each text. The first text is applied at once. If reading fails, the
// error is taken as the text, so that applying reports it.
func (w *watched) changed() bool {
	now, err := w.read()
	if err != nil {
		now = []byte(err.Error())
	}
	switch {
	case !w.begun:
	case !bytes.Equal(now, w.newer): // it may change once more
		w.newer = now
		return false
	case bytes.Equal(now, w.applied) && !w.again:
		return false
	}
	w.begun, w.again, w.applied, w.newer = true, false, now, now
	return true
}
