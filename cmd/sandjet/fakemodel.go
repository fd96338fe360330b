package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/sandjet/sandjet/internal/fakemodel"
	"github.com/sandjet/sandjet/schemas"
)

type fakemodelCommand struct {
	Listen string `default:"127.0.0.1:8766" placeholder:"ADDRESS" use:"" help:"Address to serve on. Default: 127.0.0.1:8766."`
	Script string `placeholder:"FILE" use:"" help:"YAML file that says what is answered. Default: it echoes, and \"run: COMMAND\" calls the tool bash."`
}

// Help returns the detailed help, for kong.
func (*fakemodelCommand) Help() string {
	return `A server of language models without a model, to try agents offline: it speaks Anthropic's Messages API (POST /v1/messages) and
OpenAI's Chat Completions API (POST /v1/chat/completions), streaming and not. It refuses what the services refuse, such as a use of a
tool without its result. Any key is taken, but there must be one.

Without a script it repeats what it is sent, calls the tool bash where a message is "run: COMMAND", and says what a tool has said.

A script has rules. The first one whose conditions hold answers:
  rules:
    - contains: weather            # also: request: 3 (its number), model: NAME, times: 1
      say: Let me see.             # also: think, refuse, stop, usage, other
      call:
        - {tool: bash, input: {command: "curl wttr.in"}}
    - request: 2
      status: 429                  # also: type, code, message
      retry_after: "2"
    - contains: unlucky
      say: A long story.
      break_after: 300             # bytes; also: wait, pace, bad_json, stream_error

Examples:
  sandjet fakemodel
  sandjet fakemodel --script rules.yaml
  curl http://127.0.0.1:8766/requests              what it was asked, as JSON`
}

// Run serves until ctx ends.
func (c *fakemodelCommand) Run(ctx context.Context, t terminal) error {
	script, err := readScript(c.Script)
	if err != nil {
		return err
	}
	fake, err := fakemodel.New(script)
	if err != nil {
		return schemas.OpErrorf(schemas.Invalid, "script", "%s: %v", schemas.Quotable(c.Script), err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return schemas.Errorf(schemas.Unavailable, "the address %s cannot be served on: %v", c.Listen, err)
	}
	server := &http.Server{Handler: fake, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(t.out, "A fake model serves on http://%s: for Anthropic's clients that is its URL, for OpenAI's it is http://%[1]s/v1.\n", l.Addr())
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the fake model: %w", err)
	}
	return nil
}

// readScript reads a script in YAML; without a path it returns an empty one. Code: invalid.
func readScript(path string) (s fakemodel.Script, err error) {
	if path == "" {
		return s, nil
	}
	wrong := func(err error) (fakemodel.Script, error) {
		return s, schemas.OpErrorf(schemas.Invalid, "script", "%s: %s", schemas.Quotable(path), oneLine(err))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return wrong(err)
	}
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return wrong(err)
	}
	plain, err := json.Marshal(v)
	if err != nil {
		return wrong(err)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return wrong(err)
	}
	return s, nil
}
