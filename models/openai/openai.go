// Package openai speaks OpenAI's Chat Completions API (platform.openai.com/docs, "Chat"), streaming. OpenAI serves it, and so do most
// other servers of models.
package openai

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"

	"github.com/sandjet/sandjet/models"
	"github.com/sandjet/sandjet/models/internal/wire"
)

const (
	base = "https://api.openai.com/v1"
	path = "/chat/completions"
)

// Client implements [models.Client].
type Client struct {
	wire   *wire.Client
	extra  map[string]json.RawMessage
	legacy bool
}

// New returns the client of a server. o.URL includes "/v1", or the server's equivalent. Code: invalid.
func New(o models.Options) (*Client, error) {
	header := http.Header{}
	if o.Key != "" {
		header.Set("Authorization", "Bearer "+o.Key)
	}
	w, err := wire.New(o, base, path, header, refusal)
	if err != nil {
		return nil, err
	}
	return &Client{wire: w, extra: maps.Clone(o.Extra), legacy: o.LegacyMaxTokens}, nil
}

// Stream implements [models.Client]. Request.Cache has no effect: this wire has no cache marks, and servers cache by themselves.
func (c *Client) Stream(ctx context.Context, r models.Request) iter.Seq2[models.Delta, error] {
	body, err := write(r, c.extra, c.legacy)
	if err != nil {
		return func(yield func(models.Delta, error) bool) {
			yield(models.Delta{}, &models.Error{Class: models.BadRequest, Message: err.Error()})
		}
	}
	return func(yield func(models.Delta, error) bool) {
		c.wire.Stream(ctx, body, &accumulator{model: r.Model})(yield)
	}
}

var _ models.Client = (*Client)(nil)
