// Package anthropic speaks Anthropic's Messages API (platform.claude.com/docs, "Messages", version 2023-06-01), streaming. Anthropic
// serves it, and so do other servers of models.
package anthropic

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/wire"
	"github.com/sandjet/sandjet/schemas"
)

const (
	base    = "https://api.anthropic.com"
	path    = "/v1/messages"
	version = "2023-06-01"
)

// Client implements [models.Client].
type Client struct {
	wire  *wire.Client
	extra map[string]json.RawMessage
}

// New returns the client of a server. Its URL is without "/v1". Code: invalid.
func New(o models.Options) (*Client, error) {
	header := http.Header{"Anthropic-Version": {version}}
	if o.Key != "" {
		header.Set("X-Api-Key", o.Key)
	}
	w, err := wire.New(o, base, path, header, refusal)
	if err != nil {
		return nil, err
	}
	return &Client{wire: w, extra: maps.Clone(o.Extra)}, nil
}

// Stream implements [models.Client].
func (c *Client) Stream(ctx context.Context, r models.Request) iter.Seq2[models.Delta, error] {
	body, err := write(r, c.extra)
	if err != nil {
		return func(yield func(models.Delta, error) bool) {
			yield(models.Delta{}, &models.Error{Class: models.BadRequest, Message: err.Error()})
		}
	}
	return func(yield func(models.Delta, error) bool) {
		c.wire.Stream(ctx, body, &accumulator{model: r.Model})(yield)
	}
}

// stops are the reasons of the wire. An unknown one is an end.
var stops = map[string]models.Stop{ //nolint:gochecknoglobals // a table
	"end_turn":                      models.StopEnd,
	"stop_sequence":                 models.StopEnd,
	"tool_use":                      models.StopToolUse,
	"max_tokens":                    models.StopMaxTokens,
	"pause_turn":                    models.StopPause,
	"refusal":                       models.StopRefusal,
	"model_context_window_exceeded": models.StopContext,
}

var _ models.Client = (*Client)(nil)

// block sets the raw form of a block of an answer, with its wire and model.
func block(o wire.Object, b schemas.Block, model string) schemas.Block {
	b.Raw, b.Wire, b.Model = o.JSON(), schemas.WireAnthropic, model
	return b
}
